"""Which training steps a GPU may repeat as CUDA graphs; that they train the same is tested on one (tests/nightly/gpu/test_steps.py)."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import steps
from benchmarks.steps import ModelCase
from ketscale.config.circuits import CircuitSimulator
from ketscale.engines.graphs import NoGraph
from ketscale.parallel.single import Single
from ketscale.problems.vectors.vqc import VQC
from ketscale.simulators.factory import build_simulator
from ketscale.spans import Recorder, recording
from ketscale.training import replayed
from ketscale.training.replayed import Replayed, may_replay
from ketscale.training.step import Stepper
from tests.nightly.gpu.test_steps import CELLS, arm
from tests.toys import protocol_of, run_at, trainer
from tests.unit.training.test_direct import problem_of

CPU = torch.device("cpu")


@pytest.mark.parametrize("case", CELLS, ids=lambda case: case.model)
def test_models_of_ours_may_with_fused_or_without_circuits(case: ModelCase) -> None:
    assert steps.problem_of(case, arm(case), CPU)[0].replays


@pytest.mark.parametrize(
    "model, simulator", [("vqc", "default.qubit"), ("superposition_transformer", "closed-form")]
)
def test_what_copies_from_the_host_may_not(model: str, simulator: str) -> None:
    assert not steps.problem_of(ModelCase(model, 4, 8), simulator, CPU)[0].replays


def vqc(**settings: Any) -> VQC:
    defaults = {"device": "fused", "gradient": "adjoint", "batching": "broadcast", "placement": "model"}
    simulator = build_simulator("s", CircuitSimulator(**{**defaults, **settings}), torch.device("cuda"))
    return VQC(qubits=3, layers=1, inputs=12, outputs=3, simulator=simulator)


def test_circuits_may_where_the_model_is() -> None:
    assert problem_of(vqc()).replays
    for settings in ({"placement": "cpu"}, {"batching": "loop"}):
        assert not problem_of(vqc(**settings)).replays


def test_what_may_do_anything_may_not() -> None:
    """A model of one's own, a backbone, a hook."""
    assert not problem_of(nn.Sequential(type("Own", (nn.Linear,), {})(12, 3))).replays
    problem = problem_of(nn.Sequential(nn.Linear(12, 3)))
    assert problem.replays
    problem.backbone = nn.Identity()
    assert not problem.replays
    hooked = problem_of("vqc")
    assert may_replay(hooked)
    hooked.model.register_forward_hook(lambda *_: None)
    assert not may_replay(hooked)


class NoStream:
    """In the place of a stream, of which a CPU has none."""

    def wait_stream(self, other: object) -> None: ...


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is captured, each a call that its replay makes again, on a GPU of ten bytes of which a step takes two."""
    values: list[Any] = []

    def captured(call: Any, *_: Any, **__: Any) -> Any:
        values.append(call)
        return call

    monkeypatch.setattr(replayed, "captured", captured)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: NoStream())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: NoStream())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    for name, result in (("mem_get_info", (6, 10)), ("memory_reserved", 4), ("max_memory_allocated", 2)):
        monkeypatch.setattr(torch.cuda, name, lambda device, result=result: result)
    return values


def replaying(stepper: Stepper) -> Stepper:
    """Its steps go through `Replayed`, on a CPU."""
    stepper._graphs = Replayed(stepper._take, lambda: stepper.optimiser.learning_rates, CPU)
    return stepper


def steppers() -> tuple[Stepper, Stepper]:
    """One whose steps are replayed, and one that takes them itself."""
    world, protocol = Single(run_at("cpu-n1r1t1")), protocol_of({"steps": 99})
    actual, expected = (Stepper(problem_of("vqc").train(), world, protocol) for _ in range(2))
    return replaying(actual), expected


def both(actual: Stepper, expected: Stepper, number: int, samples: int = 8) -> None:
    """A step of both, which has the same sums and leaves the same weights."""
    indices = torch.arange(samples)
    mine, other = actual.take(indices, number), expected.take(indices, number)
    assert torch.equal(mine.sums, other.sums) and torch.equal(mine.norm, other.norm)
    assert (mine.step, mine.count) == (number, samples)
    assert torch.equal(actual.flat.values, expected.flat.values)


def test_each_size_of_batch_and_learning_rate_has_a_graph_of_its_own(graphs: list[Any]) -> None:
    actual, expected = steppers()
    values = []
    for number in range(12):
        if number == 9:
            for stepper in (actual, expected):
                stepper.optimiser.learning_rates[0] /= 2
        both(actual, expected, number, samples=5 if 4 <= number < 8 else 8)
        values.append((len(graphs), actual.replayed))
    assert [values[number] for number in (3, 7, 8, 11)] == [(1, 2), (2, 4), (2, 5), (3, 6)]


def test_a_sampled_step_is_no_replay(graphs: list[Any]) -> None:
    actual, expected = steppers()
    for number in range(4):
        with recording(Recorder(CPU) if number == 3 else None):
            both(actual, expected, number)
    assert actual.replayed == 1


@pytest.mark.parametrize("why", ["it cannot be captured", "memory"])
def test_what_cannot_be_captured_is_said_once_and_trains(
    why: str, graphs: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if why == "memory":
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 6)
    else:
        monkeypatch.setattr(replayed, "captured", lambda *_, **__: NoGraph(why))
    actual, expected = steppers()
    for number in range(6):
        both(actual, expected, number)
    assert actual.replayed == 0 and not graphs
    (record,) = caplog.records
    assert why in record.getMessage()


def test_the_memory_of_other_graphs_counts(graphs: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of four of ten bytes: one graph and a sampled step fit, a second graph does not."""
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 4)
    actual, expected = steppers()
    for number in range(8):
        both(actual, expected, number, samples=8 - 3 * (number % 2))
    assert (len(graphs), actual.replayed) == (1, 2)


@pytest.mark.parametrize(("steps_", "steady", "replays"), [(9, 6, 7), (3, 0, 1)])
def test_a_step_that_prepares_a_graph_has_no_steady_time(
    steps_: int, steady: int, replays: int, graphs: list[Any]
) -> None:
    """The first two steps come before the graph and the third captures it; none of these is steady."""
    trained = trainer(problem_of("vqc"), {"steps": steps_}, batch=8)
    stepper = replaying(trained.stepper)
    trained.run()
    assert (len(trained.clock.steady_s), stepper.replayed) == (steady, replays)
