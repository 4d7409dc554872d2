"""Points of a study of speed beside what they are compared with: their rows, what verdicts say, and the drawing of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import NamedTuple

from ketscale.analysis import verdicts
from ketscale.analysis.comparison import Compared
from ketscale.analysis.drawing import plots
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Drawing, pd
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds.kind import Answer, Told
from ketscale.analysis.points import FOUND, HOLLOW_RATIOS, MIXED, Group, failed, size_axes, variants
from ketscale.analysis.wording import capital, device, fitting, listed, times, where
from ketscale.grid import POINT
from ketscale.words import counted, duration

RATIO = "speedup_same"
ENDS = (f"{RATIO}_low", f"{RATIO}_high")
FASTER, LONGER = "times as fast", "times as long"
# From speedups of one study their verdicts.
Judge = Callable[[Sequence[Compared]], list[str]]
# Further cells of a point's row, by their headings.
Cells = Callable[["pd.Series"], Mapping[str, str]]
# Verdicts that decide nothing.
UNDECIDED = frozenset({verdicts.FEW, verdicts.DISTURBED, verdicts.APART, verdicts.FAILED, verdicts.OPEN})
# What can keep a seed out of a median: columns of scaling.csv, and their words.
LEFT_OUT = {"busy": "busy", "timed_out": "timed out", "failed": "failed", "absent": "absent"}


class Entry(NamedTuple):
    """A point of a study: its row of the answer's table, and of scaling.csv."""

    told: Told
    point: pd.Series

    @property
    def effect(self) -> Estimate:
        """Its effect, which it must have."""
        assert self.told.effect is not None
        return self.told.effect

    @property
    def factor(self) -> float:
        """How many times as fast it is; it must have an effect."""
        return 1 / self.effect.value if self.told.unit == LONGER else self.effect.value


def points(study: str, inputs: Inputs) -> pd.DataFrame:
    """The points of a study that have a record, whether or not they have a step time; the order is that of their values."""
    found = inputs.scaling[inputs.scaling["study"] == study]
    sizes = list(size_axes(inputs.config))
    order = ["workload", "model", *sizes, "batch", "simulator", "workers", *POINT]
    return found.sort_values(list(dict.fromkeys(order)), kind="stable", ignore_index=True)


def bracketed(name: str, *others: str) -> str:
    """The name, with the others in brackets behind it if there are any."""
    inside = ", ".join(filter(None, others))
    return f"{name} ({inside})" if inside else name


def entries(points: pd.DataFrame, unit: str, more: Cells = lambda point: {}) -> list[Entry]:
    """The points as rows.

    points: with their `name`, what each is `beside`, '' for a baseline, and what was `found`. unit: of the effect, `FASTER` or
    `LONGER`. more: other cells of a row.
    """
    rows = []
    for _, point in points.iterrows():
        found, other, verdict = point[FOUND], point["beside"], point["verdict"]
        cells = {"step": duration(point["step_s"]) if point["step_s"] > 0 else "", **more(point)}
        if why := left_out(point):
            cells["left out"] = why
        if found and len(found.hosts) > 1:
            cells["hosts"] = listed(found.hosts)
        effect = found.ratio if found and other else None
        effect = effect.inverse() if effect and unit == LONGER else effect
        verdict = ((isinstance(verdict, str) and verdict) or verdicts.OPEN) if other else ""
        verdict = verdicts.APART if point["flag"] == MIXED else verdict
        rows.append(Entry(Told(point["name"], other, effect, unit if effect else "", verdict, cells), point))
    return rows


def compared(
    points: pd.DataFrame,
    others: Sequence[pd.Series | None],
    inputs: Inputs,
    judge: Judge,
    unit: str = LONGER,
    more: Cells = lambda point: {},
) -> list[Entry]:
    """The points as rows, as `entries` makes them, each beside another one of its study.

    others: what each is compared with, None where that says nothing. judge: of speeds at the same work, which `FASTER` tells
    of; `LONGER` tells of whole steps. A column `growth` is how many times as much a step does as that of the other.
    """
    found = [
        None if other is None else inputs.compared(point, other)
        for other, (_, point) in zip(others, points.iterrows(), strict=True)
    ]
    able = [
        each and replace(each, ratio=each.ratio and each.ratio.times(growth))
        for each, growth in zip(found, points.get("growth", repeat(1.0)), strict=False)
    ]
    words = iter(judge([each for each in able if each]))
    shown = pd.Series(able if unit == FASTER else found, points.index, dtype=object)
    points = points.assign(**{FOUND: shown}, verdict=[next(words) if each else "" for each in able])
    return entries(points, unit, more)


