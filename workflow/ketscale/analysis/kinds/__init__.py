"""The kinds of studies, one value each. To add a kind, add a line below; the reference of times is in `speed.SPEED`.

Snakemake checks its config with them at every start, so they import what they need for drawing only when they draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from operator import itemgetter
from typing import Any

from ketscale.analysis import laws, verdicts
from ketscale.analysis.comparison import Collected
from ketscale.analysis.drawing import models, times
from ketscale.analysis.kinds import checks, quality, speed
from ketscale.analysis.kinds.kind import Figure, Kind
from ketscale.analysis.kinds.speed import SPEED, Speed
from ketscale.analysis.points import HOLLOW, Row, point, serial
from ketscale.analysis.wording import capital, where
from ketscale.config import Config, Families, SizeAxis
from ketscale.errors import UserError
from ketscale.grid import Study, layout
from ketscale.words import duration, suggestion

__all__ = ["Figure", "Kind", "check", "kinds"]

# The errors at which a study of convergence names the cheapest simulator.
ERRORS = (1e-3, 1e-6, 1e-9)


def largest(rows: Sequence[Row]) -> Row:
    """The row with the largest effect: of those that are surely not the same, else of decided ones, else of all."""
    return max(
        rows,
        key=lambda row: (row["verdict"] in verdicts.DECIDED, row["verdict"] != verdicts.SAME, row["effect"]),
    )


def nearest(rows: Sequence[Row]) -> Row:
    """The row with the smallest effect: what holds everywhere."""
    return min(rows, key=lambda row: row["effect"])


def farthest(rows: Sequence[Row]) -> Row:
    """The row whose metric is farthest from its reference's, of decided ones if there are some."""

    def rank(row: Row) -> tuple[bool, float, str]:
        size = abs(math.log(row["effect"])) if row["unit"] == "times" else abs(row["effect"])
        return row["verdict"] not in verdicts.DECIDED, -size, row["point"]

    return min(rows, key=rank)


def wrong(rows: Sequence[Row]) -> Row:
    """The misconfiguration with the largest effect."""
    return largest([row for row in rows if row["mistake"]] or rows)


def cheapest(rows: Sequence[Row]) -> Row:
    """The next to the cheapest at the smallest of `ERRORS` that a simulator reaches."""
    return nearest(next(filter(None, (_as_exact(rows, most) for most in reversed(ERRORS))), rows))


def _as_exact(rows: Sequence[Row], most: float) -> list[Row]:
    exact = (row for row in rows if row["error"] is not None and row["error"] <= most)
    return [row for row in exact if row["step_s"] and row["flag"] not in HOLLOW]


def faster_from(rows: list[Row], study: Study, collected: Collected) -> list[str]:
    """From which work per worker on each layout is surely faster than one worker."""
    note, times = [], {point(row): row["step_s"] for row in rows}
    lines: dict[str, list[tuple[float, bool]]] = {}
    for row in (row for row in rows if row["workers"] > 1):
        # A worker's part of one worker's step is known even where the two cannot be compared.
        if one := times.get(point({**row, "layout": serial(layout(row["layout"])["backend"])})):
            work_s = row.get("work_s") or one / row["workers"]
            lines.setdefault(row["layout"], []).append((work_s, row["verdict"] == verdicts.FASTER))
    for name, line in lines.items():
        sure = [*takewhile(itemgetter(1), sorted(line, reverse=True))]
        if sure and len(line) > 1:
            note.append(f"{capital(where(name))}: faster from {duration(sure[-1][0])} of work per worker on.")
    return note


def cheapest_at(rows: list[Row], study: Study, collected: Collected) -> list[str]:
    """The cheapest simulator at each error that one reaches."""
    best = {most: min(able, key=itemgetter("step_s")) for most in ERRORS if (able := _as_exact(rows, most))}
    return [f"At an error of at most {most:g} the cheapest is {row['point']}." for most, row in best.items()]


def _speed(name: str, faults: checks.Check, figure: Figure, kind: Speed | None = None, **more: Any) -> Kind:
    row = kind or SPEED[name]
    about = {"faults": faults, "figure": figure, "lead": nearest if row.slower else largest, **more}
    return Kind(name=name, table="speed", rows=partial(speed.rows, row), **about)


