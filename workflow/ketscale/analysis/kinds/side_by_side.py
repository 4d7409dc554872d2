"""Step times side by side: simulators, and cached against inline features."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ketscale.analysis import verdicts
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds.kind import Answer, Figure
from ketscale.analysis.kinds.speed import WORK, Speed
from ketscale.analysis.points import BUSY, TIMED_OUT, size_words, variants
from ketscale.analysis.wording import digits, distinct, interval, listed, sentence, subject, where
from ketscale.config import Config
from ketscale.grid import POINT, Study
from ketscale.words import duration

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


class SideBySide(Speed):
    """The step time for each value of one axis."""

    def __init__(self, name: str, varies: str, figure: str, title: str, caption: str) -> None:
        """name: of the kind. varies: the compared column. figure, title, caption: name and texts of its figure."""
        self.name = name
        self.varies = varies
        self.figure = Figure(figure, title, caption, (name,), self.draw)

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require at least two values."""
        if len({getattr(run, self.varies) for run in study.runs}) < 2:
            yield f"a study of kind {self.name} compares values of {self.varies}, but has only one; give a list of them"

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """The fastest at each work, and its factor over the next and the slowest one."""
        import pandas as pd

        points = pd.concat([inputs.points(study.name), inputs.beyond_limit(study.name)], ignore_index=True)
        if points.empty:
            return _none(self.varies)
        layouts = points["layout"].map(where).radd(" on ") if points["layout"].nunique() > 1 else ""
        words = distinct(
            points,
            inputs.config,
            ("layout", self.varies, *(["protocol"] if self.varies == "features" else [])),
        )
        late = (points["flag"] == TIMED_OUT) | points["step_s"].isna()
        races = [
            _Race(
                [
                    (point, inputs.faster(group.iloc[0], point))
                    for _, point in group[~group["late"]].iterrows()
                ],
                str(group["words"].iloc[0]),
                list(group.loc[group["late"], "entry"]),
            )
            for _, group in points.assign(entry=points["value"] + layouts, words=words, late=late)
            .sort_values(["late", "step_s"])
            .groupby("words", sort=False)
            if len(group) > 1
        ]
        if not races:
            return _none(self.varies)
        count = verdicts.decided(ratio for race in races for _, ratio in race.points[1:])
        clauses = [_clause(race, count) for race in races]
        lead = max(clauses, key=lambda clause: clause.effect or 0)
        about = f"for {subject(points, inputs.config, ('layout', self.varies))}"
        text = sentence(about, [clause.text for clause in clauses]) + verdicts.about_together(count)
        return replace(lead, text=text)

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame]:
        """Step times on a logarithmic axis: every seed, and the median."""
        import matplotlib.pyplot as plt
        import pandas as pd

        studies = inputs.of(self.name)
        if not studies:
            return style.empty(inputs, inputs.asked(self.name))
        studies = [(name, pd.concat([points, inputs.beyond_limit(name)])) for name, points in studies]
        rows = [len(points) for _, points in studies]
        figure, grid = plt.subplots(
            len(studies),
            figsize=(9.5, 0.9 * len(studies) + 0.3 + 0.55 * sum(rows)),
            squeeze=False,
            height_ratios=rows,
            layout="constrained",
        )
        for axes, (name, points) in zip(grid[:, 0], studies, strict=True):
            self._rows(axes, points, inputs)
            axes.set_title(": ".join(filter(None, [name, ", ".join(_shared(points, inputs))])))
            axes.set_xlabel("time per training step (log scale)")
        drawn = pd.concat([points for _, points in studies])
        note = "Dots: seeds; bar: median; in brackets: time relative to the fastest at the same work"
        if drawn["circuit_s"].notna().any():
            note += ". Thin bar: the circuits alone, forward and backward, in a few sampled steps"
        style.footnote(figure, drawn, inputs, [name for name, _ in studies], note)
        return figure, drawn

    def _rows(self, axes: Axes, points: pd.DataFrame, inputs: Inputs) -> None:
        seeds = inputs.seeds(points)
        points = points.assign(fastest_s=points.groupby(list(WORK))["step_s"].transform("min"))
        points = points.sort_values(["fastest_s", *WORK, "step_s"])
        names = list(inputs.config.simulators)
        for height, (_, point) in enumerate(points.iterrows()):
            colour = style.colour(names.index(point["value"]) if point["value"] in names else height)
            if math.isnan(point["step_s"]):
                said = f"timed out after {_steps(point['steps'])}, the first of {duration(point['first_step_s'])}"
                axes.annotate(
                    said, (0.01, height), xycoords=("axes fraction", "data"), va="center", fontsize=9
                )
                continue
            own = seeds[(seeds[list(POINT)] == point[list(POINT)]).all(axis=1)].sort_values("seed")
            axes.plot(
                [point["step_s"]] * 2,
                [height - 0.28, height + 0.28],
                color=colour,
                lw=3,
                solid_capstyle="round",
            )
            if point["circuit_s"] > 0:
                style.dot(axes, point["circuit_s"], height, colour, True, marker="|", ms=11, mew=2)
            for order, (_, seed) in enumerate(own.iterrows()):
                offset = 0.36 * ((order + 0.5) / len(own) - 0.5)
                style.dot(axes, seed["step_s"], height + offset, colour, seed["hollow"], ms=5.5, alpha=0.85)
            paired = point["speedup_best_serial"]
            factor = 1 / paired if 0 < paired < 1 else point["step_s"] / point["fastest_s"]
            said = "fastest" if point["step_s"] == point["fastest_s"] else _factor(factor)
            # A factor of so few steps would say more than was measured.
            if 0 < point["n"] <= point["timed_out"]:
                said = f"timed out, {_steps(point['timed_steps'])} timed"
            axes.annotate(
                f"{duration(point['step_s'])}  ({said})",
                (max(point["step_high_s"], point["step_s"], *own["step_s"]), height),
                (10, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
        others = variants(points, inputs.config, but=(self.varies, "protocol"))
        words = [", ".join(filter(None, pair)) for pair in zip(points["value"], others, strict=True)]
        axes.set_yticks(range(len(points)), words)
        axes.set_ylim(len(points) - 0.4, -0.6)
        low, high = points[["step_low_s", "circuit_s"]].min().min(), points["step_high_s"].max()
        axes.set_xlim(low / 1.3, high * (high / low) ** 0.25 * 1.5)
        style.log_seconds(axes.xaxis)
        axes.grid(False, axis="y")


def _none(varies: str) -> Answer:
    return Answer(f"Fewer than two values of {varies} have been timed at the same work yet.", verdicts.OPEN)


class _Race(NamedTuple):
    """Points that do the same work, the fastest first, each with the fastest's factor over it.

    words: what this work is. late: those that timed out. They have no factor, since the few steps that they made would say
    more than was measured.
    """

    points: Sequence[tuple[pd.Series, Estimate]]
    words: str
    late: Sequence[str]


def _clause(race: _Race, comparisons: int) -> Answer:
    late = f"{listed(race.late)} timed out" if race.late else ""
    work = f"{race.words}, " if race.words else ""
    if not race.points:
        return Answer(work + late, verdicts.OPEN)
    (first, _), *others = race.points
    circuits = f" (circuits {duration(first['circuit_s'])})" if first["circuit_s"] > 0 else ""
    text = f"{work}{first['entry']} is the fastest at {duration(first['step_s'])} a step{circuits}"
    ending = f"; {late}" if late else ""
    if not others:
        return Answer(text + ending, verdicts.OPEN)
    told = []
    for rank, (point, found) in {"next": others[0], "slowest": others[-1]}.items():
        ratio = verdicts.together(found, comparisons)
        told.append(
            f"{digits(ratio.value)} times as fast as {point['entry']}, the {rank} ({interval(ratio)})"
        )
    second, ratio = others[0][0], verdicts.together(others[0][1], comparisons)
    busy = BUSY if BUSY in (first["flag"], second["flag"]) else ""
    verdict = verdicts.gain(ratio, busy)
    unsure = "" if verdict == verdicts.PAYS else f": {verdicts.CLAUSES[verdict]}"
    slowest = f"; it is {told[1]}" if len(others) > 1 else ""
    text = f"{text}, {told[0]}{unsure}{slowest}{ending}"
    return Answer.by(text, verdict, f"speed of {first['entry']} over {second['entry']}", ratio)


def _shared(points: pd.DataFrame, inputs: Inputs) -> list[str]:
    """What all points of a study share, in words."""
    first = points.iloc[0]
    words = {
        "model": first["model"],
        "size": size_words(inputs.config, first["workload"], first["size"]),
        "batch": f"batch {first['batch']}",
    }
    return [word for name, word in words.items() if word and points[name].nunique() == 1]


def _steps(number: float) -> str:
    return f"{number:.0f} step{'' if number == 1 else 's'}"


def _factor(value: float) -> str:
    return f"{value:,.0f}x" if value >= 100 else f"{value:.3g}x"


class Features(SideBySide):
    """Cached against inline features."""

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require both."""
        if {config.protocols[run.protocol].features for run in study.runs} != {"cached", "inline"}:
            yield (
                "a study of kind features compares protocols with features: cached and features: inline; "
                "give it one of each"
            )


SIMULATOR = SideBySide(
    "simulator",
    "simulator",
    "simulators",
    "Simulators",
    "Time of one training step with each simulator, on a logarithmic axis. Each dot is a seed; the bar is their "
    "median. Warm-up steps are left out.",
)
FEATURES = Features(
    "features",
    "features",
    "features",
    "Cached and inline features",
    "The same training with features that are read from the cache, and with the feature network run in every step.",
)
