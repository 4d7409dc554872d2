"""Points of a study of speed beside what they are compared with: rows, verdicts, and the sentence about the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from ketscale.analysis import verdicts
from ketscale.analysis.comparison import Compared
from ketscale.analysis.drawing import plots
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds.kind import Answer, Told
from ketscale.analysis.points import HOLLOW, HOLLOW_RATIOS, MIXED, Group, failed, size_axes, variants
from ketscale.analysis.wording import (
    SHORT,
    capital,
    device,
    fast,
    fitting,
    listed,
    plain,
    share,
    times,
    where,
)
from ketscale.grid import POINT
from ketscale.words import counted, duration

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ketscale.analysis.drawing.inputs import Inputs

RATIO = "speedup_same"
ENDS = (f"{RATIO}_low", f"{RATIO}_high")
FASTER, LONGER = "times as fast", "times as long"
# From speedups of one study their verdicts.
Judge = Callable[[Sequence[Compared]], list[str]]
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


def points(study: str, inputs: Inputs) -> pd.DataFrame:
    """The points of a study that have a record, whether or not they have a step time; the order is that of their values."""
    found = inputs.scaling[inputs.scaling["study"] == study]
    sizes = list(size_axes(inputs.config))
    order = ["workload", "model", *sizes, "batch", "simulator", "workers", *POINT]
    return found.sort_values(list(dict.fromkeys(order)), kind="stable", ignore_index=True)


def named(points: pd.DataFrame, inputs: Inputs, but: Sequence[str]) -> list[str]:
    """The layout of each point in words, and in brackets what else tells it apart, except the columns `but`."""
    others = variants(points, inputs.config, ("layout", *but))
    return [
        where(layout) + (f" ({other})" if other else "")
        for layout, other in zip(points["layout"], others, strict=True)
    ]


def entries(
    points: pd.DataFrame,
    unit: str,
    more: Callable[[pd.Series], Mapping[str, str]] = lambda point: {},
    found: Sequence[Compared | None] = (),
    words: Sequence[str] = (),
) -> list[Entry]:
    """The points as rows.

    points: with their `name`, and what each is `beside`, '' for a baseline. unit: of the effect, `FASTER` or `LONGER`. more:
    other cells of a row. found, words: how many times as fast each is, and its verdict; by default what scaling.csv says.
    """
    every = [point for _, point in points.iterrows()]
    rows = []
    for point, each, word in zip(
        every, found or map(compared, every), words or points["verdict"].fillna(""), strict=True
    ):
        cells = {"step": duration(point["step_s"]) if point["step_s"] > 0 else "", **more(point)}
        if why := left_out(point, each):
            cells["left out"] = why
        if each and len(each.hosts) > 1:
            cells["hosts"] = listed(each.hosts)
        name, other, mixed = point["name"], point["beside"], point["flag"] == MIXED
        effect = each.ratio if each and other else None
        effect = effect.inverse() if effect and unit == LONGER else effect
        told = Told(
            name, other, effect, unit if effect else "", (word or verdicts.OPEN) if other else "", cells
        )
        rows.append(Entry(replace(told, verdict=verdicts.APART) if mixed else told, point))
    return rows


def compare(
    points: pd.DataFrame,
    others: Sequence[pd.Series | None],
    inputs: Inputs,
    unit: str,
    judge: Judge,
    work: Iterable[float] = repeat(1.0),
    more: Callable[[pd.Series], Mapping[str, str]] = lambda point: {},
) -> list[Entry]:
    """The points as rows, each beside another one of its study.

    points, unit, more: as of `entries`. others: what each is compared with, None where that says nothing. work: how many
    times as much a step does as that of the other. judge: of speeds at the same work, which `FASTER` tells of; `LONGER`
    tells of whole steps.
    """
    found: list[Compared | None] = []
    able: list[Compared] = []
    for other, of, (_, point) in zip(others, work, points.iterrows(), strict=False):
        if other is None:
            found.append(None)
            continue
        step = inputs.compared(point, other)
        able.append(replace(step, ratio=step.ratio and step.ratio.times(of)))
        found.append(step if unit == LONGER else able[-1])
    words = iter(judge(able))
    return entries(points, unit, more, found, [next(words) if each else "" for each in found])


def left_out(point: pd.Series, found: Compared | None = None) -> str:
    """Why seeds of a point are in no median or ratio, or the point in no comparison, such as '1 busy, 2 failed'."""
    # If every seed of a point was busy or reached its limit, its median is that of these seeds.
    counts = [
        f"{point[name]:.0f} {words}"
        for name, words in LEFT_OUT.items()
        if point[name] > 0 and name != point["flag"]
    ]
    counts += (
        [counted(found.ratio.outliers, "outlier")] if found and found.ratio and found.ratio.outliers else []
    )
    why = found.why if found else point["why"] if point["flag"] == MIXED else ""
    return "; ".join(filter(None, (", ".join(counts), why)))


def with_one(
    points: pd.DataFrame,
    inputs: Inputs,
    more: Callable[[pd.Series], Mapping[str, str]] = lambda point: {},
    but: Sequence[str] = (),
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

    points = points.assign(
        name=named(points, inputs, but), beside=[beside(point) for _, point in points.iterrows()]
    )
    return entries(points, FASTER, cells)


def compared(point: pd.Series) -> Compared:
    """A point beside its baseline, from scaling.csv."""
    flag, why = (point[name] if isinstance(point[name], str) else "" for name in ("flag", "why"))
    if not point[RATIO] > 0:
        return Compared(None, flag, why)
    low, high = (float(point[end]) if point[end] > 0 else None for end in ENDS)
    n, outliers = (int(point[f"{RATIO}_{column}"]) for column in ("n", "outliers"))
    return Compared(Estimate(float(point[RATIO]), low, high, n, outliers), flag, why)


def best(rows: Sequence[Entry]) -> Entry:
    """The point with the largest factor: of those that pay, else of those from a quiet machine. Of equal ones the first."""

    def rank(each: Entry) -> tuple[bool, bool, float]:
        verdict = each.told.verdict
        return verdict in (verdicts.PAYS, verdicts.SLOWER), verdict != verdicts.DISTURBED, each.effect.value

    return max(rows, key=rank)


def answer(rows: Sequence[Entry], what: str, notes: Sequence[str] = ()) -> Answer:
    """The answer: at which points it pays, and the best one.

    rows: those of the study. what: what is faster, such as 'a step'. notes: what is folded.
    """
    table = tuple(each.told for each in rows)
    known = [each for each in rows if each.told.effect is not None]
    if not known:
        return nothing(table, "no point was timed together with its baseline")
    lead, effect = best(known).told, best(known).effect
    factor, verdict = effect.value, lead.verdict
    of = f"speed of {what} with {lead.point} beside {lead.beside}"
    is_fast = f"{what} {fast(factor, f'with {lead.beside}')}"
    if len(known) == 1:
        texts = [f"With {name} {is_fast}: {said(verdict)}." for name in (lead.point, plain(lead.point))]
        short = f"{capital(said(verdict))}: {times(factor)} as with {lead.beside}"
    else:
        count = sum(each.told.verdict == verdicts.PAYS for each in known)
        undecided = {each.told.verdict for each in known} <= UNDECIDED
        start = capital(said(verdict) if undecided else f"it pays in {share(count, len(known))}")
        most = "most" if count else "at best"
        texts = [f"{start}, {most} with {name}: {is_fast}." for name in (lead.point, plain(lead.point))]
        short = f"{start}, {most} {times(factor)}"
    short = fitting(short, f"{capital(said(verdict))}: {times(factor)}", limits=SHORT)
    folded = (*tallied(each.told for each in known), *notes)
    return Answer(fitting(*texts), verdict, of, effect, lead.unit, short, table, folded)


def said(verdict: str) -> str:
    """A verdict as a clause."""
    if verdict in (verdicts.PAYS, verdicts.PAYS_NOT):
        return f"it {verdict}"
    word, _, why = verdict.replace("fewer than 3", "too few").partition(": ")
    return f"{word} ({why})" if why else word


def devices(rows: Sequence[Entry]) -> list[str]:
    """The note that compares GPUs with cores, by the fastest quiet layout of each; none where there is one kind."""
    fastest: dict[str, Entry] = {}
    for each in sorted(
        (each for each in rows if each.point["step_s"] > 0), key=lambda each: each.point["step_s"]
    ):
        if each.point["flag"] not in HOLLOW:
            fastest.setdefault(device(each.point["layout"]), each)
    told = [f"{each.told.point} {duration(each.point['step_s'])}" for each in fastest.values()]
    return [f"The fastest step of each device: {listed(told)}."] if len(told) > 1 else []


def draw(
    rows: Sequence[Entry], inputs: Inputs, label: str, colour: Callable[[pd.Series], int] = lambda point: 0
) -> tuple[Figure, pd.DataFrame] | None:
    """The effects of the rows with their intervals, as the table has them; None of fewer than two.

    label: of the axis. colour: the number of a point's colour.
    """
    import pandas as pd

    known = [each for each in rows if each.told.effect is not None]
    if len(known) < 2:
        return None
    drawn = pd.DataFrame([each.point for each in known]).assign(
        name=[each.told.point for each in known],
        said=[
            times(1 / each.effect.value if each.told.unit == LONGER else each.effect.value) for each in known
        ],
        middle=[each.effect.value for each in known],
        low=[each.effect.low or math.nan for each in known],
        high=[each.effect.high or math.nan for each in known],
        hollow=[each.point["flag"] in HOLLOW_RATIOS for each in known],
        colour=[colour(each.point) for each in known],
    )
    return plots.rows(drawn, inputs, f"{label} (log scale)")


def tallied(rows: Iterable[Told]) -> tuple[str, ...]:
    """How many comparisons have each verdict, as a note."""
    words = sorted(row.verdict for row in rows if row.verdict)
    counts = (f"{verdict} ({words.count(verdict)})" for verdict in dict.fromkeys(words))
    return (f"Of {len(words)} comparisons: {', '.join(counts)}.",) if len(words) > 1 else ()


def nothing(rows: Sequence[Told], missing: str, groups: Sequence[Group] = ()) -> Answer:
    """The answer of a study without a comparison: that it is open, or what stands in the way of those that were tried.

    groups: the runs of a study without rows, which say if all of them failed.
    """
    runs = [row for group in groups for row in group]
    if runs and all(map(failed, runs)):
        clause = capital(said(verdicts.FAILED))
        return Answer(
            f"{clause}: {missing}, since {counted(len(runs), 'run')} failed.", verdicts.FAILED, short=clause
        )
    words = sorted({row.verdict for row in rows} - {"", verdicts.OPEN})
    if not words:
        lost = [(row.point, row.more["left out"]) for row in rows if "left out" in row.more]
        sentences = [f"Open: {missing} ({point}: {why})." for point, why in lost[:1]]
        sentences += [f"Open: {missing}."] if lost else [f"Open: {missing} yet."]
        return Answer(
            fitting(*sentences),
            verdicts.OPEN,
            short="Open: nothing to compare" if lost else "Open: nothing to compare yet",
            rows=tuple(rows),
        )
    row = next(row for row in rows if row.verdict == words[0])
    clause = capital(said(words[0]))
    compared, why = " beside ".join(filter(None, (row.point, row.beside))), row.more.get("left out", "")
    told = [", ".join(filter(None, (compared, some))) for some in (why, why.split(" (")[0], "")]
    texts = (f"{clause}: {each}." for each in told)
    return Answer(fitting(*texts), words[0], short=clause, rows=tuple(rows))
