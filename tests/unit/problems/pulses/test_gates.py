"""The gates of `pulses`: losses and gradients, settings, what is kept, and what cannot be."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pennylane as qml
import pytest
import torch
from msgspec.structs import astuple

from ketscale import analysis
from ketscale.config import Data
from ketscale.dynamics import evolve
from ketscale.engines.pulses.integrators import step_count
from ketscale.errors import UserError
from ketscale.problems import library, models
from ketscale.problems.pulses.gate import GateProblem
from ketscale.problems.pulses.shapes import PulseModel
from ketscale.problems.pulses.specification import build
from tests.tiny_study import TINY
from tests.tiny_study import config as tiny_config

ALL = ["amplitude", "frequency", "phase", "length", "device"]
CNOT = {"gate": "cnot", "length": 20.0}


def tiny(
    workload: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    simulator: dict[str, Any] | None = None,
    protocol: dict[str, Any] | None = None,
    **axes: Any,
) -> dict[str, Any]:
    """A config of one study whose workload w, model m, simulator s, protocol and axes have these settings."""
    result = tiny_config(
        {
            "precision": "fp64",
            "workloads": {"w": {"kind": "fluxonium-chain", "length": 10.0, **(workload or {})}},
            "models": {"m": {"kind": "cosine_pulse", **(model or {})}},
            "simulators": {
                "s": {"device": "interaction4", "dt": 0.1, "tolerance": 1e-6, **(simulator or {})}
            },
            "axes": {**TINY["pulses"]["axes"], "workload": "w", "model": "m"},
        }
    )
    study = result["studies"]["accuracy"]
    study["axes"] |= axes
    quality = result["protocols"]["quality"] | (protocol or {})
    return {**result, "protocols": {"quality": quality}, "studies": {"accuracy": study}}


def built(**changes: Any) -> GateProblem:
    config = analysis.of(tiny(**changes))
    problem = build(config.settings(config.runs[0]), Data(), torch.device("cpu"))
    assert isinstance(problem, GateProblem)
    return problem


def loss(problem: GateProblem) -> torch.Tensor:
    indices = torch.arange(len(problem.get_buffer("columns")))
    total, penalty = problem.combine(problem(indices, 0), len(indices)), problem.penalty()
    return total if penalty is None else total + penalty


def perturbed(problem: GateProblem, scale: float = 0.02) -> GateProblem:
    """With random changes of all parameters that are trained."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in problem.parameters():
            if parameter.requires_grad:
                parameter += scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return problem


@pytest.mark.parametrize(
    ("simulator", "evolved"),
    [
        ({"dt": 0.15}, ("chain", "interaction4", "compiled", 4, 67)),
        ({"route": "torch"}, ("chain", "interaction4", "torch", 4, 100)),
        ({"device": "whole-space"}, ("dense", "whole-space", "table", 4, 100)),
    ],
)
def test_the_record_says_what_evolved_the_columns(
    simulator: dict[str, Any], evolved: tuple[Any, ...]
) -> None:
    problem = built(simulator=simulator)
    assert astuple(problem.evolution()) == evolved
    with torch.no_grad():
        problem.model.length.fill_(torch.nan)
    assert astuple(problem.evolution()) == (*evolved[:4], None)


CASES: list[dict[str, Any]] = [
    {},
    {"workload": {"virtual_z": False, "frame": "laboratory"}, "levels": 3},
    {"workload": {"gate": "hadamard"}, "model": {"kind": "piecewise_pulse", "segments": 4}},
    {"workload": CNOT, "levels": 3},
    {"workload": {**CNOT, "pairs": [[1, 0]], "virtual_z": False}, "model": {"kind": "piecewise_pulse", "segments": 5}},
    {"workload": {"target": "state"}, "batch": 1, "levels": 3},
    {"workload": {**CNOT, "gate": "iswap", "pairs": [[1, 0]]}},
    {"workload": {"kind": "transmon-chain", "frame": "laboratory"}, "levels": 3},
    {"workload": {"kind": "fluxonium-lattice", "block": [2, 1], "gate": "hadamard", "length": 15.0}},
]  # fmt: skip


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ({"gate": "sqrt_iswap", "pairs": [[2, 1]]}, lambda: qml.matrix(qml.SISWAP([2, 1]), wire_order=range(3))),
        ({"gate": "sqrt_x"}, lambda: qml.matrix(qml.prod(*(qml.SX(wire) for wire in range(3))))),
    ],
)  # fmt: skip
def test_targets_are_the_gates_of_the_settings(workload: dict[str, Any], expected: Any) -> None:
    problem = built(workload={"length": 20.0, **workload}, **CHAIN3)
    np.testing.assert_allclose(problem.get_buffer("target").T, expected(), atol=1e-15)


