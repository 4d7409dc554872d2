"""A configuration of a model on a data set, beside its best control if it was chosen: a row of quality.csv, and its words."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from ketscale.analysis import comparability, verdicts
from ketscale.analysis.columns import other_metrics
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds.kind import Told
from ketscale.analysis.kinds.selection import GUESSING, Budget, Candidate, Match
from ketscale.analysis.points import Group, median, size_words
from ketscale.analysis.wording import capital, data, digits, listed
from ketscale.config import Config, Metric, Settings
from ketscale.grid import Run
from ketscale.words import counted, duration

# If the control gets more than this share right, a model has little room to be better.
CEILING = 0.95
# From this ratio on, two numbers of parameters are unequal.
UNEQUAL = 1.1
# The verdicts of which the first leads a study's answer.
_ORDER = (
    verdicts.BETTER, verdicts.WORSE, verdicts.EQUAL, verdicts.CANNOT_TELL, verdicts.FAILED, verdicts.FEW, verdicts.APART,
    verdicts.NO_CONTROL,
)  # fmt: skip
_OF_INTERVALS = _ORDER[:4]
# What a model is compared with, in words, if its runs cannot be joined and it has no control.
OWN = "its own runs"
# Settings of a protocol that change nothing of what is learned.
_ASIDE = ("features", "timed", "warmup", "sampled_steps", "sharding", "parallel", "keep_model")
SENTENCES = {
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
    verdicts.BETTER: "{} better than {}",
    verdicts.WORSE: "{} worse than {}",
    verdicts.EQUAL: "{} equal to {}",
    verdicts.NO_CONTROL: "{} has no control",
}


@dataclass(frozen=True, eq=False)
class Finding:
    """A configuration of a model on a data set, as a study tested it. It has no samples, of which there may be many.

    settings: those of one of its runs. task: see `Candidate`. data: the data set in words. splits: how many of the same
    data it was tested on. n, failed: its seeds that were completed, and the others, of all splits. train_s: the median time
    of training, of `cohort` runs together. reached: the metric on test data. means: over seeds, of the epochs and of the
    other metrics on test data. why: what keeps its runs from being joined, or compared. chosen: whether it is the model's best
    on validation data; only then it is compared. budget: of the choice. untuned, uneven: see `Match`. apart: the settings of
    training in which the protocols of the two sides differ, after their names. beside: what it is compared with, '' for
    nothing, and what is known of `their` side; their_seeds: its failed and its completed ones. effect: how much more the model has, in `unit`; counted: the same where seeds
    that failed count as wrong, None if they cannot. verdict: empty for what is only a control. standard: the best
    baseline of the data, '' without one; standing: what it reaches. over: how much more the model has, and `against` as a
    verdict. lacking: why baselines are missing, a clause each. sampled: whether intervals are over test samples too.
    """

    study: str
    settings: Settings
    task: tuple[str, str]
    data: str
    metric: Metric
    splits: int
    n: int
    failed: int
    parameters: int | None
    train_s: float | None
    cohort: int
    reached: Estimate | None
    chance: float | None
    shared: int | None
    means: Mapping[str, float | None]
    why: str
    chosen: bool = False
    budget: Budget | None = None
    untuned: bool = False
    uneven: bool = False
    apart: tuple[str, ...] = ()
    beside: str = ""
    theirs: Estimate | None = None
    their_parameters: int | None = None
    their_budget: Budget | None = None
    their_seeds: tuple[int, int] = (0, 0)
    effect: Estimate | None = None
    counted: float | None = None
    unit: str = ""
    verdict: str = ""
    standard: str = ""
    standing: Estimate | None = None
    over: Estimate | None = None
    against: str = ""
    lacking: tuple[str, ...] = ()
    sampled: bool = False

    @classmethod
    def of(cls, study: str, each: Candidate, config: Config) -> Finding:
        """What a configuration has reached by itself."""
        first, completed = each.group[0], [row for row in each.group if row["status"] == "completed"]
        settings = config.settings(Run.of(first))
        columns = {"epochs": "epochs", **{name: f"test_{name}" for name in other_metrics(config)}}
        known = {
            name: [row[column] for row in completed if row.get(column) is not None]
            for name, column in columns.items()
        }
        return cls(
            study, replace(settings, run=replace(settings.run, workload=each.task[0])), each.task, data(each.task[0], config),
            each.metric, len({row["workload"] for row in each.group}), len(each.tests),
            len(each.failed), _parameters(each.group), median(row["train_s"] for row in completed),
            max((row["cohort"] for row in completed), default=1), each.estimate(), each.chance,
            max((row["shared"] for row in completed if row["shared"] is not None), default=None),
            {name: statistics.fmean(values) if values else None for name, values in known.items()},
            comparability.hindrance(each.keys), sampled=all(test.row is not None for test in each.tests.values()),
        )  # fmt: skip

    def matched(self, match: Match, config: Config, lacking: tuple[str, ...] = ()) -> Finding:
        """The same, chosen, with what comes of the comparisons with its control and with the best baseline."""
        found = replace(
            self, chosen=True, why=match.why, budget=match.chosen.budget, untuned=match.untuned, uneven=match.uneven,
            verdict=match.verdict, lacking=lacking,
        )  # fmt: skip
        if match.standard:
            beside = replace(match, control=match.standard)
            found = replace(
                found, standard=match.standard.model, standing=match.standard.estimate(), over=_effect(beside),
                against=beside.undecided() or beside.decide() or verdicts.CANNOT_TELL,
            )  # fmt: skip
        control = match.control
        if control is None:
            return found
        theirs = config.settings(Run.of(control.group[0])) if control.group else self.settings
        failed = bool(match.chosen.failed or control.failed)
        cautious = _effect(match, failed) if self.metric.is_share or not failed else None
        return replace(
            found, apart=apart(self.settings, theirs), beside=control.model, theirs=control.estimate(),
            their_parameters=_parameters(control.group), their_budget=control.budget,
            their_seeds=(len(control.failed), len(control.tests)), effect=_effect(match),
            counted=cautious.value if cautious else None, unit=match.unit,
        )  # fmt: skip

    @property
    def model(self) -> str:
        """The model's name."""
        return self.settings.run.model

    def order(self) -> tuple[Any, ...]:
        """The finding that leads is the smallest."""
        size = 0.0
        if self.effect:
            size = abs(math.log(self.effect.value) if self.unit == "times" else self.effect.value)
        return _ORDER.index(self.verdict), -round(size, 9), self.data, self.model, self.settings.run.size

    def said(self) -> tuple[str, str]:
        """A sentence, and a short one of at most twelve words."""
        known = self.effect is not None and self.effect.low is not None
        named = {self.standard: f"the baseline {self.standard}", "": "", GUESSING: GUESSING}
        control = named.get(self.beside, f"its best control {self.beside}") or OWN
        words = {
            "data": self.data, "model": self.model, "metric": self.metric.title, "beside": self.beside, "why": self.why,
            "control": control,
            "theirs": control if control == GUESSING else f"that of {control}",
            "amount": amount(self.effect, self.unit) if self.effect and known else "",
            "ends": ends(self.effect, self.unit) if self.effect and known else "the same in every seed",
            "failed": self._failures,
            "reached": value(self.reached.value, self.metric) if self.reached else "",
        }  # fmt: skip
        text, with_care = SENTENCES[self.verdict].format(**words), care([self])
        short = f"{briefly(self.verdict, self.model, self.beside)} on {self.data}{with_care}"
        return f"On {self.data}, {text}{with_care}.", short

    def told(self, config: Config, variant: str, more: Mapping[str, str]) -> Told:
        """The row of the chapter's table; variant: what tells the configuration from the model's others. more: further cells."""
        cells = {
            f"test {self.metric.title}": told(self.reached, self.metric) if self.reached else "",
            "guessing": "" if self.chance is None else value(self.chance, self.metric),
            "best baseline": f"{self.standard}: {told(self.standing, self.metric)}" if self.standing else "",
            "parameters": _both(self.parameters, self.their_parameters),
            "budget": " / ".join(spent(each) for each in (self.budget, self.their_budget) if each),
            "chosen": settled(self.budget) if self.budget else "",
        }
        shown = {name: text for name, text in {**cells, **more}.items() if text}
        return Told(
            f"{self.data}: {self.point(config, variant)}",
            self.beside,
            self.effect,
            self.unit if self.effect else "",
            self.verdict,
            shown,
        )

    def point(self, config: Config, variant: str) -> str:
        """The configuration in words, without the data; variant: what tells it from the model's others."""
        size = size_words(config, self.settings.run.workload, self.settings.run.size)
        return ", ".join(filter(None, (self.model, size, variant)))

    def notes(self) -> Iterator[str]:
        """What a reader should know besides, a sentence each."""
        model, where, share = self.model, self.data, self.metric.is_share
        if self.uneven and self.budget and self.their_budget:
            yield (
                f"Careful: on {where} {model} was chosen out of {self.budget.tried} and {self.beside} out of "
                f"{self.their_budget.tried} settings, so that one had more chances."
            )
        if self.apart:
            ours, theirs, *settings = self.apart
            yield (
                f"Careful: on {where} {model} was trained by protocol {ours} and {self.beside} by {theirs}, which differ in "
                f"{listed(settings)}."
            )
        own, other = self.parameters, self.their_parameters
        if own is not None and other and max(own, other) > UNEQUAL * min(own, other):
            yield f"Careful: on {where} {model} has {own:,} parameters and {self.beside} {other:,}."
        if self.failed:
            yield f"{self._lost} seeds of {model} on {where} failed."
        if self.shared:
            yield (
                f"Careful: {self.shared} samples of validation and test of {where} are not new: they equal, overlap "
                "or share a group with samples of training (or of validation, if they are of test)."
            )
        low = self.reached.low if self.reached else None
        if share and low is not None and self.chance is not None and low <= self.chance:
            yield f"{model} on {where} is not surely better than guessing."
        if (
            self.verdict
            and self.standard
            and self.beside != self.standard
            and self.against != verdicts.BETTER
        ):
            word = "worse" if self.against == verdicts.WORSE else "not surely better"
            yield f"{model} on {where} is {word} than the baseline {self.standard}."
        if self.is_weak:
            yield (
                f"Careful: on {where} the control {self.beside} is itself worse than the baseline {self.standard}, so a "
                f"comparison with it says little of {model}: train it better, or compare with a better one."
            )
        if share and self.beside != GUESSING and self.theirs and self.theirs.value >= CEILING:
            what = "baseline" if self.beside == self.standard else "control"
            yield f"On {where} the {what} leaves little room to be better."
        yield from (f"Beside {where}, {clause}." for clause in self.lacking)
        over = "seeds and test samples" if self.sampled else "seeds"
        over = f"{self.splits} splits, {over}" if self.splits > 1 else over
        over = "test samples, of one seed alone" if self.sampled and self.n == 1 else over
        over += "" if share else f", of the geometric mean of {self.metric.title}"
        yield f"Intervals are of 95 %, over {over}."

    @property
    def is_weak(self) -> bool:
        """Whether the control is itself worse than the best baseline of the data: no part of their intervals is the same."""
        if self.beside in ("", GUESSING, self.standard) or self.theirs is None or self.standing is None:
            return False
        worse, better = (
            (self.theirs.high, self.standing.low)
            if self.metric.better == "up"
            else (self.standing.high, self.theirs.low)
        )
        return worse is not None and better is not None and worse < better

    @property
    def _failures(self) -> str:
        """How many seeds failed, of the side that has lost the larger share."""
        sides = ((self.failed, self.n, self.model), (*self.their_seeds, self.beside))
        failed, n, model = max(sides, key=lambda side: side[0] / max(1, side[0] + side[1]))
        return f"{failed} of {failed + n} seeds of {model}"

    @property
    def _lost(self) -> str:
        return f"{self.failed} of {self.failed + self.n}"


