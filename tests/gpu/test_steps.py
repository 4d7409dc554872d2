"""Whole training steps on a GPU: nothing in them waits for it, and as CUDA graphs they train the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from ketscale.bench import steps
from ketscale.bench.captured import Refused, captured
from ketscale.bench.steps import ModelCell

CELLS = [
    ModelCell("vqc", 4, 64),
    ModelCell("mlp", 0, 64),
    *(ModelCell(name, 0 if kind.classical else 6, 32) for name, kind in steps.ON_TRIALS.items()),
    ModelCell("superposition_transformer", 4, steps.SENTENCES),
]
STEPS = 8
# The same kernels on the same numbers; where a library may choose another algorithm, rounding differs.
TOLERANCE = 1e-5

everywhere = pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.model)


def arm(cell: ModelCell) -> str:
    """Fused, unless the model has nothing to simulate."""
    return steps.CLASSICAL if steps.MODELS[cell.model].classical else "fused"


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
def test_a_step_never_waits_for_the_gpu(cell: ModelCell) -> None:
    step = steps.step(cell, arm(cell), torch.device("cuda", 0))
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
    cell: ModelCell, record_property: Callable[..., None]
) -> None:
    here = torch.device("cuda", 0)
    step = steps.step(cell, arm(cell), here)
    eager = [float(step()) for _ in range(STEPS)]
    again = steps.replayable(cell, arm(cell), here)
    replay = captured(again.call, here, None, again.before)
    assert not isinstance(replay, Refused), replay.reason
    replayed = [float(replay()) for _ in range(STEPS - 3)]  # three steps warmed up
    record_property("eager", eager)
    record_property("replayed", replayed)
    assert replayed == pytest.approx(eager[3:], rel=TOLERANCE)
    assert len(set(replayed)) == len(replayed), "nothing was trained"


@pytest.mark.gpu
def test_the_trainer_copies_its_batch_without_waiting() -> None:
    """Samplers give indices on the host, unlike those of the steps above."""
    cell = ModelCell("vqc", 4, 64)
    take = steps.taken(cell, "fused", torch.device("cuda", 0), samples_on=torch.device("cpu"))
    for number in range(3):
        take(number)
    with unwaited():
        take(3)
