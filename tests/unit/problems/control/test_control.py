"""The workloads of `control`: their tasks, their settings, and the same losses by every propagator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pennylane as qml
import pytest
import qutip
import torch
from msgspec.structs import astuple

from ketscale import analysis
from ketscale.config import Data
from ketscale.dynamics import noise_rates, violations
from ketscale.engines.dynamics.propagators import propagator
from ketscale.engines.dynamics.tasks import Tasks
from ketscale.errors import UserError
from ketscale.problems import library
from ketscale.problems.control.problem import Distribution, Objective
from ketscale.problems.control.specification import FAMILY, WORKLOADS
from ketscale.problems.control.workloads import (
    CoupledQubitsRelaxation,
    CoupledQubitsSpectrum,
    QubitRelaxation,
    QubitSpectrum,
    Rates,
    TransmonRelaxation,
    TransmonSpectrum,
)
from tests.tiny_study import config as tiny_config
from tests.unit.engines.dynamics.test_dynamics import by_qutip

NUMBERS = torch.arange(2000)


def drawn(workload: Any, split: str = "test") -> Any:
    return Distribution(workload).fixed(split, NUMBERS, torch.float64)


@pytest.mark.parametrize("kind", WORKLOADS)
def test_values_fill_their_ranges_and_environments_are_possible(kind: str) -> None:
    workload = WORKLOADS[kind](environment_spread=0.02)
    tasks = drawn(workload)
    low, high = (torch.tensor([getattr(each, end) for each in workload.varied]) for end in ("low", "high"))
    assert ((tasks.inputs >= low) & (tasks.inputs <= high)).all()
    assert (tasks.inputs.amax(0) - tasks.inputs.amin(0) > 0.99 * (high - low)).all()
    system = workload.system()
    for environment in (tasks.support, tasks.query):
        assert environment.rates.shape == (2000, len(system.jumps)) and (environment.rates >= 0).all()
        assert environment.parameters.shape == (2000, len(system.drift))
    usual = torch.tensor(list(system.parameters.values()), dtype=torch.float64)
    usual[: workload.qubits] += workload.detuning[0]
    torch.testing.assert_close(tasks.query.parameters, usual.expand(2000, -1), rtol=0.03, atol=0)


def test_a_policy_starts_from_the_same_weights_with_any_number_of_threads() -> None:
    before, found = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        found.append(library.construct("policy").state_dict())
    torch.set_num_threads(before)
    assert all((found[0][name] == found[1][name]).all() for name in found[0])


@pytest.mark.parametrize("kind", ["policy", "robust_grape", "grape"])
def test_controls_are_clamped_to_the_limit(kind: str) -> None:
    model = library.construct(kind, amplitude=1e6, limit=3.0)
    controls = model(torch.tensor([0]) if kind == "grape" else torch.rand(1, 3))
    assert controls.shape == ((1, 8, 20, 2) if kind == "grape" else (1, 20, 2))
    assert (controls.abs() <= 3).all() and (controls.abs() == 3).any()


def test_splits_and_seeds_have_tasks_of_their_own() -> None:
    sets = [drawn(QubitSpectrum(), split) for split in ("train", "validation", "test")]
    sets.append(drawn(QubitSpectrum(seed=1)))
    values = torch.cat([each.inputs for each in sets])
    assert len(values.unique(dim=0)) == len(values)


@pytest.mark.parametrize(
    ("simulator", "evolved"),
    [
        ({"device": "exact", "route": "torch"}, ("dense", "exact", "torch", 2, None)),
        ({"device": "rk4", "dt": 0.15, "tolerance": 0.1}, ("dense", "rk4", "table", 2, 2)),
        ({"device": "euler", "batching": "loop", "dt": 0.15, "tolerance": 0.1}, ("dense", "euler", "loop", 2, 1)),
    ],
)  # fmt: skip
def test_the_record_says_what_evolved_the_tasks(simulator: dict[str, Any], evolved: tuple[Any, ...]) -> None:
    config = analysis.of(
        {
            **tiny({"validation": 5, "test": 4}, {"kind": "grape"}, segments=5, batch=9),
            "simulators": {"exact": simulator},
        }
    )
    problem = FAMILY.build(config.settings(config.runs[0]), Data(), torch.device("cpu"))
    assert astuple(problem.evolution()) == evolved


def tiny(
    workload: dict[str, Any],
    model: dict[str, Any] | None = None,
    protocol: dict[str, Any] | None = None,
    **axes: Any,
) -> dict[str, Any]:
    """A config of one study whose workload w, model m, protocol and axes have these settings."""
    made = tiny_config(
        {
            "workloads": {"w": {"kind": "qubit-spectrum", **workload}},
            "models": {"m": model or {"kind": "policy"}},
            "simulators": {
                "exact": {"device": "exact"},
                "rk4": {"device": "rk4", "dt": 0.3, "tolerance": 1e-9},
                "loop": {"device": "rk4", "batching": "loop", "dt": 0.2, "tolerance": 1e-2, "cache": True},
            },
            "axes": {**FAMILY.tiny["axes"], "workload": "w", "model": "m"},
        }
    )
    study = made["studies"]["accuracy"]
    study["axes"] |= axes
    quality = made["protocols"]["quality"] | (protocol or {})
    return {**made, "protocols": {"quality": quality}, "studies": {"accuracy": study}}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"workload": {"alpha": [2.0, 0.5]}}, "workloads.w.alpha"),
        ({"workload": {"kind": "transmon-spectrum", "jumps": ["z", "x", "z"]}}, "workloads.w.jumps"),
        ({"workload": {"kind": "coupled-qubits-relaxation", "environment_spread": 0.1}}, "workloads.w.t2"),
        ({"workload": {"gate": "cz"}}, "workloads.w.gate"),
        ({"workload": {"gate": [[1, 0], [0, 2]]}}, "workloads.w.gate"),
        ({"workload": {"gate": "y", "target": "hadamard"}}, "workloads.w.target"),
        ({"workload": {"target": [1, 0, 0, 0]}}, "workloads.w.target"),
        ({"workload": {"amplitude": 10.5}}, "workloads.w.amplitude"),
        ({"workload": {"kind": "qubit-relaxation", "t2": [10, 50]}}, "workloads.w.t2"),
        ({"workload": {}, "qubits": 2}, "accuracy: .* qubits: 1"),
        ({"workload": {"duration": 0.5}, "simulator": "loop"}, "simulator loop has dt: 0.2"),
        ({"workload": {"duration": 1e8}, "simulator": "rk4"}, "simulator rk4 has dt: 0.3"),
        ({"workload": {}, "protocol": {"precision": "amp"}, "backend": "gpu-n1r1t1"}, "precision: amp"),
        ({"workload": {"alpha": [1.0, 1.0], "strength": [1e-3, 1e-3], "cutoff": [100.0, 100.0]}}, "accuracy: workload w "),
        ({"workload": {}, "model": {"kind": "grape", "starts": 4}}, "models.m.starts"),
        ({"workload": {}, "protocol": {"optimiser": "l-bfgs"}}, "optimiser: l-bfgs"),
        ({"workload": {"tasks": 5}, "protocol": {"optimiser": "l-bfgs"}}, "adaptation: fomaml"),
    ],
)  # fmt: skip
def test_bad_settings_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        analysis.of(tiny(**changes))


def test_a_training_that_diverges_has_a_loss_that_is_not_a_number() -> None:
    """And no error: it is a result."""
    config = analysis.of(tiny({}, simulator="exact"))
    problem = FAMILY.build(config.settings(config.runs[0]), Data(), torch.device("cpu"))
    for parameter in problem.parameters():
        torch.nn.init.constant_(parameter, math.nan)
    assert problem.combine(problem(torch.arange(3), 0), 3).isnan()
    assert problem.outputs("test", torch.arange(2)).isnan().all()


def test_every_system_is_accepted_with_its_defaults() -> None:
    for kind, settings in WORKLOADS.items():
        for model in FAMILY.models:
            analysis.of(tiny({"kind": kind}, {"kind": model}, qubits=settings.qubits, batch=200))


# Noise that is felt.
STRONG = {"strength": (5e3, 5e4), "t1": (20.0, 30.0), "t2": (10.0, 40.0)}


@pytest.mark.parametrize("kind", WORKLOADS)
def test_qutip_finds_the_same_overlaps(kind: str) -> None:
    kind_of = WORKLOADS[kind]
    workload = kind_of(**{name: STRONG[name] for name in kind_of.VARIED if name in STRONG})
    environment, controls, by_theirs = evolved(workload)
    assert (environment.rates * workload.duration).amax() > 0.03
    system = workload.system()
    target, ground = system.targets[workload.target], np.zeros((system.dimension,) * 2)
    ground[0, 0] = 1
    expected = (target.conj() @ by_theirs(ground) @ target).real
    found = Objective(workload, propagator("exact")).overlaps(controls, environment)
    assert found.item() == pytest.approx(expected, abs=1e-9)


def evolved(workload: Any, test: int = 1) -> tuple[Any, Any, Any]:
    """A task's environment, strong controls, and what QuTiP makes of an operator on the system."""
    system = workload.system()
    environment = Distribution(workload).fixed("test", torch.arange(test), torch.float64).query
    generator = torch.Generator().manual_seed(1)
    controls = workload.limit * (
        2 * torch.rand(test, 5, len(system.controls), generator=generator, dtype=torch.float64) - 1
    )

    def by_theirs(operator: Any) -> Any:
        initial = torch.as_tensor(operator, dtype=torch.complex128)[None]
        return by_qutip(system, Tasks(controls, workload.duration, *environment, initial), 0)

    return environment, controls, by_theirs