def briefly(verdict: str, model: str, beside: str) -> str:
    """A verdict on a model and what it is compared with."""
    return capital(_SHORT.get(verdict, "cannot tell {} from {}").format(model, beside or OWN))


def amount(found: Estimate, unit: str) -> str:
    """'2.1 points higher (0.4 to 3.9)', '3.2 times lower (2 to 5)', of an effect with an interval."""
    ratio = unit == "times"
    lower = found.value < (1 if ratio else 0)
    if lower:
        found = found.inverse() if ratio else found.times(-1)
    words = (_number(found.value, unit), unit, "lower" if lower else "higher")
    return f"{' '.join(filter(None, words))} ({_number(found.low, unit)} to {_number(found.high, unit)})"


def ends(found: Estimate, unit: str) -> str:
    """'-1.2 to 3.4 points', 'a factor of 0.8 to 1.1', of an effect with an interval."""
    both = f"{_number(found.low, unit)} to {_number(found.high, unit)}"
    return f"a factor of {both}" if unit == "times" else f"{both} {unit}".rstrip()


def signed(found: Estimate | None, unit: str) -> str:
    """'+2.1' of a difference, '0.8x' of a ratio, without the interval."""
    ratio, number = unit == "times", _number(found.value, unit) if found else ""
    return f"{number}x" if ratio else f"+{number}" if found and found.value > 0 else number