def _sweep(axis: SizeAxis) -> Kind:
    name, draw = axis.sweep or axis.name, partial(times.sweep, axis.name, axis.title)
    figure = Figure(name, f"Time against {axis.title}", f"Time of a step against {axis.title}.", draw)
    fits = partial(laws.exponents, axis.name)
    return _speed(name, checks.sweep(axis.name), figure, speed.sweep(axis.name), lead=largest, fits=fits)


KINDS = (
    _speed("strong", checks.one_core, Figure(
        "strong", "Strong scaling",
        "Strong scaling: the global batch is fixed while the number of ranks or threads grows. Ratios pair runs of the same "
        "seed on the same kind of host.", partial(times.workers, "speedup over one worker")), fits=laws.of_study),
    _speed("weak", checks.weak, Figure(
        "weak", "Weak scaling",
        "Weak scaling: the batch grows with the number of workers, so that ideally a step takes the same time. Where a larger "
        "batch needs a larger model, throughput counts work instead of samples.", partial(times.workers, "throughput over one worker")), fits=laws.of_study),
    _speed("break-even", checks.break_even, Figure(
        "break-even", "Step times and speedups of several workers",
        "The time of a step, and the speedup over one worker at the same batch.",
        partial(times.workers, "speedup over one worker")), notes=faster_from),
    _speed("simulator", checks.simulators, Figure(
        "simulator", "Simulators", "Time of one training step with each simulator. Warm-up steps are excluded.", times.steps)),
    _speed("changes", checks.changes, Figure(
        "changes", "One change at a time",
        "What one change at a time does to the time of a sample. A change of batch, workload or model is other work.",
        partial(times.effects, "speed of a sample over the baseline's"))),
    _speed("convergence", checks.convergence, Figure(
        "convergence", "Error against step and cost",
        "How far each simulator's results are from exact ones, at random inputs, against the length of its steps and the "
        "time of a training step. No other simulator is both as fast and as exact as one on the frontier.", times.convergence),
        lead=cheapest, notes=cheapest_at),
    _speed("batch", checks.sweep("batch"), Figure(
        "batch", "Time against batch",
        "The time of 1,000 samples against the batch. Whether a larger batch costs accuracy is another question.",
        partial(times.sweep, "batch", "batch"))),
)  # fmt: skip
LAST = (
    _speed("features", checks.features, Figure(
        "features", "Cached and inline features",
        "The same training with features that are read from the cache, and with the feature network run in every step.",
        times.steps)),
    _speed("mistakes", checks.mistakes, Figure(
        "mistakes", "Misconfigurations",
        "How more ranks come to be slower: the step time with one misconfiguration at a time (orange) and without.",
        partial(times.effects, "step time over that of one fair rank")), lead=wrong),
    Kind(name="accuracy", table="quality", rows=quality.rows, faults=checks.quality, lead=farthest, figure=Figure(
        "accuracy", "Test results",
        "The headline metric on test data with the best weights, with its 95 % interval. Hollow: some seeds failed. Dotted: "
        "guessing.", models.accuracy)),
    Kind(name="comparison", table="quality", rows=quality.data_sets, faults=checks.comparison, lead=farthest,
         notes=quality.data_set_notes, figure=Figure(
        "comparison", "Differences by data set",
        "On each data set the model that validation chose, less the control that it chose, on test data; the intervals hold "
        "together with 95 %. The last row: what is typical of the data sets, with the interval of signed ranks.",
        models.comparison)),
    Kind(name="parity", table="speed", rows=speed.parity_rows, faults=checks.parity, lead=itemgetter(0)),
)  # fmt: skip


def kinds(families: Families) -> dict[str, Kind]:
    """The kinds by name, in the order of their chapters in the report; each size axis of the families has a sweep."""
    sizes = {axis.name: axis for family in families.values() for axis in family.sizes}
    return {kind.name: kind for kind in (*KINDS, *map(_sweep, sizes.values()), *LAST)}


def check(config: Config) -> None:
    """Check that the runs of each study allow its comparison.

    Raises:
        UserError: names the study, what is wrong and what to do; the first problem found.
    """
    families = kinds(config.families)
    for study in config.studies:
        if study.kind not in families:
            raise UserError(
                f"studies.{study.name}.kind: no kind of study is called {study.kind}{suggestion(study.kind, families)}"
            )
        for fault in families[study.kind].faults(study, config):
            raise UserError(f"studies.{study.name}: {fault}")