@pytest.mark.parametrize("state", [(0.6, "0.8j"), ("0.48-0.64j", "-0.6")])
def test_a_state_of_ones_own_is_a_target(state: Any) -> None:
    workload = TransmonRelaxation(target=state, t1=(20.0, 30.0), t2=(10.0, 40.0))
    environment, controls, by_theirs = evolved(workload)
    target = np.array([*map(complex, state), 0])
    expected = (target.conj() @ by_theirs(np.diag([1, 0, 0])) @ target).real
    objective = Objective(workload, propagator("exact"))
    assert objective.overlaps(controls, environment).item() == pytest.approx(expected, abs=1e-9)
    like = Objective(TransmonRelaxation(target=(0, 1)), propagator("exact"))
    named = Objective(TransmonRelaxation(target="x"), propagator("exact"))
    torch.testing.assert_close(
        like.overlaps(controls, environment), named.overlaps(controls, environment), rtol=0, atol=1e-14
    )


ONE = [np.array(each) / np.linalg.norm(each) for each in ([1, 0], [0, 1], [1, 1], [1, -1], [1, 1j], [1, -1j])]


def test_the_overlap_with_a_gate_is_the_mean_over_all_states_by_qutip() -> None:
    """Over the eigenstates of Pauli matrices, which are a 2-design; and so is what leaks."""
    workload = TransmonRelaxation(gate="sqrt_x", t1=(20.0, 30.0), t2=(10.0, 40.0))
    environment, controls, by_theirs = evolved(workload)
    gate, found, lost = qml.matrix(qml.SX(0)), [], []
    for ket in ONE:
        after = by_theirs(np.pad(np.outer(ket, ket.conj()), (0, 1)))
        found.append((gate @ ket).conj() @ after[:2, :2] @ (gate @ ket))
        lost.append(after[2, 2])
    objective = Objective(workload, propagator("exact"))
    assert objective.overlaps(controls, environment).item() == pytest.approx(np.mean(found).real, abs=1e-9)
    leakage = objective.leakage(controls, environment)
    assert leakage is not None and leakage.item() > 0.01
    assert leakage.item() == pytest.approx(np.mean(lost).real, abs=1e-9)


