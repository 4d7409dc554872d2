"""A chosen configuration of a model beside its best control, in words: from a row of quality.csv."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ketscale.analysis import verdicts
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds.kind import Told
from ketscale.analysis.kinds.selection import GUESSING
from ketscale.analysis.points import size_axes, size_words, variants
from ketscale.analysis.wording import capital, data, digits
from ketscale.config import Config, Metric

if TYPE_CHECKING:
    import pandas as pd

# If the control gets more than this share right, a model has little room to be better.
CEILING = 0.95
# From this ratio on, two numbers of parameters are unequal.
UNEQUAL = 1.1
# The verdicts of which the first leads a study's answer.
_ORDER = (
    verdicts.BETTER, verdicts.WORSE, verdicts.EQUAL, verdicts.CANNOT_TELL, verdicts.FAILED, verdicts.FEW, verdicts.APART,
    verdicts.NO_CONTROL,
)  # fmt: skip
_SENTENCES = {
    verdicts.BETTER: "the {metric} of {model} is {amount} than {theirs}",
    verdicts.WORSE: "the {metric} of {model} is {amount} than {theirs}",
    verdicts.EQUAL: "{model} and {control} are equal: their {metric} differs by {ends}",
    verdicts.CANNOT_TELL: "nothing tells {model} from {control}: {metric} differs by {ends}",
    verdicts.FAILED: "nothing tells {model} from {control}, since {failed} failed",
    verdicts.FEW: "fewer than 3 seeds cannot tell {model} from {control}",
    verdicts.APART: "{model} and {control} cannot be compared: {why}",
    verdicts.NO_CONTROL: "{model} reaches {metric} {reached}, with nothing to compare it with",
}
_SHORT = {
    verdicts.BETTER: "{model} better than {beside} on {data}",
    verdicts.WORSE: "{model} worse than {beside} on {data}",
    verdicts.EQUAL: "{model} equal to {beside} on {data}",
    verdicts.NO_CONTROL: "{model} has no control on {data}",
}


@dataclass(frozen=True)
class Finding:
    """A model on a data set.

    row: of quality.csv. verdict: empty for a model that is nothing but a control. beside: what it is compared with, '' for
    nothing. reached: the metric on test data. effect: how much more the model has, in `unit`.
    """

    row: Mapping[Any, Any]
    metric: Metric
    data: str
    verdict: str
    beside: str
    unit: str
    reached: Estimate | None
    effect: Estimate | None

    @classmethod
    def of(cls, row: Mapping[Any, Any], config: Config) -> Finding:
        """From a row of quality.csv whose point was chosen."""
        verdict, beside, unit = (
            row[name] if isinstance(row[name], str) else "" for name in ("verdict", "control", "unit")
        )
        metric = config.family(row["workload"]).headline
        found = estimate(row, "value", "n"), estimate(row, "effect", "pairs")
        return cls(row, metric, data(row["workload"], config), verdict, beside, unit, *found)

    def order(self) -> tuple[Any, ...]:
        """The finding that leads is the smallest."""
        size = 0.0
        if self.effect:
            size = abs(math.log(self.effect.value) if self.unit == "times" else self.effect.value)
        return _ORDER.index(self.verdict), -round(size, 9), self.data, self.row["model"], self.row["size"]

    def said(self) -> tuple[str, str]:
        """A sentence, and a short one of at most twelve words."""
        row, known = self.row, self.effect is not None and self.effect.low is not None
        control = self.beside if self.beside in ("", GUESSING) else f"its best control {self.beside}"
        lost = f"{row['failed']:.0f} of {row['failed'] + row['n']:.0f} seeds of {row['model']}"
        words = {
            "data": self.data, "model": row["model"], "metric": self.metric.title, "beside": self.beside, "why": row["why"],
            "control": control or "its own runs",
            "theirs": control if control == GUESSING else f"that of {control}",
            "amount": self._amount() if known else "",
            "ends": self._ends() if known else "the same in every seed",
            "failed": lost if row["failed"] else f"seeds of {self.beside}",
            "reached": value(self.reached.value, self.metric) if self.reached else "",
        }  # fmt: skip
        short = _SHORT.get(self.verdict, "cannot tell {model} from {beside} on {data}")
        return f"On {self.data}, {_SENTENCES[self.verdict].format(**words)}.", capital(short.format(**words))

    def told(self, config: Config, points: pd.DataFrame, more: Mapping[str, str]) -> Told:
        """The row of the chapter's table.

        points: the study's rows of quality.csv, by whose index `row` names its own. more: further cells.
        """
        row = self.row
        mine = points[(points["model"] == row["model"]) & (points["workload"] == row["workload"])]
        chosen = variants(mine, config, but=("workload", "model", *size_axes(config))).to_dict()[row["index"]]
        size = size_words(config, row["workload"], row["size"])
        cells = {
            f"test {self.metric.title}": self.reached and told(self.reached, self.metric),
            "guessing": _cell(row["chance"], lambda found: value(found, self.metric)),
        }
        for name in ("parameters", "configurations"):
            both = (_cell(row[f"{side}{name}"], lambda found: f"{found:,.0f}") for side in ("", "control_"))
            cells[name] = " / ".join(filter(None, both))
        point = ", ".join(filter(None, (f"{self.data}: {row['model']}", size, chosen)))
        shown = {name: text for name, text in {**cells, **more}.items() if text}
        return Told(point, self.beside, self.effect, self.unit if self.effect else "", self.verdict, shown)

    def notes(self) -> Iterator[str]:
        """What a reader should know besides, a sentence each."""
        row, share, chance = self.row, self.metric.is_share, self.row["chance"]
        model, tried, other = row["model"], row["configurations"], row["control_configurations"]
        if other == other and tried != other:
            yield (
                f"Careful: on {self.data} {model} was chosen out of {tried:.0f} and {self.beside} out of {other:.0f} "
                "configurations, so that one had more chances."
            )
        mine, theirs = row["parameters"], row["control_parameters"]
        if theirs == theirs and max(mine, theirs) > UNEQUAL * min(mine, theirs):
            yield f"Careful: on {self.data} {model} has {mine:,.0f} parameters and {self.beside} {theirs:,.0f}."
        if row["failed"]:
            yield f"{row['failed']:.0f} of {row['failed'] + row['n']:.0f} seeds of {model} on {self.data} failed."
        if row["shared"] > 0:
            yield (
                f"Careful: {row['shared']:.0f} samples of validation and test of {self.data} are not new: they equal, overlap "
                "or share a group with samples of training (or of validation, if they are of test)."
            )
        if share and self.reached and self.reached.low is not None and self.reached.low <= chance:
            yield f"{model} on {self.data} is not surely better than guessing."
        if share and self.beside != GUESSING and row["control_value"] >= CEILING:
            yield f"On {self.data} the control leaves little room to be better."
        over = "seeds and test samples" if share else f"seeds, of the geometric mean of {self.metric.title}"
        yield f"Intervals are of 95 %, over {over}."

    def _amount(self) -> str:
        """'2.1 points higher (0.4 to 3.9)', '3.2 times lower (2 to 5)'."""
        found = self.effect
        assert found is not None and found.low is not None and found.high is not None
        ratio = self.unit == "times"
        lower = found.value < (1 if ratio else 0)
        if lower:
            found = found.inverse() if ratio else Estimate(-found.value, -found.high, -found.low, found.n)
        ends = f"{self._number(found.low)} to {self._number(found.high)}"
        return " ".join(
            filter(None, (self._number(found.value), self.unit, "lower" if lower else "higher", f"({ends})"))
        )

    def _ends(self) -> str:
        assert self.effect is not None
        ratio = "a factor of " if self.unit == "times" else ""
        ends = f"{ratio}{self._number(self.effect.low)} to {self._number(self.effect.high)}"
        return ends if ratio else f"{ends} {self.unit}".rstrip()

    def _number(self, found: float | None) -> str:
        assert found is not None
        return points(found) if self.unit == "points" else digits(found)


def counted(found: Sequence[Finding], lead: Finding) -> tuple[str, str]:
    """A sentence, and a short one, about findings, of which one leads."""
    compared = [each for each in found if each.beside]
    if len(found) > 1 and not compared:
        return f"Of {len(found)} models none has a control to be compared with.", "No model has a control"
    if len(compared) < 2:
        return lead.said()
    better, worse, equal = (
        sum(each.verdict == word for each in compared)
        for word in (verdicts.BETTER, verdicts.WORSE, verdicts.EQUAL)
    )
    control = "guessing" if {each.beside for each in compared} == {GUESSING} else "the best control"
    others, name = len(compared) - better - worse, f"{lead.row['model']} on {lead.data}"
    named = f" ({name})" if better == 1 else f", most of all {name}" if better else ""
    word = "equal" if equal == others else "undecided" if not equal else "equal or undecided"
    rest = f", the other{' is' if others == 1 else 's are'} {word}" if others else ""
    short = f"{better or 'None'} of {len(compared)} better than {control}, {worse or 'none'} worse"
    if others == len(compared):
        short = f"{len(compared)} comparisons with {control}: all {word}"
        return f"Of {len(compared)} comparisons with {control} all are {word}.", short
    start = f"Of {len(compared)} comparisons with {control} {better or 'none'} {'is' if better < 2 else 'are'} better"
    return f"{start}{named}, {worse or 'none'} worse{rest}.", short


def estimate(row: Mapping[Any, Any], name: str, n: str) -> Estimate | None:
    """The estimate in the columns NAME, NAME_low and NAME_high; None if there is none."""
    found, low, high = (row[column] for column in (name, f"{name}_low", f"{name}_high"))
    if found is None or math.isnan(found):
        return None
    return Estimate(found, None if math.isnan(low) else low, None if math.isnan(high) else high, int(row[n]))


def told(found: Estimate, metric: Metric) -> str:
    """'96.1 % (93.4 to 98.7)'."""
    if found.low is None or found.high is None:
        return value(found.value, metric)
    low, high = (value(end, metric).removesuffix(" %") for end in (found.low, found.high))
    return f"{value(found.value, metric)} ({low} to {high})"


def value(found: float, metric: Metric) -> str:
    """A value of a metric with its unit."""
    return f"{100 * found:.1f} %" if metric.is_share else f"{found:.3g} {metric.unit}".rstrip()


def points(found: float) -> str:
    """A number of points; never '-0.0'."""
    return f"{round(found, 1) + 0.0:.1f}"


def _cell(found: Any, words: Callable[[float], str]) -> str:
    return "" if found is None or found != found else words(found)
