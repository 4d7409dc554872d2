"""What all kinds of studies of speed share: the rows of scaling.csv, one per point, with both speedups, and their answer."""

from __future__ import annotations

import statistics
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from operator import itemgetter
from typing import Any

from ketscale.analysis import comparability, verdicts
from ketscale.analysis.collected import SUBJECT, Collected
from ketscale.analysis.comparison import Compared
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Drawing, pd
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds import gains
from ketscale.analysis.kinds.gains import Entry
from ketscale.analysis.kinds.kind import Answer, Kind
from ketscale.analysis.points import (
    BUSY,
    FOUND,
    HOLLOW,
    MIXED,
    Group,
    Point,
    Row,
    failed,
    median,
    point,
    point_of,
    serial,
    size_axes,
    usable,
    workers,
    worst,
)
from ketscale.analysis.wording import SHORT, capital, fast, fitting, plain, share, times
from ketscale.grid import BACKENDS, POINT, Study

# The columns of an estimate, after its name.
PARTS = ("", "_low", "_high", "_n", "_outliers")
UNTIMED = "times are compared, and no protocol of the study has timed: true"
# The columns that are equal for points that do the same work.
WORK = tuple(name for name in POINT if name not in ("simulator", "layout", "protocol"))


class Speed(Kind):
    """A kind of study that compares step times.

    varies: the column of runs.csv whose values it compares, if it is always the same. what: it is a speed of this. wins: the
    verdict that is counted. begins, noun: how a sentence counts it, such as 'it pays in' two 'comparison's. least: how it tells
    the best point if none has this verdict. judge: gives verdicts on speedups. missing, empty: what a study is without if no
    point is compared, and if there is none. axis: what the figure's axis has.
    """

    varies: str
    table = "scaling"
    what = "a step"
    wins, begins, noun, least = verdicts.PAYS, "it pays in", "comparison", "at best"
    judge: gains.Judge = staticmethod(verdicts.gains)
    missing, empty = "no point was timed together with its baseline", "no run has finished"
    axis = ""

    def reference(self, row: Row, asked: Sequence[Point], points: Mapping[Point, Group]) -> Group | None:
        """A point's baseline: the same simulator on one rank and one thread, or on one GPU."""
        return points.get(point({**row, "layout": serial(row["backend"])}))

    def factor(self, row: Row, reference: Row) -> float:
        """What the ratio t_baseline / t is multiplied by to be the speedup, for a point and its baseline."""
        return 1.0

    def compared(self, study: Study, group: Group, collected: Collected) -> Mapping[str, Any]:
        """What is compared, `varied`, and the point's `value` of it; and columns of this kind alone."""
        return {"varied": self.varies, "value": group[0][self.varies]}

    def shares(self, speedup: float, count: int) -> Mapping[str, float | None]:
        """What the speedup on so many workers says, if the kind defines it: efficiency and serial fraction."""
        return {}

    @abstractmethod
    def entries(self, study: str, inputs: Inputs) -> list[Entry]:
        """The points of a study as rows of its answer, each beside what it is compared with."""

    def notes(self, rows: Sequence[Entry], inputs: Inputs) -> Iterator[str]:
        """What is folded below the rows."""
        yield from ()

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """What the points with a comparison say, and a row for each point."""
        rows = self.entries(study.name, inputs)
        table, known = tuple(each.told for each in rows), self.known(rows)
        if known:
            told = self.tell(known, rows, inputs)
            runs = (run for each in rows for run in inputs.rows(each.point))
            return replace(told, rows=table, notes=(*told.notes, *unlike_steps(runs)))
        missing = self.missing if any(map(inputs.config.timed, study.runs)) else UNTIMED
        return gains.nothing(table, missing if rows else self.empty, inputs.collected.groups(study))

    def known(self, rows: Sequence[Entry]) -> list[Entry]:
        """The points that the sentence is about."""
        return [each for each in rows if each.told.effect]

    def tell(self, known: Sequence[Entry], rows: Sequence[Entry], inputs: Inputs) -> Answer:
        """The answer, without its rows: how many points have the verdict that counts, and the best one."""
        lead = gains.best(known)
        told, factor, verdict = lead.told, lead.factor, lead.told.verdict
        is_fast = f"{self.what} {fast(factor, f'with {told.beside}')}"
        if len(known) == 1:
            texts = [
                f"With {name} {is_fast}: {gains.said(verdict)}." for name in (told.point, plain(told.point))
            ]
            short = f"{capital(gains.said(verdict))}: {times(factor)} as with {told.beside}"
        else:
            count = sum(each.told.verdict == self.wins for each in known)
            # That none has the verdict is not known if the best point has none.
            undecided = not count and verdict in gains.UNDECIDED
            some = any(each.told.verdict in gains.UNDECIDED for each in known)
            noun = f"decided {self.noun}" if not count and some else self.noun
            start = gains.said(verdict) if undecided else f"{self.begins} {share(count, len(known), noun)}"
            start = f"{capital(start)}, {'most' if count else self.least}"
            texts = [f"{start} with {name}: {is_fast}." for name in (told.point, plain(told.point))]
            short = f"{start} {times(factor)}"
        short = fitting(short, f"{capital(gains.said(verdict))}: {times(factor)}", limits=SHORT)
        notes = (*gains.tallied(each.told for each in known), *self.notes(rows, inputs))
        of = "step time of" if told.unit == gains.LONGER else f"speed of {self.what} with"
        of = f"{of} {told.point} beside {told.beside}"
        return Answer(fitting(*texts), verdict, of, told.effect, told.unit, short, notes=notes)

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
        """The effects of the points with their intervals, on a logarithmic axis."""
        rows = [row for study in inputs.asked(self.name) for row in self.entries(study, inputs)]
        return gains.draw(rows, inputs, self.axis)

    def rows(self, study: Study, collected: Collected) -> Iterator[Mapping[str, Any]]:
        """Every point of the study that has a record, with verdicts that hold for all of them together.

        Each class of hosts has rows of its own, `on`, if some point was measured on several.
        """
        asked: dict[Point, set[int]] = {}
        for run in study.runs:
            asked.setdefault(point_of(run), set()).add(run.seed)
        for host in collected.hosts(study):
            here = collected.on(host)
            alone, rows = _single_processes(here.points), []
            for key, seeds in asked.items():
                if group := here.points.get(key):
                    # What was measured elsewhere is not absent.
                    absent = seeds - {row["seed"] for row in collected.points[key]}
                    row = self._row(study, list(asked), group, alone, here)
                    rows.append({**row, "on": host, "absent": len(absent)})
            words = iter(self.judge([row[FOUND] for row in rows if row[FOUND]]))
            yield from ({**row, "verdict": next(words) if row[FOUND] else ""} for row in rows)

    def _row(
        self,
        study: Study,
        asked: Sequence[Point],
        group: Group,
        alone: Mapping[Any, Sequence[Group]],
        collected: Collected,
    ) -> dict[str, Any]:
        """The row of a point; alone: as `_single_processes` gives them. Nothing was found of a baseline."""
        group = sorted(group, key=lambda row: row["seed"])
        (used, flag), first, count = usable(group), group[0], workers(group[0]["layout"])
        typical, speedup = collected.times.typical(group), collected.times.speedup
        alike = _alike(used)
        time = median(row["step_s"] for row in alike)
        same = self.reference(first, asked, collected.points)
        theirs = usable(same)[0] if same else []
        same = same if theirs else None
        found = speedup(group, same) if same else Compared(None)
        if same and found.ratio:
            found = replace(found, ratio=found.ratio.times(self.factor(used[0], theirs[0])))
        own = same is None or point(same[0]) == point(first)
        to_best, best = Compared(None), None
        for each in alone.get(_work(first), ()):
            if workers(each[0]["layout"]) <= count and not (beside := speedup(group, each)).why:
                to_best, best = beside, each
                break
        flags = [MIXED if typical.why else "", flag]
        flags += [f"{usable(each)[1]} reference" for each in (same, best) if each and usable(each)[1]]
        return {
            "study": study.name,
            "kind": study.kind,
            **{name: first[name] for name in (*POINT, "family", *size_axes(collected.config), "features")},
            "workers": count,
            "step_s": time,
            "step_low_s": typical.ratio and typical.ratio.low,
            "step_high_s": typical.ratio and typical.ratio.high,
            "first_s": median(row["first_step_s"] for row in alike),
            "circuit_s": median(row["circuit_s"] for row in alike),
            "epoch_s": median(row["epoch_s"] for row in alike),
            "epoch_estimated": any(row["epoch_estimated"] for row in alike),
            "samples_per_s": time and used[0]["samples_per_s"] * used[0]["step_s"] / time,
            # Core-seconds, or GPU-seconds, of 1,000 samples.
            "cost_s": time and 1000 * count * time / first["batch"],
            "n": len(used),
            "timed_steps": min((row["step_count"] for row in used), default=0),
            "busy": sum(not row["quiet"] and (flag == BUSY or row not in used) for row in group),
            "timed_out": sum(row["status"] == "timed_out" for row in group),
            "failed": sum(map(failed, group)),
            "flag": worst(flags),
            "why": typical.why or found.why,
            FOUND: None if own else found,
            **_estimate("speedup_same", found.ratio),
            "same_reference": _named(same, first) if same else "",
            "same_step_s": median(row["step_s"] for row in _alike(theirs)),
            **_estimate("speedup_best_serial", to_best.ratio),
            "best_serial_reference": _named(best, first) if best else "",
            **(self.shares(found.ratio.value, count) if found.ratio else {}),
            **self.compared(study, group, collected),
            "parity": collected.held.get(itemgetter(*SUBJECT)(first), "not run"),
            "hardware": "; ".join(typical.hosts) or first["hardware"],
            "code": first["code"],
        }  # fmt: skip