@pytest.mark.nightly  # QuTiP takes 20 to 80 s for each
@pytest.mark.parametrize("gate", ["iswap", "own"])
def test_the_overlap_of_two_qubits_is_the_average_gate_fidelity_of_their_channel_by_qutip(gate: str) -> None:
    own = qml.matrix(qml.CNOT([1, 0]) @ qml.RX(0.3, 0) @ qml.RY(0.7, 1), wire_order=[0, 1])
    unitary = own if gate == "own" else qml.matrix(qml.ISWAP([0, 1]))
    given = tuple(tuple(map(str, row)) for row in own.tolist()) if gate == "own" else gate
    workload = CoupledQubitsRelaxation(gate=given, t1=(200.0, 300.0), t2=(100.0, 400.0))
    environment, controls, by_theirs = evolved(workload)
    # Columns of the superoperator are the images of the stacked |i><j|, from those of Hermitian operators.
    kets = [
        *np.eye(4),
        *[(np.eye(4)[i] + phase * np.eye(4)[j]) for phase in (1, 1j) for i in range(4) for j in range(i)],
    ]
    given_operators = np.array([np.outer(ket, np.conj(ket)) for ket in kets])
    images = np.array([by_theirs(each) for each in given_operators])
    columns = np.linalg.solve(
        given_operators.transpose(0, 2, 1).reshape(16, 16), images.transpose(0, 2, 1).reshape(16, 16)
    ).T
    channel = qutip.Qobj(columns, dims=[[[4], [4]], [[4], [4]]])
    expected = qutip.average_gate_fidelity(channel, qutip.Qobj(unitary))
    by: list[Any] = [("exact", None), ("rk4", 0.02), ("literal", 0.02)]
    for name, dt in by:
        objective = Objective(workload, propagator(name, dt))
        assert objective.overlaps(controls, environment).item() == pytest.approx(expected, abs=1e-7)
    assert objective.leakage(controls, environment) is None