@pytest.mark.parametrize(
    ("workload", "sites", "length"),
    [
        ({"gate": "cz", "pairs": [[1, 0]]}, (1, 0), 100.0),
        ({"gate": "sqrt_x"}, (0, 1), 50.0),
    ],
)
def test_a_gate_on_pairs_begins_with_longer_pulses_on_their_qubits(
    workload: dict[str, Any], sites: tuple[int, ...], length: float
) -> None:
    result = tiny(workload=workload)
    del result["workloads"]["w"]["length"]
    config = analysis.of(result)
    model = build(config.settings(config.runs[0]), Data(), torch.device("cpu")).model
    assert isinstance(model, PulseModel)
    assert (model.sites, model.usual_length) == (sites, length)


@pytest.mark.parametrize("case", CASES)
def test_the_loss_is_that_of_dense_exponentials(case: dict[str, Any]) -> None:
    problem = perturbed(built(**case, simulator={"dt": 0.02}))
    with torch.no_grad():
        result, (system, frame), pulses = loss(problem), problem.physics(), problem.model()
        initial, target = frame.states[:, problem.get_buffer("columns")], problem.get_buffer("target")
        final = evolve(system, pulses, kind="unitary", initial=initial, dt=0.02, method="whole-space").T
        turns = torch.exp(1j * frame.energies * pulses.duration)
        rows = (target.conj() * (final @ frame.states.conj()) * turns).sum(0)
        if problem.workload.virtual_z:
            # All Z rotations of two qubits: a common phase does not matter, so they are maximised over a grid, twice.
            rows = rows.reshape(2, 2)
            centre, width, best = (0.0, 0.0), math.pi, 0.0
            for _ in range(6):
                angles = [c + width * torch.linspace(-1, 1, 201, dtype=torch.float64) for c in centre]
                one, other = (torch.stack([torch.ones_like(a), torch.exp(1j * a)]) for a in angles)
                values = torch.einsum("ax,ab,by->xy", one, rows, other).abs().square()
                x, y = divmod(int(values.argmax()), 201)
                centre, width, best = (
                    (float(angles[0][x]), float(angles[1][y])),
                    width / 50,
                    float(values.max()),
                )
        else:
            best = float(rows.sum().abs().square())
    assert result.item() == pytest.approx(1 - best / initial.shape[1] ** 2, abs=1e-7)


@pytest.mark.parametrize("case", [CASES[number] for number in (0, 1, 4, 5, 7, 8)])
def test_gradients_by_everything_are_those_of_finite_differences(case: dict[str, Any]) -> None:
    bounds = {"length_bounds": [case.get("workload", {}).get("length", 10.0)] * 2}
    model = {**case.get("model", {}), "trains": ALL}
    problem = perturbed(built(**{**case, "workload": {**case.get("workload", {}), **bounds}, "model": model}))
    assert_slopes(problem, problem.named_parameters())


def assert_slopes(problem: GateProblem, parameters: Iterable[tuple[str, torch.nn.Parameter]]) -> None:
    """Compare the gradients by these parameters with finite differences in a random direction."""
    loss(problem).backward()
    generator = torch.Generator().manual_seed(1)
    for name, parameter in parameters:
        way = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        values, start, h = [], parameter.detach().clone(), 1e-5
        with torch.no_grad():
            for sign in (1, -1):
                parameter.copy_(start + sign * h * way)
                values.append(loss(problem).item())
            parameter.copy_(start)
        slope = (parameter.grad * way).sum().item() if parameter.grad is not None else math.nan
        assert slope == pytest.approx((values[0] - values[1]) / (2 * h), rel=1e-5, abs=1e-6), name


def test_two_shards_have_the_sums_and_gradients_of_all_columns() -> None:
    problem = perturbed(built(**{**CASES[4], "model": {**CASES[4]["model"], "trains": ALL}}))
    complete = problem(torch.arange(4), 0)
    parts = problem(torch.tensor([3, 0, 1]), 0) + problem(torch.tensor([2]), 0) + problem(torch.arange(0), 0)
    torch.testing.assert_close(parts, complete, rtol=0, atol=1e-12)
    parameters = list(problem.parameters())
    actual, peer = (torch.autograd.grad(problem.combine(sums, 4), parameters) for sums in (complete, parts))
    torch.testing.assert_close(peer, actual, rtol=1e-9, atol=1e-12)


def test_the_penalty_is_what_is_out_of_bounds() -> None:
    problem = built(workload={"length_bounds": [10.0, 12.0]})
    assert problem.penalty() == 0
    with torch.no_grad():
        problem.model.length.copy_(torch.tensor([math.log(1.5), 0.0]))
    penalty = problem.penalty()
    assert penalty is not None and penalty.item() == pytest.approx((15 / 12 - 1) ** 2)
    assert built().penalty() is None


