"""Convergence: the error of simulators against the length of their steps, and against what a training step costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from ketscale.analysis import verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds.kind import Answer, Figure
from ketscale.analysis.kinds.speed import WORK, Speed
from ketscale.analysis.points import BUSY, HOLLOW, Group, usable, variants
from ketscale.analysis.wording import digits, distinct, interval, listed, sentence, subject
from ketscale.config import STEP, TOLERANCE, Config, Simulator
from ketscale.grid import Study
from ketscale.words import duration

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

# States that are further than this from physical ones are marked.
PHYSICAL = 1e-9
# An error of zero has no place on a logarithmic axis; this is the rounding of a double between 1/2 and 1.
LEAST = 2.0**-53
# The errors at which the answer names the cheapest simulator.
ERRORS = (1e-3, 1e-6, 1e-9)


class Convergence(Speed):
    """Simulators that take steps, beside exact ones."""

    name = "convergence"
    varies = "simulator"

    def __init__(self) -> None:
        caption = (
            "How far each simulator's results are from exact ones, against the length of its steps and against the time "
            "of a training step. The error is the simulator's own, at random inputs, whatever was trained. No other "
            "simulator is both as fast and as exact as one on the frontier; errors up to that of a simulator without "
            "steps are rounding and count as equal. Crosses mark simulators whose states are not physical."
        )
        self.figure = Figure(self.name, "Error against step and cost", caption, (self.name,), self.draw)

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require several simulators, one of them with a step, and runs whose error and step time are measured."""
        for run in study.runs:
            family, protocol = config.family(run.workload), config.protocols[run.protocol]
            if run.simulator not in config.simulators or family.about("error") is None:
                yield f"the error of simulator {run.simulator} is not measured with {run.workload} and {run.model}; leave it out"
            if not (protocol.by_epochs and protocol.timed):
                yield (
                    f"convergence needs a test and the time of a step, but protocol {run.protocol} has no epochs or is "
                    "not timed; give it epochs and timed: true"
                )
        names = dict.fromkeys(run.simulator for run in study.runs)
        steps = [config.simulators[name].step for name in names if name in config.simulators]
        if len(names) < 2 or not any(steps):
            yield (
                "a study of kind convergence compares several simulators, of which at least one takes steps; "
                f"give simulator a list of them, some with {STEP}"
            )

    def compared(self, study: Study, group: Group, collected: Collected) -> Mapping[str, Any]:
        """The simulator's step, and the largest error and negativity of the point's runs."""
        first, config = group[0], collected.config
        family = config.family(first["workload"])
        found = {
            **super().compared(study, group, collected),
            "dt": config.simulators[first["simulator"]].step,
        }
        for column, metric in (("error", family.about("error")), ("negativity", family.about("unphysical"))):
            values = [row[f"test_{metric.name}"] for row in usable(group)[0]] if metric else []
            found[column] = max((value for value in values if value is not None), default=None)
        return found

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """The cheapest simulator at each of several errors, with its factor over the next that is as exact."""
        points = inputs.points(study.name)
        points = points[points["error"].notna()]
        if points.empty:
            return Answer("No simulator has an error and a step time yet.", verdicts.OPEN)
        quiet = points[points["flag"] != BUSY]
        if quiet.empty:
            return Answer(
                "Every simulator was timed on a busy machine, so costs are not known.", verdicts.DISTURBED
            )
        words = distinct(quiet, inputs.config, ("simulator",))
        # By name and cheapest simulator: the errors at which it is, and all that reach the smallest of them.
        found: dict[tuple[str, str], tuple[list[float], pd.DataFrame]] = {}
        for name, group in quiet.assign(words=words).groupby("words", sort=False):
            for most in ERRORS:
                able = group[group["error"] <= most].sort_values("step_s")
                if len(able):
                    key = str(name), str(able.iloc[0]["simulator"])
                    found[key] = ([*found.get(key, ([], able))[0], most], able)
        if not found:
            least = quiet.sort_values("error").iloc[0]
            reached = f"the least is {least['error']:.1e}, of {least['simulator']}"
            text = f"No simulator has an error of at most {ERRORS[0]:g}; {reached}."
            return Answer(text, "none is exact enough", "error", float(least["error"]))
        ratios = {
            key: inputs.faster(able.iloc[0], able.iloc[1])
            for key, (_, able) in found.items()
            if len(able) > 1
        }
        count = verdicts.decided(ratios.values())
        clauses = [
            _cheapest(name, *found[name, simulator], ratios.get((name, simulator)), count)
            for name, simulator in found
        ]
        compared = [clause for clause in clauses if clause.effect is not None]
        about = f"for {subject(quiet, inputs.config, ('simulator',))}"
        text = sentence(about, [clause.text for clause in clauses]) + verdicts.about_together(count)
        return replace((compared or clauses)[-1], text=text)

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame]:
        """Error against step and against time, both logarithmic; one row of panels per study."""
        import matplotlib.pyplot as plt
        import pandas as pd

        named = [(name, points[points["error"].notna()]) for name, points in inputs.of(self.name)]
        studies = [(name, points) for name, points in named if len(points)]
        if not studies:
            return style.empty(inputs, inputs.asked(self.name))
        figure, grid = plt.subplots(
            len(studies),
            2,
            figsize=(9.5, 3.8 * len(studies)),
            squeeze=False,
            sharey="row",
            layout="constrained",
        )
        drawn = []
        for panels, (name, points) in zip(grid, studies, strict=True):
            others = variants(points, inputs.config, but=("simulator",))
            methods = points["simulator"].map(lambda each: method(inputs.config.simulators[each]))
            points = points.assign(
                line=methods.where(others == "", methods + ", " + others), on_frontier=on_frontier(points)
            ).sort_values(["line", "dt"])
            orders = {line: order(group) for line, group in points.groupby("line")}
            points["order"] = points["line"].map(orders)
            _study((panels[0], panels[1]), points, name, inputs)
            drawn.append(points)
        shown = pd.concat(drawn)
        note = (
            "Median time over seeds; order: the slope of the error on logarithmic axes, median over neighbouring steps; "
            f"errors below {LEAST:.0e} are drawn there"
        )
        style.footnote(figure, shown, inputs, [name for name, _ in studies], note)
        columns = [
            "study",
            "line",
            "order",
            "simulator",
            "dt",
            "error",
            "negativity",
            "step_s",
            "on_frontier",
        ]
        rest = [column for column in shown if column not in columns]
        return figure, shown[[*columns, *rest]]


