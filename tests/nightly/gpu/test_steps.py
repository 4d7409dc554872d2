"""Whole training steps on a GPU: nothing in them waits for it, and as CUDA graphs they train the same.

Those of control, whose exact propagator waits for the GPU to choose its degrees, have the CPU's losses and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import pytest
import torch

from benchmarks import steps
from benchmarks.steps import ModelCase
from ketscale.engines.dynamics.propagators import Batched
from ketscale.engines.graphs import NoGraph, captured
from ketscale.parallel.single import Single
from ketscale.problems.control.grape import Grape, TaskPulses
from ketscale.problems.control.meta_learning import Inner, MetaLearning
from ketscale.problems.control.policy import Policy
from ketscale.problems.control.problem import Objective
from ketscale.problems.control.workloads import Adaptation, QubitSpectrum
from ketscale.problems.problem import Problem
from ketscale.spans import Recorder, recording
from ketscale.training.step import Stepper

CELLS = [
    ModelCase("vqc", 4, 64),
    ModelCase("mlp", 0, 64),
    *(ModelCase(name, 0 if kind.classical else 6, 32) for name, kind in steps.ON_TRIALS.items()),
    ModelCase("superposition_transformer", 4, steps.SENTENCES),
]
STEPS = 8
# The same kernels on the same numbers; where a library may choose another algorithm, rounding differs.
TOLERANCE = 1e-5

everywhere = pytest.mark.parametrize("case", CELLS, ids=lambda case: case.model)


def arm(case: ModelCase) -> str:
    """Fused, unless the model has nothing to simulate."""
    return steps.CLASSICAL if steps.MODELS[case.model].classical else "fused"


@contextmanager
def unwaited() -> Iterator[None]:
    """An error where torch would wait for the GPU."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@everywhere
def test_a_step_never_waits_for_the_gpu(case: ModelCase) -> None:
    step = steps.step(case, arm(case), torch.device("cuda", 0))
    for _ in range(3):
        step()
    with unwaited():
        loss = step()
    assert torch.isfinite(loss)


@pytest.mark.gpu
def test_waiting_would_be_noticed() -> None:
    with pytest.raises(RuntimeError, match="synchroniz"), unwaited():
        torch.ones(1, device="cuda").item()


@pytest.mark.gpu
@everywhere
def test_a_captured_step_trains_as_it_does_without_a_graph(
    case: ModelCase, record_property: Callable[..., None]
) -> None:
    here = torch.device("cuda", 0)
    step = steps.step(case, arm(case), here)
    eager = [float(step()) for _ in range(STEPS)]
    repeat = steps.replayable(case, arm(case), here)
    replay = captured(repeat.call, here, None, repeat.before)
    assert not isinstance(replay, NoGraph), replay.reason
    replayed = [float(replay()) for _ in range(STEPS - 3)]  # three steps warmed up
    record_property("eager", eager)
    record_property("replayed", replayed)
    assert replayed == pytest.approx(eager[3:], rel=TOLERANCE)
    assert len(set(replayed)) == len(replayed), "nothing was trained"


def steppers(case: ModelCase) -> tuple[Stepper, Stepper]:
    """One that replays graphs, and one that does not, of equal problems."""
    values = []
    for replays in (True, False):
        problem, protocol = steps.problem_of(case, arm(case), torch.device("cuda", 0))
        world = Single(steps.run_at(case, arm(case), "gpu-n1r1t1"))
        values.append(Stepper(problem, world, protocol, replays=replays))
    return values[0], values[1]


@pytest.mark.gpu
@everywhere
def test_the_trainers_graphs_train_as_it_does_without(
    case: ModelCase, record_property: Callable[..., None]
) -> None:
    """With a smaller batch in between, a sampled step, and a learning rate that falls."""
    actual, expected = steppers(case)
    every, few = torch.arange(case.batch), torch.arange(case.batch // 2)
    losses: list[list[float]] = []
    for stepper in (actual, expected):
        pending = []
        for number in range(20):
            if number == 14:
                stepper.optimiser.learning_rates[0] /= 2
            samples = few if number % 5 == 4 else every
            with recording(Recorder(stepper.world.device) if number == 8 else None):
                sums = stepper.take(samples, number)
            assert (sums.step, sums.count) == (number, len(samples))
            pending.append(stepper.problem.combine(sums.sums, sums.count))
        losses.append([float(loss) for loss in pending])
    # One of 20 steps is sampled; at each learning rate, the first two of either size are no replays.
    assert (actual.replayed, expected.replayed) == (20 - 1 - 2 * 4, 0)
    record_property("bitwise", torch.equal(actual.flat.values, expected.flat.values))
    assert losses[0] == pytest.approx(losses[1], rel=TOLERANCE)
    assert len(set(losses[0])) == len(losses[0]), "nothing was trained"


@pytest.mark.gpu
def test_a_graph_keeps_what_its_call_reads() -> None:
    here = torch.device("cuda", 0)

    def replayed() -> Callable[[], torch.Tensor]:
        values = torch.arange(4096.0, device=here)
        graph = captured(lambda: values.sum(), here, None)
        assert not isinstance(graph, NoGraph)
        return graph

    graph = replayed()
    overwritten = [torch.full((4096,), -1.0, device=here) for _ in range(64)]
    assert float(graph()) == 4096 * 4095 / 2, overwritten[0]


@pytest.mark.gpu
def test_the_trainer_copies_its_batch_without_waiting() -> None:
    """Samplers give indices on the host, unlike those of the steps above."""
    case = ModelCase("vqc", 4, 64)
    take = steps.step_of(case, "fused", torch.device("cuda", 0), samples_on=torch.device("cpu"))
    for number in range(3):
        take(number)
    with unwaited():
        take(3)


def control(model: Adaptation | Literal["grape"]) -> Problem:
    """A policy that is adapted to tasks, or the tasks' own optimum."""
    torch.manual_seed(0)
    workload = QubitSpectrum(detuning=(-2.0, 2.0), validation=2, test=3)
    objective = Objective(workload, Batched(route="torch", strict=False))
    if model == "grape":
        return Grape(TaskPulses(tasks=5, starts=8, segments=4), objective, seed=0, arguments={})
    policy = Policy(
        segments=4, inputs="normalised", low=(0.5, 1e-3, 100.0, -2.0), high=(2.0, 1e-2, 1000.0, 2.0), width=8
    )
    return MetaLearning(policy, objective, model, Inner(2, 0.1), seed=0, arguments={})


@pytest.mark.gpu
@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.float64, 1e-10), (torch.float32, 1e-3)], ids=["fp64", "fp32"]
)
@pytest.mark.parametrize("model", ["fomaml", "maml", "reptile", "multi-task", "grape"])
def test_a_step_of_control_is_the_cpus(
    model: Adaptation | Literal["grape"],
    dtype: torch.dtype,
    tolerance: float,
    record_property: Callable[..., None],
) -> None:
    def results(device: str, dtype: torch.dtype) -> torch.Tensor:
        problem = control(model).convert(torch.device(device), dtype)
        loss = problem.combine(problem(torch.arange(5, device=device), 3), 5)
        gradients = torch.autograd.grad(loss, list(problem.parameters()))
        figures = (loss, *gradients, problem.outputs("test", torch.arange(3)))
        return torch.cat([part.detach().double().cpu().flatten() for part in figures])

    expected, result = results("cpu", torch.float64), results("cuda", dtype)
    error = float((result - expected).norm() / expected.norm())
    record_property("error", error)
    assert error <= tolerance