def test_starts_depend_on_the_seed_and_only_on_it() -> None:
    first, repeat, other = (built(seed=seed).model.state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], repeat[name]) for name in first)
    for name in ("amplitude", "frequency", "phase"):
        assert (first[name] != other[name]).all()
    assert 0.001 < first["phase"].abs().max() < 0.1
    fixed = built(model={"trains": ["phase"]}).model
    assert (fixed.amplitude == 0).all() and (fixed.phase != 0).all()


def test_the_error_is_of_the_integrator_alone_and_falls_with_its_step() -> None:
    def error(dt: float, seed: int) -> float:
        problem = perturbed(built(simulator={"dt": dt}, seed=seed), 0.3 * seed)
        return float(
            problem.metrics("test", problem.outputs("test", torch.arange(4)), full=True)["simulator_error"]
        )

    coarse = error(0.5, 0)
    assert coarse == error(0.5, 1)
    assert 1e-12 < error(0.25, 0) < coarse / 8


@pytest.mark.parametrize("segments", [10, 2000])
def test_no_integrator_is_its_own_reference(segments: int) -> None:
    problem = built(model={"kind": "piecewise_pulse", "segments": segments}, simulator={"dt": 0.01})
    metrics = problem.metrics("test", problem.outputs("test", torch.arange(4)), full=True)
    assert 0 < metrics["simulator_error"] < 1e-9


def test_steps_are_never_longer_than_dt() -> None:
    problem = built(simulator={"dt": 0.1})
    for duration, steps in ((10.0, 100), (10.0 * (1 + 1e-12), 100), (10.01, 101), (35.0, 350)):
        torch.nn.init.constant_(problem.model.length, math.log(duration / 10))
        assert step_count(problem.model(), 0.1) == steps


def test_leakage_is_what_leaves_the_qubits() -> None:
    def leakage(levels: int, amplitude: float) -> float:
        problem = built(levels=levels, workload={"frame": "laboratory"})
        torch.nn.init.constant_(problem.model.amplitude, amplitude)
        outputs = problem.outputs("validation", torch.arange(4))
        metrics = float(problem.metrics("validation", outputs, full=True)["leakage"])
        assert metrics == pytest.approx(1 - outputs.square().sum().item() / 4, abs=1e-9)
        return metrics

    assert abs(leakage(2, 10.0)) < 1e-9
    assert leakage(4, 10.0) > 5 * leakage(4, 0.0) > 0


def test_a_kept_model_makes_the_same_pulses(tmp_path: Path) -> None:
    config = analysis.of(tiny(workload={"kind": "transmon-chain"}, model={"trains": ALL}, levels=3))
    settings = config.settings(config.runs[0])
    problem = perturbed(build(settings, Data(), torch.device("cpu")))  # type: ignore[arg-type]
    (tmp_path / models.WEIGHTS).write_bytes(models.saved(settings, problem))
    loaded = library.load(tmp_path).module
    assert isinstance(loaded, PulseModel)
    times = torch.linspace(0, 10, 50, dtype=torch.float64)
    assert torch.equal(loaded().sample(times), problem.model().sample(times))  # type: ignore[operator]
    assert torch.equal(loaded.device().capacitive, problem.model.device().capacitive)  # type: ignore[operator,union-attr]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("amplitude", math.nan),
        ("length", -1e4),
        ("device.charging", -2.0),
        ("device.capacitive_coupling", -1e4),
        ("device.flux", math.inf),
    ],
)
def test_what_training_drives_out_has_a_loss_that_is_not_a_number(name: str, value: float) -> None:
    """And no error: a training that diverges is a result."""
    problem = built(model={"trains": ALL}, workload={"length_bounds": [1.0, 20.0]})
    torch.nn.init.constant_(problem.model.get_parameter(name), value)
    assert loss(problem).isnan()
    outputs = problem.outputs("validation", torch.arange(4))
    assert outputs.isnan().all()
    assert math.isnan(problem.metrics("validation", outputs, full=False)["loss"])


CHAIN3 = {"qubits": 3, "batch": 8}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"levels": 11}, "accuracy: levels: 11"),
        ({"workload": {"target": "state"}}, "accuracy: .* batch 1"),
        ({"protocol": {"precision": "fp32"}}, "precision: fp32"),
        ({"simulator": {"dt": 1e-9}}, "dt: "),
        ({"simulator": {"route": "compiled"}, "backend": "gpu-n1r1t1"}, "route: compiled"),
        ({"workload": {"pairs": [[1, 0]]}}, "workloads.w.pairs"),
        ({"workload": {**CNOT, "pairs": [[0, 2]]}}, "pairs: "),
        ({"workload": {**CNOT, "pairs": [[0, 2]]}, **CHAIN3}, "pairs: 0 and 2 "),
        ({"qubits": 6, "levels": 5, "batch": 64}, "frame: 15625 product states"),
        ({"workload": {"length_bounds": [50.0, 40.0]}}, "w.length_bounds"),
    ],
)  # fmt: skip
def test_bad_settings_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        built(**changes)
