"""The physics of `engines.dynamics`: against QuTiP, closed forms and published figures, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import qutip
import torch

from ketscale.dynamics import (
    System,
    chain,
    fidelity,
    noise_rates,
    qubit,
    relaxation_rates,
    transmon,
    violations,
)
from ketscale.engines.dynamics.basis import PAULI
from ketscale.engines.dynamics.propagators import propagator
from ketscale.engines.dynamics.systems import PAULI_JUMPS, RELAXATION_JUMPS
from ketscale.engines.dynamics.tasks import Tasks
from ketscale.errors import UserError

EXACT = propagator("exact")


def coupled_qubits(
    detuning: float = 0.4 * math.pi,
    other: float = 0.0,
    coupling: float = 0.0076 * math.pi,
    jumps: Sequence[str] = RELAXATION_JUMPS,
) -> System:
    sites = [transmon(each, levels=2, jumps=jumps) for each in (detuning, other)]
    targets = {"bell": np.array([1, 0, 0, 1]) / 2**0.5, "x": np.array([0, 0, 1, 0])}
    return replace(chain(sites, {(0, 1): coupling}), targets=targets)


# Each with the duration of a usual pulse.
SYSTEMS = {
    "qubit": (qubit(), 1.0),
    "relaxing qubit": (qubit(jumps=RELAXATION_JUMPS), 1.0),
    "transmon": (transmon(), 20.0),
    "coupled qubits": (coupled_qubits(), 160.0),
}
JUMPS = (*PAULI_JUMPS, *RELAXATION_JUMPS)


def real(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


ALL_JUMPS = {
    "qubit": (qubit(jumps=JUMPS), 1.0),
    "transmon": (transmon(levels=4, anharmonicity=-0.5, jumps=JUMPS), 20.0),
    "coupled qubits": (coupled_qubits(0.3, -0.1, 0.05, JUMPS), 160.0),
}


def random_tasks(system: System, duration: float, tasks: int = 3, segments: int = 5, seed: int = 0) -> Tasks:
    """Strong controls and noise, and mixed initial states."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    d = system.dimension
    root = torch.complex(normal(tasks, d, d), normal(tasks, d, d))
    rho = root @ root.mH
    return Tasks(
        6 / duration * normal(tasks, segments, len(system.controls)),
        duration,
        normal(tasks, len(system.jumps)).square() / duration,
        real(*system.parameters.values()) + normal(tasks, len(system.drift)) / duration,
        rho / rho.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None],
    )


def by_qutip(system: System, tasks: Tasks, task: int) -> np.ndarray[Any, Any]:
    """One task by QuTiP's mesolve, segment by segment."""
    rates, parameters, initial = tasks[2:]
    assert rates is not None
    assert parameters is not None
    assert initial is not None
    state = qutip.Qobj(initial[task].numpy())
    jumps = [
        math.sqrt(rate) * qutip.Qobj(each)
        for rate, each in zip(rates[task], system.jumps.values(), strict=True)
    ]
    for amplitudes in tasks.controls[task]:
        terms = [*zip(parameters[task], system.drift.values(), strict=True)]
        terms += zip(amplitudes, system.controls.values(), strict=True)
        hamiltonian = sum(float(value) * qutip.Qobj(operator) for value, operator in terms)
        options = {"rtol": 1e-12, "atol": 1e-13, "nsteps": 100_000, "progress_bar": ""}
        state = qutip.mesolve(hamiltonian, state, [0, tasks.segment], jumps, options=options).states[-1]
    result: np.ndarray[Any, Any] = state.full()
    return result