def method(simulator: Simulator) -> str:
    """What a simulator is apart from its step: its device, and its settings that are not the usual ones."""
    usual = {field.name: field.default for field in msgspec.structs.fields(simulator)}
    content = simulator.content()
    return ", ".join(
        str(value)
        for name, value in content.items()
        if name not in (STEP, TOLERANCE) and value != usual[name]
    )


def order(points: pd.DataFrame) -> float:
    """The order of a method: the median slope of log error against log dt between neighbouring steps; NaN for one."""
    import numpy as np

    stepped = points[points["dt"].notna() & (points["error"] > 0)].sort_values("dt")
    slopes = np.diff(np.log(stepped["error"])) / np.diff(np.log(stepped["dt"]))
    return float(np.median(slopes)) if len(slopes) else float("nan")


def on_frontier(points: pd.DataFrame) -> pd.Series[bool]:
    """Whether no other point that does the same work is as good in time and error, and better in one of them.

    Times of a busy machine, and of runs that timed out, do not count.
    """
    hollow = points["flag"].isin(HOLLOW)
    rounding = points["error"].where(points["dt"].isna(), 0.0)
    floor = rounding.groupby([points[name] for name in WORK]).transform("max")
    levelled = points.assign(error=points[["error"]].assign(floor=floor).max(axis=1))[~hollow]

    def beaten(point: pd.Series) -> bool:
        rivals = levelled[(levelled[list(WORK)] == point[list(WORK)]).all(axis=1)]
        faster, closer = point["step_s"] - rivals["step_s"], point["error"] - rivals["error"]
        return bool(((faster >= 0) & (closer >= 0) & (faster + closer > 0)).any())

    found: pd.Series[bool] = ~levelled.apply(beaten, axis=1).astype(bool)
    return found.reindex(points.index, fill_value=False)


