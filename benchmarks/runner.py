"""What all benchmarks share: cases x subjects -> rows.

In each case every subject is called once, has to agree with what is expected, and is timed in turns with the others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import torch

from benchmarks import ceiling, machine, stopwatch
from benchmarks.options import all_cores, number, option
from ketscale.engines.graphs import NoGraph, captured, no_preparation, release
from ketscale.errors import UserError
from ketscale.words import duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TIMED, WRONG, OVER_BUDGET = "timed", "parity failed", "over budget"
FAILED, MISSING, OUT_OF_MEMORY = "failed", "not installed", "out of memory"
# What errors for lack of a GPU's memory say, in torch and in JAX.
NO_MEMORY = ("CUDA out of memory", "RESOURCE_EXHAUSTED", "CUDA error: out of memory")
# The other time of a call, as a CUDA graph's replay.
GRAPH = "graph"

# A named tuple: what the rows that are compared have in common, such as a circuit, its qubits and the batch.
Case = Any
# A subject's row in a case, by the names of columns.
Row = dict[str, Any]
Rows = list[Row]
Call = Callable[[], Any]
# {'machine', 'reference', 'cells', 'rows'}, ready for JSON.
Result = dict[str, Any]
CaseType = TypeVar("CaseType", bound=tuple[Any, ...])


class Untimed(Exception):
    """Ends a subject's trial in a case, with its status and the reason."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Column(NamedTuple):
    """A column of rows. heading: in Markdown; without one it is in JSON and CSV only. shown: a value in words."""

    name: str
    heading: str | None = None
    shown: Callable[[Any], str] = str

    def cell(self, row: Row) -> str:
        """What a row has here, in words; nothing where it has none."""
        value = row.get(self.name)
        return "" if value is None else self.shown(value)


def declared(name: str) -> Column:
    """A quantity that records have too, as its column of the tables is declared."""
    # A machine with torch and NumPy alone, where some benchmarks run, has not what tables need.
    from ketscale.analysis import columns
    from ketscale.analysis.wording import number_of

    parts = (part for table in columns.TABLES.values() for part in table.parts)
    result = next(part for part in parts if isinstance(part, columns.Column) and part.name == name)
    return Column(name, result.title, partial(number_of, factor=result.factor))


# What every row has behind its case and subject. first_s: seconds of the first call in this process, compiling included.
# median_s, iqr_s: of the later calls, median and interquartile range over `repeats`. reason: why there are none.
MEASURED = ("status", "reason", "first_s", "median_s", "iqr_s", "repeats")
# On a GPU: the same of a graph's replays, or why there are none.
ON_A_GPU = (Column("graph_median_s"), Column("graph_iqr_s"), Column("graph_reason"))


