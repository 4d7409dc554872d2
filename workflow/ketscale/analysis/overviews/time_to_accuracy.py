"""Accuracy against time: how long models train until their validation metric first reaches a level.

A seed that never reaches a level has an infinite time, and medians include it, so that nothing is averaged over
survivors. As in MLPerf Training (Mattson et al., MLSys 2020), the time to a quality is what counts, not that of an epoch.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds import Figure
from ketscale.analysis.kinds.accuracy import Part, footnote, parts
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
class Progress:
    """The training of the models of one data set.

    epochs: curve, seed, trained_s (seconds of training epochs so far) and best (the best of the metric so far). seeds: how
    many each curve has. untimed: how many runs have unknown times.
    """

    part: Part
    epochs: pd.DataFrame
    seeds: Mapping[str, int]
    untimed: int

    def reached(self, curve: str, level: float) -> list[float]:
        """Seconds until each seed of a curve first reaches a level; infinite for those that never do."""
        mine = self.epochs[self.epochs["curve"] == curve]
        up = self.part.metric.better == "up"
        enough = mine["best"] >= level if up else mine["best"] <= level
        first = mine[enough].groupby("seed")["trained_s"].min().tolist()
        return [*first, *[math.inf] * (self.seeds[curve] - len(first))]

    def target(self) -> float | None:
        """The level that the median seed of every curve reaches that reaches any; None if there is none."""
        up, ends = self.part.metric.better == "up", []
        for curve, seeds in self.seeds.items():
            best = self.epochs[self.epochs["curve"] == curve].groupby("seed")["best"].last().dropna()
            # As many seeds as a finite median needs.
            ends += sorted(best, reverse=up)[seeds // 2 : seeds // 2 + 1]
        return (min if up else max)(ends, default=None)


def draw(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """The times to a level: a panel for each data set."""
    import pandas as pd

    asked = inputs.asked(KIND)
    found = [each for name in asked for part in parts(inputs, name) if (each := trained(part, inputs))]
    shown = [(each, level) for each in found if (level := each.target()) is not None]
    if not shown:
        return None
    figure, panels = style.panels(len(shown), least=3.4)
    drawn = [_times(axes, *what) for axes, what in zip(panels, shown, strict=True)]
    footnote(figure, [each.part for each in found], inputs, asked, ". ".join(_notes(inputs, found, asked)))
    return figure, pd.concat(drawn)


def progress(history: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """The rows of history.csv with trained_s and best; trained_s is unknown from an epoch of unknown time on."""
    ordered = history.sort_values([*RUN, "epoch"])
    runs = ordered.groupby(RUN, sort=False)
    unknown = ordered["epoch_s"].isna().groupby([ordered[name] for name in RUN], sort=False).cummax()
    values = runs[f"validation_{metric.name}"]
    best = values.cummax() if metric.better == "up" else values.cummin()
    ordered = ordered.assign(trained_s=runs["epoch_s"].cumsum().mask(unknown), best=best)
    return ordered.assign(best=ordered.groupby(RUN, sort=False)["best"].ffill())


def trained(part: Part, inputs: Inputs) -> Progress | None:
    """The training of a data set's models; None if no epoch has their headline metric."""
    runs = part.of(inputs.runs)
    history = inputs.history.merge(runs[[*RUN, "curve", "status"]], on=RUN)
    if f"validation_{part.metric.name}" not in history or history.empty:
        return None
    known = progress(history, part.metric)
    untimed = known[known["trained_s"].isna()][RUN].drop_duplicates()
    # A run that failed, or whose time is unknown, reaches no level: it has no usable model, or no time.
    whole = known.merge(untimed.assign(untimed=True), on=RUN, how="left")
    whole = whole[whole["untimed"].isna() & (whole["status"] == "completed")]
    if not whole["best"].notna().any():
        return None
    seeds = runs.groupby("curve")["seed"].nunique()
    ordered = {str(curve): int(seeds[curve]) for curve in part.models["curve"]}
    return Progress(part, whole[["curve", "seed", "trained_s", "best"]], ordered, len(untimed))


def _times(axes: Axes, found: Progress, level: float) -> pd.DataFrame:
    """Each seed's time to a level, with the median over all seeds, and how many never reach it; the data drawn."""
    import pandas as pd

    rows, said = [], []
    for height, curve in enumerate(found.seeds):
        seconds, colour = found.reached(curve, level), style.colour(height)
        known = [value for value in seconds if value < math.inf]
        style.dot(axes, known, [height] * len(known), colour, False, ms=5, alpha=0.8)
        median = statistics.median(seconds)
        if median < math.inf:
            axes.plot([median] * 2, [height - 0.2, height + 0.2], lw=2.5, color=colour)
        rows += [(curve, value if value < math.inf else None) for value in seconds]
        said.append(words_of(median, len(seconds) - len(known), len(seconds)))
    style.log_seconds(axes.xaxis)
    style.name_rows(axes, found.seeds, said)
    metric, workload = found.part.metric, found.part.workload
    axes.set(title=f"{workload}: {metric.title} {level:.3g}", xlabel="training time (log scale)")
    data = pd.DataFrame(rows, columns=["curve", "reached_s"])
    return data.assign(study=found.part.study, workload=workload, metric=metric.name, target=level)


def words_of(median: float, never: int, seeds: int) -> str:
    """For example 'median 2.1 s; 1 of 3 seeds never'."""
    said = f"median {duration(median)}" if median < math.inf else "no median"
    return f"{said}; {never} of {seeds} seeds never" if never else said


def _notes(inputs: Inputs, found: Sequence[Progress], asked: Sequence[str]) -> Iterator[str]:
    yield (
        "Time: measured training epochs, without start and validation. A run that failed reaches no level, and a median "
        "includes seeds that never do"
    )
    if untimed := sum(each.untimed for each in found):
        yield f"{untimed} runs were resumed within an epoch, so their times are unknown, and count as never"
    studies = inputs.runs["studies"].fillna("").map(lambda text: bool(set(asked) & set(text.split())))
    if not inputs.runs[studies]["timed"].all():
        yield "Runs that are not timed may have shared the machine"
    if together := int((inputs.runs[studies]["cohort"] > 1).sum()):
        yield (
            f"{together} runs were trained together with others of their shape, and have their share of the time; to time "
            "models alone, set timed: true or cohorts: false"
        )


TIME_TO_ACCURACY = Figure(
    "time_to_accuracy",
    "Accuracy against training time",
    "The time of training until the validation metric first reaches the best level that the median seed of every model "
    "reaches. A seed that never reaches it counts as never.",
    (KIND,),
    draw,
)