def _number(found: float | None, unit: str) -> str:
    assert found is not None
    # Never '-0.0'.
    return f"{round(found, 1) + 0.0:.1f}" if unit == "points" else digits(found)


def care(found: Iterable[Finding], failed: bool = False) -> str:
    """What is said with the verdicts of intervals, in brackets.

    Sides were not tuned, not with equal budgets, or not trained alike; the control was worse than a baseline; and seeds of a
    side failed, or others of the study did (`failed`).
    """
    of_intervals = [each for each in found if each.verdict in _OF_INTERVALS]
    words = {
        "untuned": any(each.untuned for each in of_intervals),
        "unequal budgets": any(each.uneven for each in of_intervals),
        "unequal training": any(each.apart for each in of_intervals),
    }
    said = [word for word, holds in words.items() if holds][:1]
    said += ["weak control"] if any(each.is_weak for each in of_intervals) else []
    failed = failed or any(each.failed or each.their_seeds[0] for each in of_intervals)
    said += ["failed seeds"] if failed else []
    return f" ({', '.join(said)})" if said else ""


def spent(budget: Budget) -> str:
    """How many settings a choice was from: 'untuned', '3 settings, untuned', '32 trials, 2.5 min', '96 settings of 32 trials'."""
    settings, trials = counted(budget.tried, "setting"), counted(budget.trials, "trial")
    if not budget.trials:
        return f"{settings}, untuned" if budget.tried > 1 else "untuned"
    of = trials if budget.tried == budget.trials else f"{settings} of {trials}"
    return f"{of}, {duration(3600 * budget.node_hours, 2)}" if budget.node_hours else of