@dataclass(kw_only=True)
class Benchmark:
    """One benchmark: a subclass has its options as fields and says how a subject is prepared and what it has to agree with.

    asked: the subjects were asked for by name, so that a missing one is an error.
    """

    text: ClassVar[str]
    case: ClassVar[type]
    # The column of subjects' names.
    subject: ClassVar[str] = "simulator"
    columns: ClassVar[tuple[Column, ...]] = ()
    # Whether times of smaller batches predict those of larger ones, and whether a first call has no more to compile.
    predicts: ClassVar[bool] = False
    first_counts: ClassVar[bool] = True
    drawn: ClassVar[bool] = False

    repeats: int = option(7, number(5), "timed repeats of a case, at least 5")
    threads: int = option(all_cores, number(1), "threads of every simulator (default: as many as cores)")
    device: str = "cpu"
    budget: float = math.inf
    asked: bool = False

    def __post_init__(self) -> None:
        self.on = torch.device("cpu")
        self.found: dict[str, Any] = {}
        self.reference: str | None = None
        # Makes a call a graph; None where there are none.
        self.capture: Callable[..., Call | NoGraph] | None = None
        self.ceiling: ceiling.Ceiling | None = None
        self.rates: list[float] = []
        self._last: dict[tuple[Any, ...], tuple[int, float]] = {}

    # --- what a benchmark says ---

    def check(self) -> None:
        """Raise UserError if the options do not go together."""

    def cases(self) -> Iterable[Case]:
        """All cases, smaller batches first."""
        raise NotImplementedError

    def open(self) -> None:
        """Make ready what all cases share, on the threads and cores that were asked for."""

    def subjects(self, case: Case) -> Iterable[str]:
        """The subjects that take turns in a case."""
        return self.found

    def prepare(self, case: Case, name: str, row: Row) -> Call:
        """The call to time; it ends when all numbers are there. Raises Untimed if it cannot be made."""
        raise NotImplementedError

    def called(self, row: Row) -> None:
        """Add to the row what is known right after the first call."""

    def agree(self, case: Case, name: str, row: Row, result: Any) -> None:
        """Raise Untimed if the first call's result is wrong; all first calls come before."""

    def calls(self, case: Case, name: str, row: Row, call: Call) -> dict[str, Call]:
        """What is timed of a subject that agrees: the call, and by a name of its own what takes turns with it."""
        return {"": call}

    def times(self, row: Row) -> float:
        """How many times as long as the timed call the whole takes; above 1 a row's times are projections."""
        return 1.0

    def finish(
        self, case: Case, rows: Mapping[str, Row], calls: Mapping[str, Call], rate: float | None
    ) -> None:
        """Add to the rows of a case what follows from their times. rate: of the ceiling, in this case."""

    def prepared(self) -> AbstractContextManager[list[int]]:
        """The machine as the benchmark needs it; gives the cores."""
        return machine.prepared(self.threads)

    @classmethod
    def said(cls, row: Row) -> str:
        """A row for the terminal."""
        return time_or_status(row)

    @classmethod
    def table(cls, rows: Rows) -> list[str]:
        """The lines of a Markdown table with a row for each case and subject."""
        shown = [
            Column("time", "time"),
            Column("iqr_s", "interquartile range", duration),
            Column("first_s", "first call", duration),
            *(column for column in cls.columns if column.heading),
        ]
        first = (*cls.case._fields, cls.subject)  # type: ignore[attr-defined]
        message = ({**row, "time": _time_or_why(row)} for row in rows)
        lines = ([*(row[name] for name in first), *(column.cell(row) for column in shown)] for row in message)
        return markdown_table([*first, *(column.heading for column in shown)], lines)

    @classmethod
    def excerpt(cls, rows: Rows) -> list[str]:
        """The lines of the table that the documentation shows, where they are chosen by rule."""
        return []

    @classmethod
    def summary(cls, rows: Rows) -> list[str]:
        """The benchmark in a few lines."""
        return []

    @classmethod
    def draw(cls, result: Result) -> Figure:
        """The figure, where there is one."""
        raise NotImplementedError

    # --- what is the same for all ---

    def run(
        self, show: Callable[[Case, Rows], None] = lambda case, rows: None, limit_s: float = math.inf
    ) -> Result:
        """Measure all cases, and `show` each as it finishes. limit_s: after so many seconds no further one is begun.

        Raises:
            UserError: there is no such device or not as many cores, or a subject that was asked for is not installed.
        """
        start, cases, rows, measured = time.monotonic(), list(self.cases()), Rows(), 0
        self.on = machine.device_of(self.device)
        self.capture = captured if self.on.type == "cuda" else None
        with self.prepared() as self.cores:
            self.open()
            # Ctrl-C keeps the cases that are finished.
            with suppress(KeyboardInterrupt):
                for case in cases:
                    if time.monotonic() - start > limit_s:
                        break
                    result = self.measure(case)
                    show(case, result)
                    rows += result
                    measured += 1
            rates: dict[str, float | None] = {}
            if self.ceiling:
                rates[self.ceiling.name] = median(self.rates) if self.rates else None
            budget_s = None if math.isinf(self.budget) else self.budget
            about = machine.describe(self.threads, budget_s, self.cores, rates, self.on)
        return {
            "machine": about,
            "reference": self.reference,
            "cells": {"asked": len(cases), "measured": measured},
            "rows": rows,
        }

    def measure(self, case: Case) -> Rows:
        """One row for each subject, in their order."""
        rows = {name: self.row(case, name) for name in self.subjects(case)}
        first: dict[str, tuple[Call, Any]] = {}
        for name, row in rows.items():
            # What the last one has left would be missing for those that do not allocate through torch.
            release(self.on)
            with _noted(row):
                first[name] = self._first(case, name, row)
        calls: dict[tuple[str, str], Call] = {}
        for name, (call, result) in first.items():
            with _noted(rows[name]):
                self.agree(case, name, rows[name], result)
                if self.first_counts and rows[name]["first_s"] > self.budget:
                    raise Untimed(OVER_BUDGET, f"the first call took {rows[name]['first_s']:.3g} s")
                kinds = self.calls(case, name, rows[name], call)
                calls |= {(name, kind): machine.finished(each, self.on) for kind, each in kinds.items()}
        rate = self._timed(case, rows, calls)
        self.finish(case, rows, {name: call for (name, kind), call in calls.items() if not kind}, rate)
        return list(rows.values())

    def row(self, case: Case, name: str) -> Row:
        """An empty row, with every column."""
        head = {**case._asdict(), self.subject: name, **dict.fromkeys(MEASURED), "status": TIMED}
        return head | {column.name: None for column in self.columns if column.name not in head}

    def _first(self, case: Case, name: str, row: Row) -> tuple[Call, Any]:
        """The call, and the result of its first time."""
        if self.predicts:
            expected = stopwatch.predicted(self._last.get(_line(case, name)), case.batch)
            if expected > self.budget:
                raise Untimed(OVER_BUDGET, f"predicted {expected:.3g} s")
        call, result = self.prepare(case, name, row), list[Any]()
        waited = machine.finished(call, self.on)
        row["first_s"] = stopwatch.once(lambda: result.append(waited()))
        self.called(row)
        return call, result[0]

    def _timed(
        self, case: Case, rows: Mapping[str, Row], calls: Mapping[tuple[str, str], Call]
    ) -> float | None:
        """Time the calls in turns, in their rows; the rate of the ceiling."""
        if not calls:
            return None
        # The ceiling takes its turn too: the speed of a shared machine changes.
        top = {} if self.ceiling is None else {("", "ceiling"): self.ceiling.call}
        results = stopwatch.steady({**calls, **top}, self.repeats)
        rate = None
        if self.ceiling:
            rate = ceiling.gflops(self.ceiling.flops, results.pop(("", "ceiling")).median_s)
            self.rates.append(rate)
        for (name, kind), timing in results.items():
            row, times, prefix = rows[name], self.times(rows[name]), f"{kind}_" if kind else ""
            row[f"{prefix}median_s"], row[f"{prefix}iqr_s"] = times * timing.median_s, times * timing.iqr_s
            if not kind:
                row["repeats"] = timing.repeats
                if self.predicts:
                    self._last[_line(case, name)] = (case.batch, timing.median_s)
        return rate

    def with_graph(
        self,
        row: Row,
        call: Call,
        differs: Callable[[Call], str | None],
        replayed: Call,
        before: Call = no_preparation,
    ) -> dict[str, Call]:
        """The call and its replay as a graph; `graph_reason` of the row says why there is none.

        differs: why a replay is wrong. replayed, before: what is captured, and comes before each replay; see `captured`.
        """
        assert self.capture is not None
        replay = self.capture(replayed, self.on, row["peak_bytes"], before)
        if isinstance(replay, NoGraph):
            row["graph_reason"] = replay.reason
            return {"": call}
        row["graph_reason"] = differs(machine.finished(replay, self.on))
        return {"": call} if row["graph_reason"] else {"": call, GRAPH: replay}

    def install(self, create: Callable[[str], Any], names: Iterable[str]) -> None:
        """Create the subjects; keep why there is none of a name that was not asked for."""
        for name in names:
            try:
                self.found[name] = create(name)
            except Exception as error:  # also an installation that is broken in its own way
                if self.asked:
                    raise
                expected = isinstance(error, UserError)
                self.found[name] = str(error) if expected else f"{type(error).__name__}: {error}"

    def installed(self, name: str) -> Any:
        """A subject; raises Untimed if it is not there."""
        subject = self.found[name]
        if isinstance(subject, str):
            raise Untimed(MISSING, subject)
        return subject


