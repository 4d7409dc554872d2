"""The workloads of `control`: their tasks, their settings, and the same losses by every propagator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import astuple

from ketscale import analysis
from ketscale.config import Data
from ketscale.dynamics import violations
from ketscale.engines.dynamics.propagators import propagator
from ketscale.engines.dynamics.tasks import Tasks
from ketscale.errors import UserError
from ketscale.problems import library
from ketscale.problems.control.problem import Distribution, Objective
from ketscale.problems.control.specification import FAMILY, WORKLOADS
from ketscale.problems.control.workloads import QubitSpectrum
from tests.tiny_study import TINY
from tests.tiny_study import config as tiny_config
from tests.unit.engines.dynamics.test_dynamics import by_qutip

NUMBERS = torch.arange(2000)


def tasks_of(workload: Any, split: str = "test") -> Any:
    return Distribution(workload).fixed(split, NUMBERS, torch.float64)


@pytest.mark.parametrize("kind", WORKLOADS)
def test_values_fill_their_ranges_and_environments_are_possible(kind: str) -> None:
    workload = WORKLOADS[kind]()
    tasks = tasks_of(workload)
    low, high = (torch.tensor([getattr(each, end) for each in workload.varied]) for end in ("low", "high"))
    assert ((tasks.inputs >= low) & (tasks.inputs <= high)).all()
    assert (tasks.inputs.amax(0) - tasks.inputs.amin(0) > 0.99 * (high - low)).all()
    system = workload.system()
    environment = tasks.environment
    assert environment.rates.shape == (2000, len(system.jumps)) and (environment.rates >= 0).all()
    assert environment.parameters.shape == (2000, len(system.drift))
    defaults = torch.tensor(list(system.parameters.values()), dtype=torch.float64)
    defaults[0] += workload.detuning[0]
    torch.testing.assert_close(environment.parameters, defaults.expand(2000, -1))


def test_a_policy_starts_from_the_same_weights_with_any_number_of_threads() -> None:
    before, result = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        result.append(library.construct("policy").state_dict())
    torch.set_num_threads(before)
    assert all((result[0][name] == result[1][name]).all() for name in result[0])


@pytest.mark.parametrize("kind", ["policy", "robust_grape", "grape"])
def test_controls_are_clamped_to_the_limit(kind: str) -> None:
    model = library.construct(kind, amplitude=1e6, limit=3.0)
    controls = model(torch.tensor([0]) if kind == "grape" else torch.rand(1, 3))
    assert controls.shape == ((1, 8, 20, 2) if kind == "grape" else (1, 20, 2))
    assert (controls.abs() <= 3).all() and (controls.abs() == 3).any()


def test_splits_and_seeds_have_tasks_of_their_own() -> None:
    sets = [tasks_of(QubitSpectrum(), split) for split in ("validation", "test")]
    sets.append(tasks_of(QubitSpectrum(seed=1)))
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
    result = tiny_config(
        {
            "workloads": {"w": {"kind": "qubit-spectrum", **workload}},
            "models": {"m": model or {"kind": "policy"}},
            "simulators": {
                "exact": {"device": "exact"},
                "rk4": {"device": "rk4", "dt": 0.3, "tolerance": 1e-9},
                "loop": {"device": "rk4", "batching": "loop", "dt": 0.2, "tolerance": 1e-2, "cache": True},
            },
            "axes": {**TINY["control"]["axes"], "workload": "w", "model": "m"},
        }
    )
    study = result["studies"]["accuracy"]
    study["axes"] |= axes
    quality = result["protocols"]["quality"] | (protocol or {})
    return {**result, "protocols": {"quality": quality}, "studies": {"accuracy": study}}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"workload": {"alpha": [2.0, 0.5]}}, "workloads.w.alpha"),
        ({"workload": {"amplitude": 10.5}}, "workloads.w.amplitude"),
        ({"workload": {"kind": "qubit-relaxation", "t2": [10, 50]}}, "workloads.w.t2"),
        ({"workload": {}, "qubits": 2}, "accuracy: .* qubits: 1"),
        ({"workload": {}, "protocol": {"precision": "amp"}, "backend": "gpu-n1r1t1"}, "precision: amp"),
        ({"workload": {"alpha": [1.0, 1.0], "strength": [1e-3, 1e-3], "cutoff": [100.0, 100.0]}}, "accuracy: workload w "),
        ({"workload": {}, "model": {"kind": "grape", "starts": 4}}, "models.m.starts"),
        ({"workload": {}, "protocol": {"optimiser": "l-bfgs"}}, "optimiser: l-bfgs"),
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
    for kind in WORKLOADS:
        for model in FAMILY.models:
            analysis.of(tiny({"kind": kind}, {"kind": model}, batch=200))


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
    result = Objective(workload, propagator("exact")).overlaps(controls, environment)
    assert result.item() == pytest.approx(expected, abs=1e-9)


def evolved(workload: Any, test: int = 1) -> tuple[Any, Any, Any]:
    """A task's environment, strong controls, and what QuTiP makes of an operator on the system."""
    system = workload.system()
    environment = Distribution(workload).fixed("test", torch.arange(test), torch.float64).environment
    generator = torch.Generator().manual_seed(1)
    controls = workload.limit * (
        2 * torch.rand(test, 5, len(system.controls), generator=generator, dtype=torch.float64) - 1
    )

    def by_theirs(operator: Any) -> Any:
        initial = torch.as_tensor(operator, dtype=torch.complex128)[None]
        return by_qutip(system, Tasks(controls, workload.duration, *environment, initial), 0)

    return environment, controls, by_theirs


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