def settled(budget: Budget) -> str:
    """What a search chose: 'learning rate 0.003', 'width 4 to 8' where splits have chosen differently; '' without one."""
    return ", ".join(f"{name.replace('_', ' ')} {_span(values)}" for name, values in budget.chosen.items())


def _span(values: Sequence[Any]) -> str:
    """Values of a setting in words."""
    try:
        ends = dict.fromkeys((min(values), max(values)))
    except TypeError:
        return " or ".join(sorted({str(value) for value in values}))
    return " to ".join(f"{one:.3g}" if isinstance(one, float) else str(one) for one in ends)


def apart(ours: Settings, theirs: Settings) -> tuple[str, ...]:
    """The names of the protocols of two sides and the settings in which they differ; empty if they do not, or a side is fitted."""
    names = ours.run.protocol, theirs.run.protocol
    # What is searched of a model is its own.
    protocols = [
        structs.replace(each, search=each.search and each.search.for_model(""))
        for each in (ours.protocol, theirs.protocol)
    ]
    if names[0] == names[1] or not all(each.by_epochs for each in protocols):
        return ()
    fields = [name for name in ours.protocol.__struct_fields__ if name not in _ASIDE]
    differing = [name for name in fields if getattr(protocols[0], name) != getattr(protocols[1], name)]
    return (*names, *differing) if differing else ()


def _effect(match: Match, failed: bool = False) -> Estimate | None:
    """How much more a model has than its control, in the unit of the match; failed: see `Match.effect`."""
    found = match.effect(failed=failed)
    return found.times(100) if found and match.unit == "points" else found


def summary(found: Sequence[Finding], lead: Finding) -> tuple[str, str]:
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
    beside = {"a baseline" if each.beside == each.standard else each.beside for each in compared}
    control = beside.pop() if beside in ({GUESSING}, {"a baseline"}) else "the best control"
    with_care = care(compared)
    others, name = len(compared) - better - worse, f"{lead.model} on {lead.data}"
    named = f" ({name})" if better == 1 else f", most of all {name}" if better else ""
    word = "equal" if equal == others else "undecided" if not equal else "equal or undecided"
    rest = f", the other{' is' if others == 1 else 's are'} {word}" if others else ""
    short = f"{better or 'None'} of {len(compared)} better than {control}, {worse or 'none'} worse"
    if others == len(compared):
        short = f"{len(compared)} comparisons with {control}: all {word}"
        return f"Of {len(compared)} comparisons with {control} all are {word}{with_care}.", short + with_care
    start = f"Of {len(compared)} comparisons with {control} {better or 'none'} {'is' if better < 2 else 'are'} better"
    return f"{start}{named}, {worse or 'none'} worse{rest}{with_care}.", short + with_care


def told(found: Estimate, metric: Metric) -> str:
    """'96.1 % (93.4 to 98.7)'."""
    if found.low is None or found.high is None:
        return value(found.value, metric)
    low, high = (value(end, metric).partition(" ")[0] for end in (found.low, found.high))
    return f"{value(found.value, metric)} ({low} to {high})"


def value(found: float, metric: Metric) -> str:
    """A value of a metric with its unit."""
    return f"{100 * found:.1f} %" if metric.is_share else f"{found:.3g} {metric.unit}".rstrip()


def _parameters(group: Group) -> int | None:
    """The number of parameters of a point; None if no run of it had memory enough to have a model."""
    return next((row["parameters"] for row in group if row["parameters"] is not None), None)


def _both(ours: int | None, theirs: int | None) -> str:
    return " / ".join(f"{count:,}" for count in (ours, theirs) if count is not None)