def _line(case: Case, name: str) -> tuple[Any, ...]:
    """The case but for its batch, and the subject."""
    return (*case._replace(batch=0), name)


@contextmanager
def _noted(row: Row) -> Iterator[None]:
    """Keep in the row why there are no times. One that runs out of memory, say, must not end a benchmark of hours."""
    try:
        yield
    except Untimed as why:
        row["status"], row["reason"] = why.status, why.reason
    except Exception as error:  # whatever a subject raises
        reason = f"{type(error).__name__}: {error}"[:200]
        short = any(words in reason for words in NO_MEMORY)
        row["status"], row["reason"] = OUT_OF_MEMORY if short else FAILED, reason


def best_s(row: Row) -> float | None:
    """The median seconds of a row's calls or, where it is shorter, of their graph's replays."""
    return min((s for s in (row["median_s"], row.get("graph_median_s")) if s is not None), default=None)


def time_or_status(row: Row) -> str:
    """The shorter time of a row in words; where nothing was timed, its status."""
    seconds = best_s(row)
    return str(row["status"]) if seconds is None else duration(seconds)


def _time_or_why(row: Row) -> str:
    return time_or_status(row) + (f": {row['reason']}" if row["reason"] else "")


def case_of(kind: type[CaseType], row: Row) -> CaseType:
    """The case of a row."""
    return kind(*(row[name] for name in kind._fields))  # type: ignore[attr-defined]


def by_case(
    kind: type[CaseType], rows: Iterable[Row], subject: str = "simulator"
) -> dict[CaseType, dict[str, Row]]:
    """The rows that were timed, by case and subject."""
    result: dict[CaseType, dict[str, Row]] = {}
    for row in rows:
        of_case = result.setdefault(case_of(kind, row), {})
        if best_s(row) is not None:
            of_case[row[subject]] = row
    return result


def mebibytes(number: float) -> str:
    """Bytes in words."""
    return f"{number / 2**20:.0f} MiB"


def markdown_table(head: Sequence[object], rows: Iterable[Iterable[object]]) -> list[str]:
    """The lines of a Markdown table."""
    lines: list[Iterable[object]] = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(map(str, cells)) + " |" for cells in lines]
