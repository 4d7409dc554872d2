"""Convergence: the error of simulators against the length of their steps, and against what a training step costs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ketscale.analysis import verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.drawing import plots, style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Axes, Drawing, np, pd
from ketscale.analysis.kinds import gains
from ketscale.analysis.kinds.gains import Entry
from ketscale.analysis.kinds.kind import Answer
from ketscale.analysis.kinds.speed import WORK, Speed
from ketscale.analysis.points import FOUND, HOLLOW, Group, usable, variants
from ketscale.analysis.wording import SHORT, fitting, takes
from ketscale.config import STEP, TOLERANCE, Config, Simulator
from ketscale.grid import Study

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

    title = "Error against step and cost"
    caption = (
        "How far each simulator's results are from exact ones, at random inputs, against the length of its steps and the "
        "time of a training step. No other simulator is both as fast and as exact as one on the frontier."
    )
    missing = empty = "no simulator has an error and a step time"

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

    def entries(self, study: str, inputs: Inputs) -> list[Entry]:
        """Each simulator beside the fastest that is as exact."""
        points = gains.points(study, inputs)
        points = points[points["error"].notna()].reset_index(drop=True)
        points = points.assign(work=variants(points, inputs.config, ("simulator",)))
        rivals = fastest_as_exact(points)
        beaten = {at: rival for at, rival in rivals.items() if rival not in (None, at)}
        others = [points.loc[beaten[at]] if at in beaten else None for at in points.index]
        points["name"] = points["simulator"].where(
            points["work"] == "", points["simulator"] + " (" + points["work"] + ")"
        )
        points["beside"] = ["" if other is None else str(other["simulator"]) for other in others]
        lines = points.assign(line=_methods(points, inputs)).groupby("line")
        orders = {name: order(group) for _, group in lines for name in group["simulator"]}

        def more(point: pd.Series) -> dict[str, str]:
            slope = orders.get(point["simulator"], float("nan"))
            return {
                "error": f"{point['error']:.1e}",
                "order": f"{slope:.1f}" if slope == slope else "",
                "states": f"unphysical by {worst:.1e}" if (worst := point["negativity"]) > PHYSICAL else "",
            }

        return gains.compared(points, others, inputs, verdicts.losses, more=more)

    def known(self, rows: Sequence[Entry]) -> list[Entry]:
        """The cheapest may be the only one, with nothing to compare it with."""
        return list(rows)

    def tell(self, known: Sequence[Entry], rows: Sequence[Entry], inputs: Inputs) -> Answer:
        """The cheapest simulator at the smallest of `ERRORS` that one reaches, beside the next that is as exact.

        Of several kinds of work it is about the first; rows are about all.
        """
        first = min(each.point["work"] for each in rows)
        timed = [each for each in rows if each.point["flag"] not in HOLLOW and each.point["step_s"] > 0]
        sound = [each for each in timed if each.point["work"] == first]
        sound.sort(key=lambda each: each.point["step_s"])
        if not sound:
            answer = gains.nothing([each.told for each in rows], "no simulator was timed on a quiet machine")
            return replace(answer, verdict=verdicts.DISTURBED) if answer.verdict == verdicts.OPEN else answer
        reached = {
            most: some for most in ERRORS if (some := [each for each in sound if each.point["error"] <= most])
        }
        if not reached:
            least = min(sound, key=lambda each: each.point["error"])
            text = f"No simulator has an error of at most {ERRORS[0]:g}; {least.point['simulator']} comes nearest, {least.point['error']:.1e}."
            return Answer(text, verdicts.OPEN, short="None is exact enough")
        notes = [
            f"At an error of at most {most:g} the cheapest is {some[0].told.point}."
            for most, some in reached.items()
        ]
        most, (cheapest, *others) = list(reached.items())[-1]
        name, at = cheapest.point["simulator"], f" ({first})" if first else ""
        start = f"At an error of at most {most:g} the cheapest is {name}"
        short = fitting(
            f"The cheapest at an error of {most:g}: {name}", f"The cheapest: {name}", limits=SHORT
        )
        answer = Answer(f"{start}, the only one.", verdicts.OPEN, short=short, notes=tuple(notes))
        if not others:
            return answer
        found, other = inputs.compared(others[0].point, cheapest.point), others[0].point["simulator"]
        # The verdict holds together with those of the rows, of which the comparison may be one.
        told = ((each, each.point[FOUND]) for each in rows)
        rest = [one for each, one in told if one and (each is not others[0] or one != found)]
        verdict, *_ = verdicts.losses([found, *rest])
        if found.ratio is None:
            return replace(answer, text=f"{start}: {gains.said(verdict)}.", verdict=verdict)
        unsure = f"is not surely slower: {gains.said(verdict)}"
        slowness = found.ratio.inverse()
        says = takes(slowness.value) if verdict == verdicts.SLOWER else unsure
        text = fitting(*(f"{start}{words}: {other}, the next, {says}." for words in (at, "")))
        of = f"step time of {other} beside {name}"
        return replace(answer, text=text, verdict=verdict, of=of, effect=slowness, unit=gains.LONGER)

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
        """Error against step and against time, both logarithmic; two panels for each data set."""
        points = inputs.points_of(self.name)
        points = points[points["error"].notna()].reset_index(drop=True)
        if len(points) < 2:
            return None
        methods = _methods(points, inputs)
        others = variants(points, inputs.config, (self.varies, "workload"))
        points = points.assign(
            line=methods.where(others == "", methods + ", " + others),
            on_frontier=on_frontier(points),
            hollow=points["flag"].isin(HOLLOW),
            # Zero has no logarithm.
            height=points["error"].clip(lower=LEAST),
            shape=points["negativity"].gt(PHYSICAL).map({True: "X", False: "o"}),
        ).sort_values(["line", "dt"])
        orders = {line: order(group) for line, group in points.groupby("line")}
        points["order"] = points["line"].map(orders)
        metric = inputs.config.family(points["workload"].iloc[0]).about("error")
        label = textwrap.fill(metric.title if metric else "error", 26)
        panels = list(plots.parts(points, inputs, "line"))
        figure, grid = style.panels(2 * len(panels))
        named = []
        for number, axes in enumerate(grid):
            title, part = panels[number // 2]
            column, words = (("dt", "length of a step"), ("step_s", "time of a training step"))[number % 2]
            named.append(plots.curves(axes, part, column, "height"))
            axes.set(title=title, xlabel=f"{words} (log scale)", ylabel=label)
            style.log_numbers(axes.yaxis)
            (style.log_numbers if column == "dt" else style.log_seconds)(axes.xaxis)
        plots.alike(grid, [part for _, part in panels for _ in range(2)])
        for (_, part), axes in zip(panels, grid[1::2], strict=True):
            _frontiers(axes, part)
        for axes, ends in zip(grid, named, strict=True):
            style.name_lines(axes, ends)
        note = f"Errors below {LEAST:.0e} are drawn there; crosses: states that are not physical"
        style.footnote(figure, points, inputs, inputs.asked(self.name), note)
        return figure, points


def _methods(points: pd.DataFrame, inputs: Inputs) -> pd.Series[str]:
    """The method of each point."""
    return points["simulator"].map(lambda name: method(inputs.config.simulators[name]))


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
    stepped = points[points["dt"].notna() & (points["error"] > 0)].sort_values("dt")
    slopes = np.diff(np.log(stepped["error"])) / np.diff(np.log(stepped["dt"]))
    return float(np.median(slopes)) if len(slopes) else float("nan")


def on_frontier(points: pd.DataFrame) -> pd.Series[bool]:
    """Whether no other point that does the same work is as good in time and error, and better in one of them."""
    rivals = fastest_as_exact(points)
    return pd.Series([rivals[at] == at for at in points.index], index=points.index, dtype=bool)


def fastest_as_exact(points: pd.DataFrame) -> dict[Any, Any]:
    """For each point, by index, the fastest of those that do the same work with no larger error; None without one.

    Times of a busy machine, and of runs that timed out, do not count. Errors up to that of a simulator without steps are
    rounding, and equal.
    """
    rounding = points["error"].where(points["dt"].isna(), 0.0)
    floor = rounding.groupby([points[name] for name in WORK]).transform("max")
    levelled = points.assign(level=points[["error"]].assign(floor=floor).max(axis=1))
    sound = levelled[~levelled["flag"].isin(HOLLOW)].sort_values(["step_s", "level", "simulator"])

    def rival(point: pd.Series) -> Any:
        able = sound[
            (sound[list(WORK)] == point[list(WORK)]).all(axis=1) & (sound["level"] <= point["level"])
        ]
        return able.index[0] if len(able) else None

    return {at: rival(point) for at, point in levelled.iterrows()}


CONVERGENCE = Convergence()


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