CONVERGENCE = Convergence()


def _cheapest(
    name: str, errors: list[float], able: pd.DataFrame, ratio: Estimate | None, comparisons: int
) -> Answer:
    """The clause about the cheapest simulator at some errors; `ratio`: its factor over the next, if there is one."""
    first, of = able.iloc[0], f"speed of {able.iloc[0]['simulator']}"
    text = (
        f"{name}{', ' if name else ''}at an error of at most {listed(f'{error:g}' for error in errors)} the cheapest "
        f"is {first['simulator']} ({duration(first['step_s'])} a step, error {first['error']:.1e})"
    )
    if ratio is None:
        return Answer(text, "only one is exact enough", of)
    wide, other = verdicts.together(ratio, comparisons), able.iloc[1]["simulator"]
    verdict = verdicts.gain(wide)
    text += f", {digits(wide.value)} times as fast as {other}, the next at the smallest of these errors ({interval(wide)}): {verdicts.CLAUSES[verdict]}"
    return Answer.by(text, verdict, f"{of} over {other}", wide)


def _study(panels: tuple[Axes, Axes], points: pd.DataFrame, name: str, inputs: Inputs) -> None:
    left, right = panels
    # Zero has no logarithm.
    points = points.assign(height=points["error"].clip(lower=LEAST))
    for number, (line, group) in enumerate(points.groupby("line", sort=True)):
        look = style.line(number)
        shapes = group["negativity"].gt(PHYSICAL).map({True: "X", False: style.marker(number)})
        stepped = group[group["dt"].notna()]
        for axes, column in ((left, "dt"), (right, "step_s")):
            axes.plot(stepped[column], stepped["height"], lw=1.5, alpha=0.7, **look)
            for (_, point), marker in zip(group.iterrows(), shapes, strict=True):
                hollow = point["flag"] in HOLLOW and column == "step_s"
                more = {"marker": marker, "ms": 7, "zorder": 3}
                style.dot(axes, point[column], point["height"], look["color"], hollow, **more)
        for height in group["height"][group["dt"].isna()]:
            left.axhline(height, lw=1.5, color=look["color"], ls="--", alpha=0.7)
        slope = group["order"].iloc[0]
        label = f"{line} (order {slope:.1f})" if slope == slope else str(line)
        right.plot([], [], marker=shapes.mode()[0], label=label, **look)
    for axes, words in ((left, "length of a step"), (right, "time per training step")):
        axes.set(xlabel=f"{words} (log scale)")
    first = points.iloc[0]
    metric = inputs.config.family(first["workload"]).about("error")
    left.set(title=name, ylabel=metric.title if metric else "error")
    style.log_numbers(left.yaxis)
    right.yaxis.set_tick_params(labelleft=False)
    style.log_numbers(left.xaxis)
    style.log_seconds(right.xaxis)
    _frontiers(right, points)
    worst = points["negativity"].max()
    if worst > PHYSICAL:
        label = f"states leave the physical\nones by up to {worst:.1e}"
        right.plot([], [], ls="", marker="X", color=style.SOFT, ms=7, label=label)
    style.legend(right)


def _frontiers(axes: Axes, points: pd.DataFrame) -> None:
    """A step line through the frontier of each kind of work, up from the fastest and right from the most exact."""
    (_, most_s), (_, highest) = axes.get_xlim(), axes.get_ylim()
    for number, (_, group) in enumerate(points[points["on_frontier"]].groupby(list(WORK))):
        best = group.sort_values(["step_s", "height"])
        x = [best["step_s"].iloc[0], *best["step_s"], most_s]
        y = [highest, *best["height"], best["height"].iloc[-1]]
        label = "" if number else "frontier"
        axes.step(x, y, where="post", color=style.FRAME, lw=1, label=label, zorder=1)
    axes.set(xlim=(None, most_s), ylim=(None, highest))
