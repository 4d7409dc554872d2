"""Accuracy against time: how long models train until their validation metric first reaches a level.

A seed that never reaches a level has an infinite time, and medians include it, so that nothing is averaged over
survivors. As in MLPerf Training (Mattson et al., MLSys 2020), the time to a quality is what counts, not that of an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds import Figure
from ketscale.analysis.kinds.accuracy import curves
from ketscale.config import Metric
from ketscale.grid import POINT
from ketscale.words import duration

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

KIND = "accuracy"
RUN = [*POINT, "seed"]


@dataclass(frozen=True)
class Part:
    """The trained models of one workload of a study.

    progress: curve, seed, epoch, trained_s (seconds of training epochs so far) and best (the best of the metric so far).
    seeds: how many each curve has. chance: what guessing gives. untimed: how many runs have unknown times.
    """

    study: str
    workload: str
    metric: Metric
    progress: pd.DataFrame
    seeds: dict[str, int]
    chance: float | None
    untimed: int


def draw(inputs: Inputs) -> tuple[Drawing, pd.DataFrame]:
    """The level reached against time, and the times to two levels: a row of panels for each study and workload."""
    import matplotlib.pyplot as plt
    import pandas as pd

    asked = inputs.asked(KIND)
    found = [part for name in asked for part in _parts(inputs, name)]
    if not found:
        return style.empty(inputs, asked)
    figure, grid = plt.subplots(
        len(found),
        3,
        figsize=(11.5, 3.3 * len(found)),
        layout="constrained",
        width_ratios=(4, 3, 3),
        squeeze=False,
    )
    drawn = []
    for panels, part in zip(grid, found, strict=True):
        medians = {curve: times(part, curve) for curve in part.seeds}
        _levels(panels[0], part, medians)
        targets = _targets(part, medians)
        for panel, (target, who) in zip(panels[1:], targets.items(), strict=False):
            drawn.append(_times_to(panel, part, target, who))
        for panel in panels[1 + len(targets) :]:
            panel.set_axis_off()
        drawn.append(part.progress.assign(study=part.study, workload=part.workload, metric=part.metric.name))
    points = inputs.quality[inputs.quality["study"].isin(asked)]
    points = points.merge(inputs.runs[[*POINT, "hardware", "code"]].drop_duplicates(list(POINT)))
    style.footnote(figure, points, inputs, asked, _note(inputs, found, asked))
    return figure, pd.concat(drawn)[
        ["study", "workload", "metric", "curve", "seed", "epoch", "trained_s", "best", "target", "reached_s"]
    ]


def progress(history: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """The rows of history.csv with trained_s and best; trained_s is unknown from an epoch of unknown time on."""
    ordered = history.sort_values([*RUN, "epoch"])
    runs = ordered.groupby(RUN, sort=False)
    unknown = ordered["epoch_s"].isna().groupby([ordered[name] for name in RUN], sort=False).cummax()
    values = runs[f"validation_{metric.name}"]
    best = values.cummax() if metric.better == "up" else values.cummin()
    ordered = ordered.assign(trained_s=runs["epoch_s"].cumsum().mask(unknown), best=best)
    return ordered.assign(best=ordered.groupby(RUN, sort=False)["best"].ffill())


def reached(progress: pd.DataFrame, level: float, metric: Metric, seeds: int) -> list[float]:
    """Seconds until each seed of one curve first reaches a level; infinite for those that never do."""
    enough = progress["best"] >= level if metric.better == "up" else progress["best"] <= level
    first = progress[enough].groupby("seed")["trained_s"].min().tolist()
    return [*first, *[math.inf] * (seeds - len(first))]


def times(part: Part, curve: str) -> pd.DataFrame:
    """Of each level that a seed of a curve has reached: the median, shortest and longest time over all seeds."""
    import numpy as np
    import pandas as pd

    mine = part.progress[part.progress["curve"] == curve]
    levels = sorted(mine["best"].dropna().unique(), reverse=part.metric.better == "down")
    rows = []
    for level in levels:
        seconds = reached(mine, level, part.metric, part.seeds[curve])
        rows.append((level, float(np.median(seconds)), min(seconds), max(seconds)))
    return pd.DataFrame(rows, columns=["level", "median", "low", "high"])


def _parts(inputs: Inputs, study: str) -> Iterator[Part]:
    """The study's workloads whose history has the headline metric, with its best and the time after each epoch."""
    mine = inputs.quality[inputs.quality["study"] == study]
    for workload, points in mine.groupby("workload", sort=False):
        metric = inputs.config.family(str(workload)).headline
        named = points[list(POINT)].assign(curve=curves(points, inputs))
        runs = inputs.runs.merge(named, on=list(POINT))
        history = inputs.history.merge(runs[[*RUN, "curve", "status"]], on=RUN)
        if f"validation_{metric.name}" not in history or history.empty:
            continue
        known = progress(history, metric)
        untimed = known[known["trained_s"].isna()][RUN].drop_duplicates()
        # Of a run that failed, or whose time is unknown, no level is reached: it has no usable model, or no time.
        whole = known.merge(untimed.assign(untimed=True), on=RUN, how="left")
        whole = whole[whole["untimed"].isna() & (whole["status"] == "completed")]
        if whole["best"].notna().any():
            seeds = runs.groupby("curve")["seed"].nunique()
            chance = runs["test_chance"].dropna()
            columns = ["curve", "seed", "epoch", "trained_s", "best"]
            yield Part(
                study, str(workload), metric, whole[columns], {str(c): int(n) for c, n in seeds.items()},
                float(chance.mean()) if len(chance) else None, len(untimed),
            )  # fmt: skip


