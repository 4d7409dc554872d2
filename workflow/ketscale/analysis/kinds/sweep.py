"""Sweeps of one axis: the batch, or a size axis of the families."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ketscale.analysis import verdicts
from ketscale.analysis.drawing import plots, style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Axes, Drawing, pd
from ketscale.analysis.kinds import gains
from ketscale.analysis.kinds.gains import Entry
from ketscale.analysis.kinds.kind import Answer
from ketscale.analysis.kinds.speed import Speed, several
from ketscale.analysis.points import HOLLOW, axis_of, variants
from ketscale.analysis.wording import SHORT, capital, digits, even, fitting, samples, takes, times, where
from ketscale.config import Config, SizeAxis
from ketscale.grid import Study
from ketscale.words import duration

# If the slowest point takes this many times as long as the fastest, the time axis is logarithmic.
WIDE = 10.0
# What the names of a time and of the ends of its interval end with.
ENDS = ("", "_low", "_high")


class Sweep(Speed):
    """The step time against one axis, with one line for all points that differ in nothing else."""

    # The unit of the factor by which time grows, and what it is a factor of.
    unit, of = gains.LONGER, "step time"
    # It judges growth with the swept value; `judge` judges speedups over one worker, as elsewhere.
    grows: gains.Judge = staticmethod(verdicts.proportions)

    def __init__(self, name: str, varies: str, axis: str, caption: str) -> None:
        """name: of the kind and its figure. varies: the column on the axis. axis: its title."""
        self.name, self.varies, self.axis = name, varies, axis
        self.title, self.caption = f"Time against {axis}", caption
        self.missing = self.empty = f"fewer than two values of {axis} were timed"

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require at least two values, and that every run has one."""
        values = {axis_of(config, run, self.varies): run for run in study.runs}
        if None in values:
            yield f"models of {values[None].workload} have no {self.varies}; give them a study of their own"
        else:
            yield from several(self.name, f"values of {self.varies}", len(values), "a list of them")

    def entries(self, study: str, inputs: Inputs) -> list[Entry]:
        """Each value beside the smallest of its line."""
        points = self._lines(gains.points(study, inputs), inputs)
        timed = points[points["step_s"].notna()].drop_duplicates("line")
        firsts = {first["line"]: first for _, first in timed.iterrows()}
        points["first"] = points["line"].map({line: first["at"] for line, first in firsts.items()})
        points["growth"] = (points["at"] / points["first"]).where(points["at"] > points["first"], 1.0)
        grown = points["growth"] > 1
        points["beside"] = [
            self._at(one) if more else "" for one, more in zip(points["first"], grown, strict=True)
        ]
        points["name"] = [
            ", ".join(filter(None, (self._at(at), line)))
            for at, line in zip(points["at"], points["line"], strict=True)
        ]
        others = [firsts[line] if more else None for line, more in zip(points["line"], grown, strict=True)]
        return gains.compared(points, others, inputs, self.grows, self.unit, self.cells)

    def tell(self, known: Sequence[Entry], rows: Sequence[Entry], inputs: Inputs) -> Answer:
        """How much longer a step takes at the largest value than at the smallest, and by which law it grows."""
        # Each line is told by its largest value; the longest time, or the largest gain, leads.
        ends = {each.point["line"]: each for each in known}
        lead = max(ends.values(), key=lambda each: each.effect.value)
        many, verdict = len(ends) > 1, lead.told.verdict
        points = pd.DataFrame([each.point for each in rows])
        span = f"{lead.point['first']:,.0f} to {lead.point['at']:,.0f}"
        span = f"from {span} {self.axis}" if self.varies != "batch" else f"from batch {span}"
        # A factor below 1 is told as its inverse, of which that of the lead is the smallest.
        most = "up to" if lead.effect.value > 1 else "at least"
        says = self.says(lead.effect.value, most if many else "", samples(points, inputs.config))
        lines = (f" ({lead.point['line']})", "") if many else ("",)
        text = fitting(*(f"{capital(span)} {says}{line}: {gains.said(verdict)}." for line in lines))
        short = fitting(f"{says} {span}", says, limits=SHORT)
        notes = gains.tallied(each.told for each in known)
        of, unit = f"{self.of} {span}", lead.told.unit
        return Answer(text, verdict, of, lead.effect, unit, capital(short), notes=tuple(notes))

    def says(self, factor: float, most: str, named: str) -> str:
        """What a factor says. most: 'up to' or 'at least' where other lines differ. named: what samples are called."""
        return f"a step {takes(factor, most)}"

    def _at(self, value: float) -> str:
        one = self.axis.removesuffix("s") if value == 1 else self.axis
        return f"{value:,.0f} {one}" if self.varies != "batch" else f"batch {value:,.0f}"

    def cells(self, point: pd.Series) -> dict[str, str]:
        """Other cells of a row."""
        return {}

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
        """The time against the axis; a panel for each data set."""
        points = self.drawn(self._lines(inputs.points_of(self.name), inputs))
        points = points.assign(hollow=points["flag"].isin(HOLLOW), value=points["at"])
        if points.empty or points.groupby("line")["at"].nunique().max() < 2:
            return None
        ends = ("time_low_s", "time_high_s")
        return plots.lines(points, inputs, "at", "time_s", ends, partial(self.finish, inputs), "Typical time")

    def drawn(self, points: pd.DataFrame) -> pd.DataFrame:
        """The points with the time that is drawn, `time_s`, and the ends of its interval."""
        return points.assign(**{f"time{end}_s": points[f"step{end}_s"] for end in ENDS})

    def finish(self, inputs: Inputs, axes: Axes, part: pd.DataFrame) -> None:
        """The labels and scales of a panel."""
        axes.set(xlabel=self.axis, xticks=sorted(set(part["at"])), ylabel="time per step")
        axes.xaxis.set_major_formatter("{x:g}")
        if part["step_s"].max() >= WIDE * part["step_s"].min():
            style.log_seconds(axes.yaxis)
            return
        axes.set(xlim=(0, None), ylim=(0, 1.05 * axes.get_ylim()[1]))
        axes.yaxis.set_major_formatter(lambda value, _: duration(value) if value else "0")

    def _lines(self, points: pd.DataFrame, inputs: Inputs) -> pd.DataFrame:
        """The points with their value `at` on the axis, and the name of their `line`: whatever else the study varies."""
        # A larger batch may need a larger model; then the two grow together.
        tied = any(inputs.config.family(name).work for name in points["workload"].unique())
        but = (self.varies, "layout", "workload", *(["batch"] if tied else []))
        line = variants(points, inputs.config, but)
        if points["layout"].nunique() > 1:
            line = line.where(line == "", line + " on ") + points["layout"].map(where)
        named = points.assign(line=line, at=points[self.varies].astype(float))
        return named.sort_values(["line", "at"], kind="stable", ignore_index=True)