def _alike(rows: Group) -> Group:
    """Usable runs of a point; none if they are not comparable, and so have no median."""
    return [] if comparability.hindrance(comparability.times(row) for row in rows) else rows


def _named(reference: Group, row: Row) -> str:
    """The layout of a baseline, and those of its size, batch, simulator and protocol that differ from the point's."""
    first = reference[0]
    others = [first["size"]] if first["size"] != row["size"] else []
    others += [f"b{first['batch']}"] if first["batch"] != row["batch"] else []
    others += [first[name] for name in ("simulator", "protocol") if first[name] != row[name]]
    return " ".join([first["layout"], *others])


def _work(row: Row) -> tuple[Any, ...]:
    """What is equal for points that do the same work on the same hardware and kind of device.

    The same work means the same workload, model, size, global batch and precision. Cached and inline features are the
    same work, since they give the same numbers.
    """
    return (*(row[name] for name in (*WORK, "precision", "hardware")), serial(row["backend"]))


def _single_processes(points: Mapping[Point, Group]) -> dict[tuple[Any, ...], list[Group]]:
    """The timed single-process runs, with any simulator, by their work, the fastest first: ordered once, not by each point."""
    found: dict[tuple[Any, ...], list[tuple[bool, float, Point]]] = {}
    for key, group in points.items():
        first, (used, flag) = group[0], usable(group)
        if used and first["timed"] and not BACKENDS[first["backend"]].several_ranks:
            time = statistics.median(row["step_s"] for row in used)
            found.setdefault(_work(first), []).append((flag in HOLLOW, time, key))
    return {work: [points[key] for *_, key in sorted(ranked)] for work, ranked in found.items()}


def _estimate(name: str, found: Estimate | None) -> dict[str, Any]:
    values = astuple(found) if found else (None, None, None, 0, 0)
    return {f"{name}{part}": value for part, value in zip(PARTS, values, strict=True)}


def one_core(study: Study) -> Iterator[str]:
    """Require a run on one core, the baseline."""
    if not any(run.ranks * run.threads == 1 for run in study.runs):
        yield f"a study of kind {study.kind} needs a run on one core to compare with; add backend: {serial(study.runs[0].backend)}"


def several(kind: str, what: str, values: int, give: str) -> Iterator[str]:
    """Require at least two values of what a kind compares; give: what to add."""
    if values < 2:
        yield f"a study of kind {kind} compares {what}, but has only one; give {give}"


def unlike_steps(runs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A note that some runs on GPUs took their steps as CUDA graphs and others, as those of several ranks, did not."""
    if len({bool(run["replayed"]) for run in runs if run["gpu_hours"]}) > 1:
        yield (
            "Careful: some runs replay a step as a CUDA graph (replayed in runs.csv) and others launch it kernel by kernel, as "
            "on several GPUs, so a ratio of both has that in it too."
        )