def left_out(point: pd.Series) -> str:
    """Why seeds of a point are in no median or ratio, or the point in no comparison, such as '1 busy, 2 failed'."""
    found = point[FOUND]
    # If every seed of a point was busy or reached its limit, its median is that of these seeds.
    counts = [
        f"{point[name]:.0f} {words}"
        for name, words in LEFT_OUT.items()
        if point[name] > 0 and name != point["flag"]
    ]
    if found and found.ratio and found.ratio.outliers:
        counts.append(counted(found.ratio.outliers, "outlier"))
    why = found.why if found else point["why"] if point["flag"] == MIXED else ""
    return "; ".join(filter(None, (", ".join(counts), why)))


def with_one(
    points: pd.DataFrame, inputs: Inputs, more: Cells = lambda point: {}, but: Sequence[str] = ()
) -> list[Entry]:
    """The layouts of a study, each beside one worker of its kind, as scaling.csv compares them.

    more: other cells of a row. but: columns that do not tell points apart.
    """

    def beside(point: pd.Series) -> str:
        reference = point["same_reference"]
        if point["workers"] == 1:
            return ""
        return where(reference.split()[0]) if isinstance(reference, str) else f"one {device(point['layout'])}"

    def cells(point: pd.Series) -> dict[str, str]:
        best = point["speedup_best_serial"]
        return {**more(point), **({"over best serial": times(best)} if best > 0 else {})}

    others = zip(points["layout"], variants(points, inputs.config, ("layout", *but)), strict=True)
    names = [bracketed(where(layout), other) for layout, other in others]
    besides = [beside(point) for _, point in points.iterrows()]
    return entries(points.assign(name=names, beside=besides), FASTER, cells)


def best(rows: Sequence[Entry]) -> Entry:
    """The point with the largest effect: of those that pay, else of those from a quiet machine, else, if none of these decides
    anything, of all. Of equal ones the first.
    """

    def rank(each: Entry) -> tuple[bool, bool, float]:
        verdict = each.told.verdict
        return verdict in (verdicts.PAYS, verdicts.SLOWER), verdict != verdicts.DISTURBED, each.effect.value

    lead = max(rows, key=rank)
    return max(rows, key=lambda each: each.effect.value) if lead.told.verdict in UNDECIDED else lead


def said(verdict: str) -> str:
    """A verdict as a clause."""
    if verdict in (verdicts.PAYS, verdicts.PAYS_NOT):
        return f"it {verdict}"
    word, _, why = verdict.replace("fewer than 3", "too few").partition(": ")
    return f"{word} ({why})" if why else word


def draw(rows: Sequence[Entry], inputs: Inputs, label: str) -> tuple[Drawing, pd.DataFrame] | None:
    """The effects of the rows with their intervals, as the table has them; None of fewer than two. label: of the axis."""
    known = [each for each in rows if each.told.effect is not None]
    if len(known) < 2:
        return None
    drawn = pd.DataFrame([each.point for each in known]).assign(
        name=[each.told.point for each in known],
        said=[times(each.factor) for each in known],
        middle=[each.effect.value for each in known],
        low=[each.effect.low or math.nan for each in known],
        high=[each.effect.high or math.nan for each in known],
        hollow=[each.point["flag"] in HOLLOW_RATIOS for each in known],
    )
    return plots.rows(drawn, inputs, f"{label} (log scale)")


def tallied(rows: Iterable[Told]) -> Iterator[str]:
    """How many comparisons have each verdict, as a note."""
    words = sorted(row.verdict for row in rows if row.verdict)
    counts = (f"{verdict} ({words.count(verdict)})" for verdict in dict.fromkeys(words))
    if len(words) > 1:
        yield f"Of {len(words)} comparisons: {', '.join(counts)}."


def nothing(rows: Sequence[Told], missing: str, groups: Sequence[Group] = ()) -> Answer:
    """The answer of a study without a comparison: that it is open, or what stands in the way of those that were tried.

    groups: the runs of a study, which say if all of them failed.
    """
    words = sorted({row.verdict for row in rows} - {"", verdicts.OPEN})
    runs = [row for group in groups for row in group]
    if not words and runs and all(map(failed, runs)):
        clause = capital(said(verdicts.FAILED))
        text = f"{clause}: {missing}, since {counted(len(runs), 'run')} failed."
        return Answer(text, verdicts.FAILED, short=clause, rows=tuple(rows))
    if not words:
        lost = [(row.point, row.more["left out"]) for row in rows if "left out" in row.more]
        sentences = [f"Open: {missing} ({point}: {why})." for point, why in lost[:1]]
        sentences += [f"Open: {missing}."] if lost else [f"Open: {missing} yet."]
        short = "Open: nothing to compare" if lost else "Open: nothing to compare yet"
        return Answer(fitting(*sentences), verdicts.OPEN, short=short, rows=tuple(rows))
    row = next(row for row in rows if row.verdict == words[0])
    clause = capital(said(words[0]))
    compared, why = " beside ".join(filter(None, (row.point, row.beside))), row.more.get("left out", "")
    told = [", ".join(filter(None, (compared, some))) for some in (why, why.split(" (")[0], "")]
    text = fitting(*(f"{clause}: {each}." for each in told))
    return Answer(text, words[0], short=clause, rows=tuple(rows))