@pytest.mark.parametrize("name", ALL_JUMPS)
def test_qutip_finds_the_same_states(name: str) -> None:
    system, duration = ALL_JUMPS[name]
    tasks = random_tasks(system, duration)
    result = EXACT.state(system, tasks)
    for task in range(len(result)):
        np.testing.assert_allclose(result[task].numpy(), by_qutip(system, tasks, task), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", SYSTEMS)
def test_states_stay_physical(name: str) -> None:
    system, duration = SYSTEMS[name]
    result = violations(EXACT.state(system, random_tasks(system, duration, tasks=500)))
    assert max(float(each.max()) for each in result) < 1e-12


def test_rabi_oscillations() -> None:
    rabi, detuning, time = 2.0, 0.7, 3.0
    controls = torch.full((1, 4, 2), 0.0, dtype=torch.float64)
    controls[..., 0] = rabi / 2
    system = qubit(detuning=detuning / 2)
    total = math.hypot(rabi, detuning)
    excited = (rabi / total * math.sin(total * time / 2)) ** 2
    assert EXACT.state(system, Tasks(controls, time))[0, 1, 1].real.item() == pytest.approx(
        excited, abs=1e-14
    )


@pytest.mark.parametrize(
    "system",
    [qubit(detuning=0.0, jumps=RELAXATION_JUMPS), transmon(), coupled_qubits(0.0, 0.0, 0.0)],
    ids=["qubit", "transmon", "pair"],
)
def test_relaxation_and_dephasing_have_the_times_that_they_are_given(system: System) -> None:
    t1, t2, time, d = 40.0, 25.0, 13.0, system.dimension
    # |+> of the qubit, or of the first of two.
    plus = torch.zeros(d, dtype=torch.complex128)
    plus[0] = plus[d // 2] = math.sqrt(0.5)
    controls = torch.zeros(1, 2, len(system.controls), dtype=torch.float64)
    rates = torch.zeros(len(system.jumps), dtype=torch.float64)
    rates[:2] = relaxation_rates(real(t1), real(t2))[0]
    rho = EXACT.state(system, Tasks(controls, time, rates, initial=torch.outer(plus, plus)))[0]
    assert rho[d // 2, d // 2].real.item() == pytest.approx(0.5 * math.exp(-time / t1), abs=1e-14)
    assert abs(rho[0, d // 2].item()) == pytest.approx(0.5 * math.exp(-time / t2), abs=1e-14)


@pytest.mark.parametrize("letter", "XYZ")
def test_pauli_noise_shrinks_the_other_bloch_components(letter: str) -> None:
    rate, time = 0.3, 2.0
    rates = torch.tensor([rate * (each == letter) for each in "XYZ"], dtype=torch.float64)
    for other in "XYZ":
        initial = torch.from_numpy((PAULI["I"] + PAULI[other]) / 2)
        tasks = Tasks(torch.zeros(1, 3, 2, dtype=torch.float64), time, rates, initial=initial)
        left = 1.0 if other == letter else math.exp(-2 * rate * time)
        values = EXACT.expval(qubit(detuning=0.0), tasks, PAULI[other][None])
        assert values.item() == pytest.approx(left, abs=1e-14)


def published(name: str, dt: float | None = None) -> tuple[float, float]:
    """Overlap with X|0> and smallest eigenvalue at u_x = pi / 2, in the middle of the published range of tasks."""
    controls = torch.zeros(1, 20, 2, dtype=torch.float64)
    controls[..., 0] = math.pi / 2
    rates = noise_rates(real(1.25), real(5e-3), real(500.0)).expand(1, 3)
    system = qubit()
    rho = propagator(name, dt).state(system, Tasks(controls, 1.0, rates))
    return fidelity(rho, system.targets["x"]).item(), torch.linalg.eigvalsh(rho).min().item()


@pytest.mark.parametrize(
    "name, dt, least, most",
    [
        ("rk4", 0.001, 0, 1e-13),
        ("rk4", 0.025, 2e-8, 4e-8),
        ("euler", 0.01, 2e-2, 3e-2),
        ("euler", 0.025, 6e-2, 7e-2),
    ],
)
def test_the_integrators_have_the_errors_of_the_published_steps(
    name: str, dt: float, least: float, most: float
) -> None:
    overlap, lowest = published(name, dt)
    assert least <= abs(overlap - published("exact")[0]) <= most and (name == "euler" or lowest > -1e-12)


@pytest.mark.parametrize("dt, overlap, lowest", [(0.01, 1.021, -0.025), (0.025, 1.061, -0.065)])
def test_the_published_steps_of_euler_leave_the_physical_states(
    dt: float, overlap: float, lowest: float
) -> None:
    assert published("euler", dt) == pytest.approx((overlap, lowest), abs=1e-3)


@pytest.mark.parametrize("cutoff", [2.0, 20.0, 500.0])
def test_the_rate_of_a_lorentzian_is_its_integral(cutoff: float) -> None:
    """The rule's last interval ends at the middle of one of its steps, 20.04, so its error is that of its slopes."""
    amplitude, highest, step = 3.0, 20.0, 40 / 499
    rate = noise_rates(real(2.0), real(amplitude), real(cutoff)).item()
    integral = amplitude / cutoff * math.atan(highest / cutoff)
    # The trapezoids' error is step^2 / 12 times the difference of the slopes; that of the last half of one step^2 / 8 times its slope.
    slope = 2 * amplitude * highest / (highest**2 + cutoff**2) ** 2
    assert rate == pytest.approx(integral / (2 * highest), abs=1.1 * slope * step**2 / 4.8 / (2 * highest))


def test_violations_are_measured() -> None:
    rho = torch.tensor([[1.2, 0.1], [0.3, -0.1]], dtype=torch.complex128)
    result = violations(rho)
    assert result.trace.item() == pytest.approx(0.1)
    assert result.hermiticity.item() == pytest.approx(0.2)
    assert result.negativity.item() == pytest.approx((math.hypot(1.3, 0.4) - 1.1) / 2)


Z, X = PAULI["Z"], PAULI["X"]
UNIT = torch.eye(2, dtype=torch.float64)


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: System({}, {}, {"x": [[0, math.nan], [math.nan, 0]]}), r"controls\.x: has entries"),
        (lambda: System({"z": Z}, {}, {"x": X}), r"parameters: .*\['z'\]"),
        (lambda: System({"z": Z}, {"z": math.inf}, {}), r"parameters\.z: inf"),
        (lambda: System({}, {}, {"x": X}, {"l": [[math.inf, 0], [0, 0]]}), r"jumps\.l: has entries"),
        *((lambda make=make: make(jumps=["x", "w"]), "jumps: 'w' is not one of x, y, z, relaxation, dephasing") for make in (qubit, transmon)),
        (lambda: relaxation_rates(real(-1.0), real(1.0)), "t1, t2"),
        (lambda: noise_rates(real(2.0), real(-1.0), real(1.0)), "amplitude: must be at least 0"),
        (lambda: fidelity(torch.eye(2) + 0j, [1, 0, 0]), "target must be a state of 2"),
    ],
)  # fmt: skip
def test_what_is_impossible_is_refused_by_the_name_of_its_setting(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        make()
