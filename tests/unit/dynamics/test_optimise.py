"""Optimal control: searches from many starts, and the pulses that they find, by independent evolution."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import expm
from scipy.optimize import rosen

from ketscale import dynamics as kd
from ketscale.dynamics.minimising import lbfgs
from ketscale.errors import UserError

QUIET: dict[str, Any] = {"starts": 4, "progress": False}


def unitary(found: kd.Optimised) -> np.ndarray:
    """By SciPy's exponential of each segment."""
    system, result = found.system, np.eye(found.system.dimension, dtype=complex)
    drift = sum(system.parameters[name] * term for name, term in system.drift.items())
    for row in found.controls.numpy():
        hamiltonian = drift + sum(u * term for u, term in zip(row, system.controls.values(), strict=True))
        result = expm(-1j * hamiltonian * found.duration / len(found.controls)) @ result
    return result


def rosenbrock(x: torch.Tensor, _: object = None) -> torch.Tensor:
    return (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(1)


def test_lbfgs_takes_each_start_to_a_minimum_of_its_own_in_few_evaluations() -> None:
    start = torch.randn(6, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    history: list[torch.Tensor] = []
    end = lbfgs(rosenbrock, start, 200, lambda value: history.append(value) or True)  # type: ignore[func-returns-value]
    assert len(history) < 100
    assert all((later <= earlier).all() for earlier, later in pairwise(history))
    assert history[0][2].item() == pytest.approx(rosen(start[2].numpy()))
    # All six end in a minimum, and as they do alone.
    point = end.clone().requires_grad_()
    (slope,) = torch.autograd.grad(rosenbrock(point).sum(), point)
    assert slope.abs().max() < 1e-8
    for row, single in zip(start, end, strict=True):
        torch.testing.assert_close(
            lbfgs(rosenbrock, row[None], 200, lambda _: True)[0], single, rtol=0, atol=1e-9
        )


def test_a_start_that_is_not_a_number_hinders_no_other() -> None:
    start = torch.tensor([[1.5], [torch.nan], [0.5]], dtype=torch.float64)
    # Beyond 2 there is no number either.
    end = lbfgs(lambda x, _: (2 - x[:, 0]).sqrt() + x[:, 0].square(), start, 200, lambda _: True)
    slope = -0.5 / (2 - end[[0, 2]]).sqrt() + 2 * end[[0, 2]]
    assert slope.abs().max() < 1e-3 and not end[[0, 2]].isnan().any()


PULSES = [kd.Drag(segments=30), kd.Piecewise(segments=30, pieces=10), kd.Fourier(segments=30)]


@pytest.mark.parametrize("pulse", PULSES)
@pytest.mark.parametrize("gate", ["x", "h"])
def test_a_gate_of_a_transmon_is_found_and_is_one(pulse: kd.Pulse, gate: str) -> None:
    result = kd.optimise(kd.transmon(), gate, pulse, 20.0, wanted=1e-5, **QUIET)
    block = unitary(result)[:2, :2]
    overlap = abs(np.trace(kd.gate(gate).numpy().conj().T @ block)) ** 2
    average = (overlap + np.linalg.norm(block) ** 2) / 6
    assert result.infidelity <= 1e-5 and 1 - average == pytest.approx(result.infidelity, abs=1e-12)
    assert result.history[-1].min().item() == pytest.approx(result.infidelity, abs=1e-12)
    torch.testing.assert_close(
        pulse(result.numbers[result.best], result.duration), result.controls, rtol=0, atol=0
    )


def test_a_search_depends_on_its_seed_alone() -> None:
    pulse = kd.Piecewise(segments=5)
    first, again, other = (kd.optimise(kd.qubit(), "x", pulse, 1.0, seed=seed, **QUIET) for seed in (0, 0, 1))
    assert torch.equal(first.history, again.history)
    assert not torch.equal(first.history[0], other.history[0])


def test_a_state_is_met_from_another() -> None:
    system = kd.transmon()
    target = np.array([0.6, 0.8j, 0])
    result = kd.optimise(system, target, kd.Fourier(segments=30), 20.0, initial=[0, 1, 0], **QUIET)
    assert abs(target.conj() @ unitary(result)[:, 1]) ** 2 == pytest.approx(1, abs=2e-6)


def test_a_duration_is_trained_within_its_range() -> None:
    narrow = kd.Piecewise(segments=8, limits=kd.Limits(amplitude=0.2))
    result = kd.optimise(kd.transmon(), "x", narrow, (5.0, 40.0), **QUIET)
    assert result.infidelity < 1e-6 and result.durations.min() > 5 and result.durations.max() < 40
    assert result.durations.std() > 0.1
    # A turn by pi at this amplitude needs pi / 0.2.
    assert result.duration > 15


def test_each_of_several_targets_is_found_by_starts_of_its_own() -> None:
    system, pulse = kd.transmon(), kd.Fourier(segments=30)
    half = torch.linalg.matrix_exp(-0.25j * torch.pi * kd.gate("y"))
    for targets, ensemble in (
        (["x", half, "h"], None),
        (np.array([[0, 1, 0], [0.6, 0.8j, 0]]), {"detuning": torch.zeros(2)}),
    ):
        result = kd.optimise_each(
            system, targets, pulse, (15.0, 25.0), parameters=ensemble, wanted=1e-5, **QUIET
        )
        assert len(result) == len(targets) and all(len(each.infidelities) == 4 for each in result)
        for each, target in zip(result, targets, strict=True):
            if len(target) == 3:
                reached = abs(np.conj(target) @ unitary(each)[:, 0]) ** 2
            else:
                expected = kd.gate(target) if isinstance(target, str) else target
                reached = kd.average_gate_fidelity(torch.from_numpy(unitary(each)[:2, :2]), expected).item()
            assert 1 - reached == pytest.approx(each.infidelity, abs=1e-12) and each.infidelity <= 1e-5


@pytest.mark.parametrize("rates", [None, [1e-3] * 3])
def test_starts_that_have_ended_leave_the_others_their_targets(rates: list[float] | None) -> None:
    """Amplitudes of one real control end soon, and after different numbers of evaluations."""
    system = kd.qubit(detuning=0.0)
    pulses = [kd.Gaussian(segments=4, width=0.3, quadratures=False)] * 2
    targets = [system.targets["x"], np.array([1, 0]), system.targets["hadamard"], np.array([0.8, 0.6j])]
    result = kd.optimise_each(system, targets, pulses, 1.0, rates=rates, wanted=-1.0, evaluations=80, **QUIET)
    assert len(result[0].history) < 80
    for each in result:
        torch.testing.assert_close(each.history[-1], each.infidelities, rtol=0, atol=1e-12)
        assert each.infidelity < 2e-3


def unitaries(found: kd.Optimised, system: kd.System) -> torch.Tensor:
    """Until the end of each segment, by torch's exponential."""
    operators = torch.tensor(np.array([*system.drift.values(), *system.controls.values()]))
    fixed = torch.tensor([*system.parameters.values()], dtype=torch.float64).expand(len(found.controls), -1)
    hamiltonians = torch.tensordot(torch.cat([fixed, found.controls], 1).to(operators.dtype), operators, 1)
    values = [torch.eye(system.dimension, dtype=operators.dtype)]
    for step in torch.matrix_exp(-1j * found.duration / len(fixed) * hamiltonians):
        values.append(step @ values[-1])
    return torch.stack(values)


def test_a_cost_of_ones_own_is_that_of_torchs_exponentials() -> None:
    """The cost is one of populations on the way, from observables and from kets."""
    system, pulse = kd.transmon(), kd.Fourier(segments=20)
    projectors = torch.stack([torch.diag(level) for level in torch.eye(3)])

    def cost(shares: torch.Tensor) -> torch.Tensor:
        return 1 - shares[:, -1, 1] + 0.1 * shares[..., 2].square().mean(1)

    options: dict[str, Any] = {"trajectory": True, "evaluations": 40, **QUIET}
    result = kd.optimise(system, cost, pulse, (15.0, 20.0), expect=projectors, **options)
    shares = unitaries(result, system)[None, :, :, 0].abs().square()
    assert result.infidelity == pytest.approx(cost(shares).item(), abs=1e-12)
    assert result.infidelity < 0.01 and len(result.history) == 41  # none is enough
    by_kets = kd.optimise(system, lambda kets: cost(kets.abs().square()), pulse, (15.0, 20.0), **options)
    torch.testing.assert_close(by_kets.infidelities, result.infidelities, rtol=0, atol=1e-6)
    rates, means = [0.02, 0.01], {"expect": np.diag([0, 1, 2])[None], "starts": 1, "evaluations": 2}
    noisy = kd.optimise(system, lambda n: n[:, 0], pulse, 20.0, rates=rates, progress=False, **means)
    rho = kd.evolve(system, noisy.controls, 20.0, rates=rates)
    assert noisy.infidelity == pytest.approx((rho.diagonal().real @ torch.arange(3.0).double()).item())


def test_each_of_several_costs_has_the_mean_of_an_ensemble() -> None:
    """Minus the shares of a unitary's columns in their places."""
    system, detunings = kd.transmon(), [-0.01, 0.01]
    costs = [
        lambda final, places=places: -final[:, places, range(3)].abs().square().mean(1)
        for places in ([1, 0, 2], [0, 2, 1])
    ]
    options: dict[str, Any] = {"parameters": {"detuning": detunings}, "initial": np.eye(3), "evaluations": 40}
    result = kd.optimise_each(system, costs, kd.Piecewise(segments=20), 20.0, **options, **QUIET)
    for each, cost in zip(result, costs, strict=True):
        finals = [unitaries(each, kd.transmon(detuning))[-1] for detuning in detunings]
        assert each.infidelity == pytest.approx(cost(torch.stack(finals)).mean().item(), abs=1e-12)
        assert each.infidelity < -0.9


def test_several_pulses_play_at_once_each_on_controls_of_its_own() -> None:
    pulses = [
        kd.Gaussian(segments=20, quadratures=False),
        kd.Fourier(segments=20, terms=2, quadratures=False),
    ]
    result = kd.optimise(kd.transmon(), "x", pulses, 20.0, wanted=1e-5, **QUIET)
    assert result.infidelity <= 1e-5 and list(result.parameters[1]["amplitude"].shape) == [1, 2]
    single = pulses[0](result.numbers[result.best, :1], result.duration)[:, 0]
    torch.testing.assert_close(result.controls[:, 0], single, rtol=0, atol=0)


def test_a_search_goes_on_where_another_has_ended() -> None:
    pulse = kd.Fourier(segments=20)
    rough = kd.optimise(kd.transmon(), "x", pulse, 20.0, wanted=1e-2, **QUIET)
    listed = rough.numbers.tolist()
    fine = kd.optimise(kd.transmon(), "x", pulse, 20.0, starts=listed, wanted=1e-9, progress=False)
    torch.testing.assert_close(fine.history[0], rough.infidelities, rtol=0, atol=1e-14)
    assert rough.infidelity > 1e-9 >= fine.infidelity


def test_an_ensemble_makes_a_pulse_robust() -> None:
    system, off = kd.transmon(), torch.linspace(-0.03, 0.03, 3, dtype=torch.float64)
    pulse = kd.Piecewise(segments=15)
    plain, robust = (
        kd.optimise(system, "x", pulse, 30.0, parameters=parameters, wanted=1e-6, **QUIET)
        for parameters in (None, {"detuning": off})
    )

    def mean(controls: torch.Tensor) -> float:
        qubit = system.computational_states
        final = kd.evolve(system, controls, 30.0, kind="unitary", initial=qubit, parameters={"detuning": off})
        return float(1 - kd.average_gate_fidelity(final, kd.gate("x"), qubit).mean())

    assert mean(robust.controls) == pytest.approx(robust.infidelity, abs=1e-12)
    assert mean(robust.controls) < 0.01 * mean(plain.controls)


@pytest.mark.parametrize("target", ["x", [0, 1, 0]])
def test_a_list_of_systems_is_an_ensemble(target: Any) -> None:
    """Transmons that differ in a parameter are the same as an ensemble of it."""
    off = [-0.03, 0.0, 0.03]
    pulse = kd.Piecewise(segments=10)
    by_systems, by_parameters = (
        kd.optimise(system, target, pulse, (20.0, 30.0), parameters=parameters, evaluations=8, **QUIET)
        for system, parameters in (
            ([kd.transmon(detuning) for detuning in off], None),
            (kd.transmon(), {"detuning": torch.tensor(off, dtype=torch.float64)}),
        )
    )
    torch.testing.assert_close(by_systems.history, by_parameters.history, rtol=1e-8, atol=1e-12)
    assert by_systems.system.parameters["detuning"] == -0.03


def test_an_ensemble_of_one_is_shared_by_a_longer_one() -> None:
    pulse, detunings = kd.Piecewise(segments=6), {"detuning": [0.1, 0.2, 0.3]}
    arguments = {"starts": 2, "evaluations": 12, "progress": False}
    framed = kd.optimise(
        kd.qubit(), "x", pulse, 1.0, parameters=detunings, frame=kd.dressed_frame([kd.qubit()]), **arguments
    )
    shared = kd.optimise(
        kd.qubit(), "x", pulse, 1.0, parameters=detunings, frame=kd.dressed_frame(kd.qubit()), **arguments
    )
    assert torch.equal(framed.numbers, shared.numbers)


def test_one_pulse_serves_circuits_of_different_energies() -> None:
    energies = torch.tensor([[14.8, 12.2], [15.0, 12.0]], dtype=torch.float64)
    systems = [kd.transmon_chain(2, josephson=each).system(2) for each in energies]
    frame = kd.dressed_frame(systems)
    pulse = kd.Piecewise(segments=10, drives=2, quadratures=False)
    options = {"frame": frame, "evaluations": 10, **QUIET}
    result = kd.optimise(systems, "cz", pulse, 5.0, **options)
    slopes = []
    for system in systems:
        own = kd.dressed_frame(system)
        final = kd.evolve(system, result.controls, 5.0, kind="unitary", initial=own.states)
        slopes.append(float(1 - kd.average_gate_fidelity(own.amplitudes(final, 5.0), kd.gate("cz"))))
    assert result.infidelity == pytest.approx(np.mean(slopes), abs=1e-12)
    assert result.history[-1].min() < result.history[0].min()
    with pytest.raises(UserError, match=r"ensembles of different sizes \[2, 3\]"):
        kd.optimise(systems[:1] * 3, "cz", pulse, 5.0, **options)


def test_noise_bounds_an_open_gate_and_its_gradient_is_used() -> None:
    system = kd.transmon()
    rates = {"relaxation": 1e-4, "dephasing": 0.0}
    result = kd.optimise(system, "x", kd.Drag(segments=20), 20.0, rates=rates, evaluations=60, **QUIET)
    # A qubit that relaxes with T1 loses about t / (3 T1) of a gate that keeps it half excited.
    assert 0.5 < result.infidelity / (20 * 1e-4 / 3) < 1.1
    shorter = kd.optimise(
        system, "x", kd.Drag(segments=20), (10.0, 20.0), rates=rates, evaluations=80, **QUIET
    )
    assert shorter.infidelity < 0.8 * result.infidelity and shorter.duration < 16


def test_virtual_z_saves_a_noisy_gate_the_pulse_of_its_phase() -> None:
    """S is a virtual rotation: what is left is the noise of waiting, in closed form."""
    t1, t2, time = 400.0, 300.0, 20.0
    arguments: Any = (kd.transmon(levels=2, t1=t1, t2=t2), "s", kd.Piecewise(segments=8), time)
    result = kd.optimise(*arguments, virtual_z=True, wanted=0.0, evaluations=60, **QUIET)
    waiting = (1 + math.exp(-time / t1) + 2 * math.exp(-time / t2)) / 4
    assert result.infidelity <= 1 - (2 * waiting + 1) / 3 + 1e-5
    assert result.infidelity < kd.optimise(*arguments, wanted=0.0, evaluations=60, **QUIET).infidelity


def test_two_qubits_with_virtual_z_in_the_dressed_frame() -> None:
    system = kd.chain([kd.transmon(1.26, levels=2), kd.transmon(levels=2)], {(0, 1): 0.1})
    frame = kd.dressed_frame(system)
    pulse = kd.Piecewise(segments=12, drives=2)
    result = kd.optimise(system, "cz", pulse, 40.0, frame=frame, virtual_z=True, wanted=1e-4, **QUIET)
    states, energies = frame.states.numpy(), frame.energies.numpy()
    block = np.exp(1j * energies * 40)[:, None] * (states.conj().T @ unitary(result) @ states)
    assert result.infidelity < 1e-4
    # Up to Z rotations of each qubit, of which phases of a CZ have no more than this product.
    phases = np.angle(np.diag(block))
    assert np.abs(block).diagonal().min() > 0.999
    assert np.cos(phases[0] - phases[1] - phases[2] + phases[3]) < -0.999


# torch says so when forward mode is first used.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_torch_func_goes_from_parameters_to_fidelities() -> None:
    system = kd.transmon()
    qubit = system.computational_states
    pulse = kd.Drag(segments=10, limits=kd.Limits(amplitude=0.5, bandwidth=0.3))

    def loss(parameters: torch.Tensor) -> torch.Tensor:
        final = kd.evolve(system, pulse(parameters, 20.0), 20.0, kind="unitary", initial=qubit)
        return 1 - kd.average_gate_fidelity(final, kd.gate("x"), qubit)

    parameters = pulse.start(3, torch.Generator().manual_seed(0))
    gradients = torch.func.vmap(torch.func.grad(loss))(parameters)
    hessian, step = torch.func.hessian(loss)(parameters[0]), 1e-6 * torch.eye(4, dtype=torch.float64)
    slopes = [torch.func.grad(loss)(parameters[0] + sign * step[2]) for sign in (1, -1)]
    torch.testing.assert_close(gradients[0], (slopes[0] + slopes[1]) / 2, rtol=0, atol=1e-9)
    torch.testing.assert_close(hessian[2], (slopes[0] - slopes[1]) / 2e-6, rtol=0, atol=1e-6)


def test_what_was_found_is_exported() -> None:
    result = kd.optimise(kd.transmon(), "x", kd.Drag(segments=30), 20.0, **QUIET)
    arrays = result.arrays()
    assert list(arrays) == [
        "time",
        *result.system.controls,
        "population_0",
        "population_1",
        "population_outside",
    ]
    assert arrays["time"][[0, -1]].tolist() == [0, 20] and all(len(each) == 31 for each in arrays.values())
    assert arrays["population_1"][[0, -1]] == pytest.approx([1, 0], abs=1e-4)
    assert sum(arrays[f"population_{name}"] for name in ("0", "1", "outside")) == pytest.approx(np.ones(31))
    assert result.arrays(column=0)["population_1"][[0, -1]] == pytest.approx([0, 1], abs=1e-4)
    assert repr(result).startswith(f"Optimised(infidelity={result.infidelity:.3g}, duration=20, ")


@pytest.mark.parametrize(
    "given",
    [
        {"parameters": {"detuning": 0.3}},
        {"parameters": torch.tensor([[0.3, -0.2]], dtype=torch.float64)},
        {"rates": {"relaxation": 0.05, "dephasing": 0.0}},
        {"parameters": {"detuning": 0.3}, "rates": [0.05, 0.02]},
    ],
)
def test_what_was_found_is_of_the_parameters_and_rates_of_the_search(given: dict[str, Any]) -> None:
    result = kd.optimise(kd.transmon(), [0, 1, 0], kd.Drag(segments=5), 20.0, evaluations=1, **given, **QUIET)
    assert result.populations()["1"][-1] == pytest.approx(1 - result.infidelity, abs=1e-12)


@pytest.mark.parametrize("given", [{}, {"parameters": {"energies_1": 0.9}}])
def test_a_device_with_gradients_has_populations(given: dict[str, Any]) -> None:
    josephson = torch.tensor([6.0], dtype=torch.float64, requires_grad=True)
    system = kd.transmon_chain(1, josephson=josephson).system(3)
    pulse = kd.Gaussian(segments=5, quadratures=False)
    result = kd.optimise(system, [0, 1, 0], pulse, 1.0, evaluations=1, **given, **QUIET)
    assert result.populations()["1"][-1] == pytest.approx(1 - result.infidelity, abs=1e-12)


def test_the_populations_of_a_gate_are_those_of_its_frame() -> None:
    system = kd.chain([kd.qubit(0.3), kd.qubit()], {(0, 1): 0.1})
    frame = kd.dressed_frame(system)
    pulse = kd.Piecewise(segments=4, drives=2)
    result = kd.optimise(system, "cz", pulse, 3.0, frame=frame, starts=1, evaluations=3, progress=False)
    kets = kd.evolve(system, result.controls, result.duration, initial=frame.states[:, 2], trajectory=True)
    expected = (kets @ frame.states.conj()).abs().square()
    for bits, shares in result.populations(2).items():
        if bits != "outside":
            np.testing.assert_allclose(shares, expected[:, int(bits, 2)], atol=1e-13)
    assert result.populations(2)["10"][0] == pytest.approx(1, abs=1e-13)


def test_a_step_that_goes_too_far_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def refusing(*given: Any, **options: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls in (2, 3):
            raise UserError("controls: too large")
        return kd.evolve(*given, **options)

    monkeypatch.setattr("ketscale.dynamics.optimisation.evolve", refusing)
    result = kd.optimise(kd.transmon(), "x", kd.Fourier(segments=20), 20.0, starts=1, progress=False)
    assert result.infidelity < 1e-6 and torch.equal(result.history[0], result.history[2])
    calls = 1
    with pytest.raises(UserError, match="too large"):
        kd.optimise(kd.transmon(), "x", kd.Fourier(segments=20), 20.0, **QUIET)


def test_a_start_that_goes_too_far_hinders_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def refusing(system: kd.System, controls: torch.Tensor, *given: Any, **options: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls > 1 and (controls[:, 0, 0] < 0).any():
            raise UserError("controls: too large")
        return kd.evolve(system, controls, *given, **options)

    def search(starts: torch.Tensor) -> torch.Tensor:
        pulse, options = kd.Gaussian(segments=5), {"evaluations": 15, "progress": False}
        return kd.optimise(kd.qubit(0.0), "x", pulse, 1.0, starts=starts, **options).history

    starts = torch.tensor([[0.5, 0.1], [-0.5, 0.1], [0.3, -0.2]], dtype=torch.float64)
    single = search(starts[[0, 2]])
    monkeypatch.setattr("ketscale.dynamics.optimisation.evolve", refusing)
    result = search(starts)
    torch.testing.assert_close(result[:, [0, 2]], single, rtol=0, atol=1e-12)
    assert (result[:, 1] == result[0, 1]).all()


def test_a_gate_beside_a_coupler_is_refused_with_the_frame_that_it_needs() -> None:
    system = kd.chain([kd.transmon(each, levels=2) for each in (0.0, 0.5, 1.1)], {(0, 1): 0.03, (1, 2): 0.04})
    pulse, f, k = kd.Piecewise(segments=4, drives=3), kd.dressed_frame(system), [0, 1, 4, 5]
    with pytest.raises(UserError, match=r"kd\.Frame\(f\.states\[:, k\], f\.energies\[k\]\)"):
        kd.optimise(system, "cz", pulse, 9.0, **QUIET)
    frame = kd.Frame(f.states[:, k], f.energies[k])
    result = kd.optimise(system, "cz", pulse, 9.0, frame=frame, virtual_z=True, evaluations=2, progress=False)
    assert 0 < result.infidelity < 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pulse": kd.Drag(segments=5, drives=2)}, "pulse: has 4 controls, and the system 2 (x, y)"),
        ({"pulse": [kd.Gaussian(segments=n, quadratures=False) for n in (4, 5)]}, "with the same number of segments"),
        ({"target": "up"}, "of the system's own states give system.targets['up']"),
        ({"starts": torch.zeros(2, 3)}, "starts: must be real and finite, (starts, 4), not (2, 3)"),
        ({"duration": (1.0, torch.inf)}, "duration: must be positive, and a range ascending"),
        ({"parameters": torch.zeros(0, 1).double()}, "parameters, rates: the ensemble has no members"),
        ({"target": [1, 0], "initial": [1, 1]}, "initial: is not of norm 1"),
        ({"duration": (1.0, 9.0), "pulse": kd.Drag(segments=5, limits=kd.Limits(bandwidth=0.2))}, "the pulse's limits need at least 2.972"),
        ({"duration": (3.0, 2.0)}, "duration: must be positive, and a range ascending"),
        ({"target": [1, 1]}, "target: is not of norm 1 (off by 1.0e+00)"),
        ({"target": [[1, 1], [0, 1]]}, "target: is not unitary"),
        ({"target": "cz"}, "target: is of shape (4, 4)"),
        ({"target": [1, 0], "virtual_z": True}, "frame and virtual_z: are of gates"),
        ({"target": lambda kets: kets[:, 0]}, "target: a cost has a real number of each member of the batch, (4,), not torch.complex128 (4,)"),
        ({"expect": np.eye(2)[None]}, "expect and trajectory: are of a cost"),
        ({"initial": [1, 0]}, "initial: a gate has all computational states"),
        ({"parameters": {"tuning": 0.1}}, "no tuning"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_words(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"target": "x", "pulse": kd.Drag(segments=5), "duration": 1.0, **QUIET, **changes}
    with pytest.raises(UserError) as caught:
        kd.optimise(replace(kd.qubit(), targets={"up": [1, 0]}), **given)
    assert message in str(caught.value)
