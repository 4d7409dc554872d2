"""`ketscale bench table`: one table of `fused` beside its peers at their best, in the cells where users are.

Small batches, one sample of 14 to 23 qubits, a deep circuit, a Hamiltonian of many words, and shots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks import stopwatch
from benchmarks.circuits import (
    EMPTY,
    FLOOR,
    KNOWN,
    QNODE_FLOOR,
    Simulators,
    create,
    distance,
    loss_of,
    times,
    vector,
)  # fmt: skip
from benchmarks.factors import CircuitCase
from benchmarks.options import SECONDS, names, option
from benchmarks.runner import OVER_BUDGET, WRONG, Call, Row, Rows, Untimed, case_of, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ENTANGLED, LAYERS = "strongly_entangling", 3
# The simulators of a group of cells; the first computes in double precision, and all others have to agree with it.
USERS = (
    "default.qubit", "default.qubit-jit", "tensorcircuit", "lightning.qubit-vjp", "qulacs", "pyqtorch", "deepquantum",
    "kronecker", "fused", "fused-jax", "from_qnode", "qnode-fused", "qnode-fused-jit", QNODE_FLOOR, FLOOR,
)  # fmt: skip
SOME = ("qulacs", "lightning.qubit-vjp", "pyqtorch", "default.qubit-jit", "kronecker", "fused")
GROUPS: dict[str, tuple[tuple[CircuitCase, ...], tuple[str, ...]]] = {
    "small": (
        tuple(
            CircuitCase(_ENTANGLED, *size, LAYERS) for size in ((4, 1), (4, 64), (6, 128), (8, 128), (12, 32))
        ),
        USERS,
    ),
    "large": (tuple(CircuitCase(_ENTANGLED, qubits, 1, LAYERS) for qubits in (14, 16, 18, 20, 23)), SOME),
    "deep": ((CircuitCase(_ENTANGLED, 4, 64, 100),), ("default.qubit", *SOME)),
    "words": ((CircuitCase(_ENTANGLED, 8, 32, LAYERS, words=150),), SOME),
    "shots": (
        (CircuitCase(_ENTANGLED, 8, 32, LAYERS, shots=1000),),
        ("qulacs", "qnode-default.qubit", "qnode-lightning.qubit", "qnode-fused", "fused"),
    ),
}
# From these sizes on a simulator takes minutes for its first call, or all of the memory.
MOST_QUBITS = {"tensorcircuit": 8, "pyqtorch": 12, "default.qubit-jit": 14, "kronecker": 20}
MOST_LAYERS = {"default.qubit-jit": LAYERS}
# Their first call is like any other.
UNCOMPILED = ("default.qubit", "lightning.qubit-vjp", "qulacs", "pyqtorch", "deepquantum", "kronecker")
# In single precision; sums over many amplitudes are rounded more.
TOLERANCE = 1e-4
# How far a value of shots may be off, in the largest standard deviation that it can have.
DEVIATIONS = 6

HEADINGS = (
    "qubits x batch", "layers", "words", "shots", "simulator", "mode", "first call, ms", "a call, ms",
    "interquartile range, ms", "calls", "over fused",
)  # fmt: skip

OURS = ("fused", "fused-jax", "from_qnode", "qnode-fused", "qnode-fused-jit")
QNODE = "qnode-fused"


def _sized(case: CircuitCase) -> str:
    more = {"layers": case.layers if case.layers != LAYERS else 0, "words": case.words, "shots": case.shots}
    return ", ".join([f"{case.qubits} x {case.batch}", *(f"{n} {what}" for what, n in more.items() if n)])


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.4g}"


@dataclass(kw_only=True)
class Table(Simulators):
    """The table. A call over the budget is timed once."""

    text = "the table of simulators beside each other, each at its best"
    predicts = False

    cells: tuple[str, ...] = option(tuple(GROUPS), names(GROUPS), "groups of cells")
    budget: float = option(3, SECONDS, "time a longer call once")

    @property
    def names(self) -> tuple[str, ...]:
        """The simulators to time."""
        expected = dict.fromkeys(name for group in self.cells for name in GROUPS[group][1])
        return tuple(name for name in expected if not self.simulators or name in self.simulators)

    def cases(self) -> Iterator[CircuitCase]:
        for group in self.cells:
            yield from GROUPS[group][0]

    def refer_to(self, name: str) -> None:
        """The first simulator of a case is what the others have to agree with."""

    def subjects(self, case: CircuitCase) -> list[str]:
        self._expected: np.ndarray[Any, Any] | None = None
        group = next(able for cells, able in GROUPS.values() if case in cells)
        return [name for name in group if name in self.found and (name != FLOOR or case.batch == 1)]

    def prepare(self, case: CircuitCase, name: str, row: Row) -> Call:
        fits = case.qubits <= MOST_QUBITS.get(name, case.qubits)
        if not fits or case.layers > MOST_LAYERS.get(name, case.layers):
            raise Untimed(
                OVER_BUDGET, "not tried: the first call takes minutes, or the memory of the machine"
            )
        return super().prepare(case, name, row)

    def agree(self, case: CircuitCase, name: str, row: Row, result: Any) -> None:
        """The numbers of the call that is timed: compiling it again for others would take longer than all calls."""
        if name in EMPTY:
            return
        value = vector(result)
        if case.shots:
            loss = loss_of(case._replace(shots=0), np.float64)
            exact = vector(create("kronecker", torch.device("cpu")).prepare(loss)())[0]
            most = np.sqrt((np.abs(loss.coefficients).sum(1) ** 2).sum() / case.shots)
            if not abs(value[0] - exact) <= DEVIATIONS * most:
                raise Untimed(WRONG, f"{value[0]:.4g} of shots, exactly {exact:.4g}")
            return
        if self._expected is None:
            self._expected = value
        error = distance(value, self._expected)
        if not error <= TOLERANCE:
            raise Untimed(WRONG, f"off by {error:.1e} of the norm")

    def calls(self, case: CircuitCase, name: str, row: Row, call: Call) -> dict[str, Call]:
        """The call; one that takes long is timed once."""
        once_s = row["first_s"]
        if name not in UNCOMPILED:
            once_s = stopwatch.once(call)
        if once_s > self.budget:
            row["median_s"], row["repeats"] = once_s, 1
            return {}
        return super().calls(case, name, row, call)

    @classmethod
    def table(cls, rows: Rows) -> list[str]:
        """A row for each case and simulator, in milliseconds, so that the page's table is the measurement's CSV."""
        of_fused = {case: result["fused"] for case, result in times(rows).items() if "fused" in result}
        lines = []
        for row in rows:
            case = case_of(CircuitCase, row)
            numbers = [_milliseconds(row[name]) for name in ("first_s", "median_s", "iqr_s")]
            over = row["median_s"] / of_fused[case] if row["median_s"] and case in of_fused else None
            size = (f"{case.qubits} x {case.batch}", *case[3:])
            ending = (row["repeats"] or row["status"], "" if over is None else f"{over:.3g}")
            lines.append([*size, row["simulator"], row["mode"], *numbers, *ending])
        return markdown_table(HEADINGS, lines)

    @classmethod
    def summary(cls, rows: Rows) -> list[str]:
        """How many times as fast as the fastest peer ours are in each case, and what our device takes above PennyLane."""
        lines = []
        for case, result in times(rows).items():
            peers = [name for name in result if name not in (*OURS, *EMPTY)]
            if peers:
                peer = min(peers, key=result.__getitem__)
                message = [f"{name} {result[peer] / result[name]:.3g}x" for name in OURS if name in result]
                lines.append(f"{_sized(case)}: {', '.join(message)} over {peer} ({KNOWN[peer].mode})")
            if {QNODE, QNODE_FLOOR} <= result.keys():
                above = 1e3 * (result[QNODE] - result[QNODE_FLOOR])
                than = f"{abs(above):.3g} ms {'more' if above > 0 else 'less'} than {QNODE_FLOOR}"
                lines.append(f"{_sized(case)}: {QNODE} takes {than}")
        return lines

    @classmethod
    def draw(cls, result: dict[str, Any]) -> Figure:
        """The time of every simulator in every case."""
        from benchmarks.figures import dots

        return dots(result, _sized)
