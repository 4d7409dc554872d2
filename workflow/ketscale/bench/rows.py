"""What a benchmark says of a simulator in a cell: a row, with its times or why there are none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ketscale.bench.selection import Cell

TIMED, WRONG, OVER_BUDGET = "timed", "parity failed", "over budget"
FAILED, MISSING, OUT_OF_MEMORY = "failed", "not installed", "out of memory"
# What errors for lack of a GPU's memory say, in torch and in JAX.
NO_MEMORY = ("CUDA out of memory", "RESOURCE_EXHAUSTED", "CUDA error: out of memory")


def failure(error: Exception) -> tuple[str, str]:
    """Status and reason of a simulator that raised an error."""
    reason = f"{type(error).__name__}: {error}"[:200]
    return (OUT_OF_MEMORY if any(words in reason for words in NO_MEMORY) else FAILED), reason


def best_s(row: Mapping[str, Any]) -> float | None:
    """The median seconds of a row's calls or, where it is shorter, of their graph's replays."""
    found = [s for s in (row["median_s"], row.get("graph_median_s")) if s is not None]
    return min(found, default=None)


@dataclass(frozen=True)
class CircuitRow:
    """A simulator in a cell of `ketscale bench simulators`. Times are of one call: loss and gradients of the whole batch.

    reason: why it was not timed.
    first_s: the first call in this process, compiling included.
    median_s, iqr_s: of the later calls, median and interquartile range over `repeats`.
    graph_median_s, graph_iqr_s: of replays of the call as a CUDA graph.
    graph_reason: why there is no graph, on a GPU.
    gflops, fraction: `literal_flops` per second, and as a share of what the device can do at best, measured in the
        same cell: matrix products on a CPU, multiply-adds without tensor cores on a GPU. Of the shorter time.
    peak_bytes: what a call takes of a GPU's memory, in torch.
    moved_bytes, gbs, copy_fraction: of fused on a GPU, the least that has to pass through its memory, per second of
        the shorter time, and as a share of the copy bandwidth.
    """

    simulator: str
    ansatz: str
    layers: int
    qubits: int
    batch: int
    status: str
    reason: str | None = None
    first_s: float | None = None
    median_s: float | None = None
    iqr_s: float | None = None
    repeats: int | None = None
    graph_median_s: float | None = None
    graph_iqr_s: float | None = None
    graph_reason: str | None = None
    gflops: float | None = None
    fraction: float | None = None
    peak_bytes: int | None = None
    moved_bytes: int | None = None
    gbs: float | None = None
    copy_fraction: float | None = None

    @property
    def cell(self) -> Cell:
        """The cell that this row belongs to."""
        return Cell(self.ansatz, self.qubits, self.batch, self.layers)


@dataclass(frozen=True)
class ModelRow:
    """A simulator in a cell of `ketscale bench models`. Times are of one training step.

    reason: why it was not timed.
    first_s: the first step in this process, compiling included; where one is projected, the first evaluation.
    median_s, iqr_s: of the later steps, median and interquartile range over `repeats`.
    graph_median_s, graph_iqr_s: of replays of a whole step as a CUDA graph.
    graph_reason: why there is no graph, on a GPU.
    peak_bytes: what two steps need beyond what the process had before; of a GPU's memory, what one step needs
        beyond data, parameters and the optimiser's state.
    operand_bytes: what torch's own operators read and write in a step; not what compiled code (circuits, layers, loss,
        clipping, optimiser) and other libraries do, so simulators cannot be compared by it.
    projected_from: how many equal evaluations a step is made of, where one of them was timed and multiplied; None
        where a step was timed.
    spans: exclusive seconds of a step by span, of further steps.
    """

    model: str
    qubits: int
    batch: int
    simulator: str
    status: str
    reason: str | None = None
    first_s: float | None = None
    median_s: float | None = None
    iqr_s: float | None = None
    repeats: int | None = None
    graph_median_s: float | None = None
    graph_iqr_s: float | None = None
    graph_reason: str | None = None
    peak_bytes: int | None = None
    operand_bytes: int | None = None
    projected_from: int | None = None
    spans: dict[str, float] | None = None