def test_the_overlaps_of_a_gate_have_the_derivatives_of_finite_differences() -> None:
    workload = TransmonRelaxation(gate="hadamard", t1=(20.0, 30.0), t2=(10.0, 40.0))
    environment, controls, _ = evolved(workload, 3)
    objective = Objective(workload, propagator("exact"))
    assert torch.autograd.gradcheck(
        lambda *given: objective.losses(given[0], Rates(*given[1:])),
        [each.clone().requires_grad_() for each in (controls, *environment)],
        fast_mode=True,
    )


def test_each_qubit_feels_its_own_spectrum_through_the_chosen_jumps_or_has_the_rates_of_its_times() -> None:
    workload = CoupledQubitsSpectrum(jumps=("z", "x"))
    assert list(workload.system().jumps) == ["z_1", "x_1", "z_2", "x_2"]
    values = drawn(workload).inputs.unflatten(1, (2, 3))
    expected = (noise_rates(*values.unbind(2)) / 160).repeat_interleave(2, 1)
    torch.testing.assert_close(drawn(workload).query.rates, expected, rtol=1e-12, atol=0)
    rates = drawn(QubitRelaxation(t1=(50.0, 50.0), t2=(20.0, 20.0))).query.rates[0]
    torch.testing.assert_close(rates, torch.tensor([0.02, 0.05 - 0.01], dtype=torch.float64))


def test_the_settings_of_a_system_are_those_of_its_hamiltonian() -> None:
    transmon = TransmonSpectrum(anharmonicity=-1.5, levels=4).system()
    energies = transmon.parameters["anharmonicity"] * transmon.drift["anharmonicity"].diagonal().real
    assert energies.tolist() == [0, 0, -1.5, -4.5]
    pair = CoupledQubitsRelaxation(coupling=0.3, difference=-0.2).system()
    assert dict(pair.parameters) == {"detuning_1": -0.2, "detuning_2": 0, "coupling": 0.3}


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_thousand_tasks_stay_physical(kind: str) -> None:
    """By `exact`, in fp64, with controls up to the limit and rates up to 10 / duration."""
    workload, generator = WORKLOADS[kind](), torch.Generator().manual_seed(2)
    system = workload.system()

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(1000, *shape, generator=generator, dtype=torch.float64)

    controls = workload.limit * (2 * uniform(20, len(system.controls)) - 1)
    rates = 10 / workload.duration * uniform(len(system.jumps))
    rho = propagator("exact").state(system, Tasks(controls, workload.duration, rates))
    assert rho.shape == (1000, system.dimension, system.dimension)
    assert max(float(each.max()) for each in violations(rho)) < 1e-9
