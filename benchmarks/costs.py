"""`ketscale bench costs`: what `ketscale.dynamics.evolve` takes, by levels, qubits, segments and tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, NamedTuple

import torch

from benchmarks.gates import DURATION_NS, chain_of, controls_of
from benchmarks.options import SECONDS, names, number, numbers, option
from benchmarks.runner import OVER_BUDGET, Benchmark, Call, Row, Rows, Untimed, markdown_table
from ketscale import dynamics as kd
from ketscale.words import counted, duration

# What is evolved, and the most states of it.
Kind = Literal["ket", "unitary", "density"]
LARGEST: dict[Kind, int] = {"ket": 4096, "unitary": 256, "density": 64}
# Qubits and levels.
SYSTEMS = (
    *((1, levels) for levels in (2, 3, 4, 5, 6)),
    *((2, levels) for levels in (2, 3, 4, 6)),
    *((qubits, 2) for qubits in (3, 4, 6, 8, 10, 12)),
)
T1_NS, T2_NS = 30e3, 20e3
# Shorter calls say nothing about longer ones, and a single task may take as long as a vector of tasks.
TELLING_S, LANES = 0.02, 8
# The page has these systems at this length, or the longest below that was timed.
SHOWN, SHOWN_SEGMENTS = ((1, 3), (2, 3), (4, 2), (6, 2), (8, 2)), 100


class CostsCase(NamedTuple):
    """A number of pulses on one chain."""

    evolves: Kind
    qubits: int
    levels: int
    segments: int
    batch: int

    def __str__(self) -> str:
        return f"{self.evolves} {self.qubits}q d{self.levels} {self.segments} segments x {self.batch}"


@dataclass(kw_only=True)
class Costs(Benchmark):
    """Times are of all pulses: 1 - fidelity with X on all qubits, and the gradient by the controls, in double precision."""

    text = "value and gradient of dynamics: cost by levels, qubits, segments and tasks"
    case = CostsCase
    # The first call of a precision may wait for the compiler.
    first_counts = False

    evolves: tuple[Kind, ...] = option(tuple(LARGEST), names(LARGEST), "what is evolved")
    states: int = option(max(LARGEST.values()), number(2), "states of the largest system")
    segments: tuple[int, ...] = option((10, 100, 1000, 2000), numbers(1), "segments of every pulse")
    batch: tuple[int, ...] = option((1, 64, 4096), numbers(1), "numbers of pulses")
    budget: float = option(
        1, SECONDS, "skip what would take longer than in proportion to shorter or fewer pulses"
    )

    def cases(self) -> Iterator[CostsCase]:
        for kind, (qubits, levels) in product(self.evolves, SYSTEMS):
            if levels**qubits <= min(self.states, LARGEST[kind]):
                for segments, batch in product(self.segments, self.batch):
                    yield CostsCase(kind, qubits, levels, segments, batch)

    def open(self) -> None:
        """Nothing is known yet."""
        self.found = {"evolve": None}
        self._each_s: dict[tuple[Any, ...], float] = {}

    def prepare(self, case: CostsCase, name: str, row: Row) -> Call:
        expected = _work(case) * self._each_s.get(case[:3], 0.0)
        if expected > self.budget:
            raise Untimed(OVER_BUDGET, f"expected {expected:.3g} s")
        return call_of(case)

    def finish(self, case: CostsCase, rows: Any, calls: Any, rate: float | None) -> None:
        """Keep the least seconds of a segment."""
        seconds = rows["evolve"]["median_s"] or 0.0
        if seconds > TELLING_S:
            each = seconds / _work(case)
            self._each_s[case[:3]] = min(each, self._each_s.get(case[:3], each))

    @classmethod
    def table(cls, rows: Rows) -> list[str]:
        """A row for each system and length, a column for each number of tasks: the median, and the interquartile range."""
        batches = sorted({row["batch"] for row in rows})
        cells: dict[tuple[Any, ...], dict[int, str]] = {}
        for row in rows:
            timed = row["median_s"] is not None
            message = f"{duration(row['median_s'])} ({duration(row['iqr_s'], 2)})" if timed else row["status"]
            cells.setdefault(tuple(row[name] for name in CostsCase._fields[:-1]), {})[row["batch"]] = message
        heading = [*CostsCase._fields[:-1], *(f"{counted(batch, 'task')} (range)" for batch in batches)]
        return markdown_table(
            heading,
            ([*system, *(told.get(batch, "") for batch in batches)] for system, told in cells.items()),
        )

    @classmethod
    def excerpt(cls, rows: Rows) -> list[str]:
        """See `SHOWN`."""
        lengths: dict[tuple[Any, ...], int] = {}
        for row in rows:
            if row["median_s"] is not None and row["segments"] <= SHOWN_SEGMENTS:
                lengths[_system(row)] = row["segments"]
        return cls.table(
            [
                row
                for row in rows
                if _system(row)[1:] in SHOWN and row["segments"] == lengths.get(_system(row))
            ]
        )


def _work(case: CostsCase) -> int:
    return case.segments * max(case.batch, LANES)


def _system(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in CostsCase._fields[:3])


def call_of(case: CostsCase) -> Call:
    """The infidelities, and the gradient of their sum."""
    system = chain_of(case.qubits, case.levels, t1=T1_NS, t2=T2_NS)
    controls = controls_of(system, case.segments, case.batch).requires_grad_()
    states = torch.from_numpy(system.computational_states.copy()) if case.evolves == "unitary" else None
    target = kd.gate("x", case.qubits) if states is not None else None
    last = system.computational[-1]

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        final = kd.evolve(system, controls, DURATION_NS, kind=case.evolves, initial=states)
        if states is not None:
            fidelities = kd.process_fidelity(final, target, states)
        else:
            fidelities = final[:, last].abs().square() if case.evolves == "ket" else final[:, last, last].real
        (gradient,) = torch.autograd.grad((1 - fidelities).sum(), controls)
        return 1 - fidelities.detach(), gradient

    return call