def _targets(part: Part, medians: dict[str, pd.DataFrame]) -> dict[float, str]:
    """The level that the median seed of every curve reaches, and the best that that of some curve does."""
    better = max if part.metric.better == "up" else min
    worse = min if part.metric.better == "up" else max
    ends = [better(found["level"][found["median"] < math.inf], default=None) for found in medians.values()]
    known = [end for end in ends if end is not None]
    if not known:
        return {}
    best = {better(known): "of the best model"}
    return best if len(known) < len(ends) else {worse(known): "of every model"} | best


def _levels(axes: Axes, part: Part, medians: dict[str, pd.DataFrame]) -> None:
    """The level against the median time to it, with the range over seeds, and the end of each seed's training."""
    longest = part.progress["trained_s"].max() * 1.5
    for number, (curve, found) in enumerate(medians.items()):
        look = style.line(number)
        certain = found[found["median"] < math.inf]
        axes.step(certain["median"], certain["level"], where="post", lw=1.8, label=curve, **look)
        axes.fill_betweenx(
            found["level"],
            found["low"],
            found["high"].clip(upper=longest),
            color=look["color"],
            alpha=0.15,
            lw=0,
            step="post",
        )
        ends = part.progress[part.progress["curve"] == curve].groupby("seed")[["trained_s", "best"]].last()
        style.dot(
            axes, ends["trained_s"], ends["best"], look["color"], False, marker=style.marker(number), ms=5
        )
    if part.chance is not None:
        style.chance(axes, part.chance)
    style.log_seconds(axes.xaxis)
    if part.metric.better == "down" and style.wide(part.progress["best"]):
        axes.set_yscale("log")
    axes.set(
        title=f"{part.study}: {part.workload}",
        xlabel="training time (log scale)",
        ylabel=f"best validation\n{style.label(part.metric)} so far",
    )
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.22), ncols=1)


def _times_to(axes: Axes, part: Part, target: float, who: str) -> pd.DataFrame:
    """Each seed's time to a level, with the median over all seeds, and how many never reach it; the data drawn."""
    import numpy as np
    import pandas as pd

    rows, names = [], list(part.seeds)
    for height, curve in enumerate(names):
        mine = part.progress[part.progress["curve"] == curve]
        seconds = reached(mine, target, part.metric, part.seeds[curve])
        known = [value for value in seconds if value < math.inf]
        look = style.colour(height)
        style.dot(
            axes, known, [height] * len(known), look, False, marker=style.marker(height), ms=7, alpha=0.8
        )
        median = float(np.median(seconds))
        if median < math.inf:
            axes.plot([median] * 2, [height - 0.25, height + 0.25], lw=2.5, color=look)
        rows += [(curve, value if value < math.inf else None) for value in seconds]
        text = _words(median, len(seconds) - len(known), len(seconds))
        axes.annotate(
            text, (0.02, height + 0.42), xycoords=("axes fraction", "data"), fontsize=8.5, va="center"
        )
    style.log_seconds(axes.xaxis)
    axes.set_yticks(range(len(names)), [""] * len(names))
    axes.set_ylim(len(names) - 0.3, -0.6)
    axes.grid(False, axis="y")
    axes.set(title=f"{part.metric.title} {target:.3g}, {who}", xlabel="training time (log scale)")
    data = pd.DataFrame(rows, columns=["curve", "reached_s"])
    return data.assign(study=part.study, workload=part.workload, metric=part.metric.name, target=target)


def _words(median: float, never: int, seeds: int) -> str:
    """For example 'median 2.1 s; 1 of 3 seeds never'."""
    said = f"median {duration(median)}" if median < math.inf else "no median"
    return f"{said}; {never} of {seeds} seeds never" if never else said


def _note(inputs: Inputs, found: Sequence[Part], asked: Sequence[str]) -> str:
    notes = [
        "Time: measured training epochs, without start and validation. Line: median over seeds of the time to a level, "
        "in which a seed that never reaches it counts as never; band: range; dots: the end of each seed's training. A run "
        "that failed reaches no level"
    ]
    untimed = sum(part.untimed for part in found)
    if untimed:
        notes.append(
            f"{untimed} runs were resumed within an epoch, so their times are unknown, and count as never"
        )
    shown = {(part.study, part.workload) for part in found}
    mine = inputs.quality[inputs.quality["study"].isin(asked)][["study", "workload"]].drop_duplicates()
    absent = [f"{s} {w}" for s, w in mine.itertuples(index=False) if (s, w) not in shown]
    if absent:
        notes.append(f"Left out, since no epoch has the headline metric: {', '.join(absent)}")
    runs = inputs.runs[
        inputs.runs["studies"].fillna("").map(lambda text: bool(set(asked) & set(text.split())))
    ]
    if not runs["timed"].all():
        notes.append("Runs that are not timed may have shared the machine")
    together = int((runs["cohort"] > 1).sum())
    if together:
        notes.append(
            f"{together} runs were trained together with others of their shape, and have their share of the time; to time "
            "models alone, set timed: true or cohorts: false"
        )
    return ". ".join(notes)


TIME_TO_ACCURACY = Figure(
    "time_to_accuracy",
    "Accuracy against training time",
    "The best validation result so far against the time of training, and the time until it first reaches two levels: "
    "the best that the median seed of every model reaches, and the best that that of some model does. A seed that "
    "never reaches a level counts as never, and is said.",
    (KIND,),
    draw,
)