class Batch(Sweep):
    """The time of a sample against the batch."""

    unit, of = gains.FASTER, "samples a second"
    grows = staticmethod(verdicts.gains)

    def cells(self, point: pd.Series) -> dict[str, str]:
        """The time of an epoch, where it is known."""
        about = "about " if point["epoch_estimated"] else ""
        return {"epoch": f"{about}{duration(point['epoch_s'])}"} if point["epoch_s"] > 0 else {}

    def says(self, factor: float, most: str, named: str) -> str:
        """How many times as fast samples are trained."""
        slowly = factor < 1 and not even(factor)
        fast = f"{digits(1 / factor)} times as slowly" if slowly else times(factor)
        return " ".join(filter(None, (f"{named} are trained", most, fast)))

    def drawn(self, points: pd.DataFrame) -> pd.DataFrame:
        """The points with the time of 1,000 samples."""
        return points.assign(
            **{f"time{end}_s": 1000 * points[f"step{end}_s"] / points["batch"] for end in ENDS}
        )

    def finish(self, inputs: Inputs, axes: Axes, part: pd.DataFrame) -> None:
        """Both axes are logarithmic."""
        axes.set(xlabel="batch (log scale)", ylabel=f"time of 1,000 {samples(part, inputs.config)}")
        style.log_values(axes.xaxis, part["batch"].tolist())
        style.log_seconds(axes.yaxis)


BATCH = Batch(
    "batch",
    "batch",
    "batch",
    "The time of 1,000 samples against the batch. Whether a larger batch costs accuracy is another question.",
)


def of_size(axis: SizeAxis) -> Sweep:
    """The sweep of one size axis."""
    caption = f"Time per step against {axis.title}."
    return Sweep(axis.sweep or axis.name, axis.name, axis.title, caption)
