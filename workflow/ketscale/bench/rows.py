"""What a benchmark says of a simulator in a cell: a row, with its times or why there are none."""

from __future__ import annotations

from dataclasses import dataclass

from ketscale.bench.selection import Cell

TIMED, WRONG, OVER_BUDGET = "timed", "parity failed", "over budget"
FAILED, MISSING, OUT_OF_MEMORY = "failed", "not installed", "out of memory"


@dataclass(frozen=True)
class CircuitRow:
    """A simulator in a cell of `ketscale bench simulators`. Times are of one call: loss and gradients of the whole batch.

    reason: why it was not timed.
    first_s: the first call in this process, compiling included.
    median_s, iqr_s: of the later calls, median and interquartile range over `repeats`.
    gflops, fraction: `literal_flops` per second, and as a share of the matrix product rate in the same cell.
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
    gflops: float | None = None
    fraction: float | None = None

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
    peak_bytes: what two steps need beyond what the process had before.
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
    peak_bytes: int | None = None
    projected_from: int | None = None
    spans: dict[str, float] | None = None
