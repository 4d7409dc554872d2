"""Configurations of models, and which control each is compared with.

Configurations are chosen on validation data alone: choosing on test data would make the test result too good. The control
is the best of all that a model has, at its own best configuration; where a study has none for a data set, its best
baseline is used instead, or else guessing. No result depends on an order: ties break by name.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ketscale.analysis import comparability, metrics, verdicts
from ketscale.analysis.comparison import Collected
from ketscale.analysis.intervals import FEWEST, LEVEL, Estimate
from ketscale.analysis.points import Group, Point, Row
from ketscale.config import Config, Metric
from ketscale.grid import Run, Study
from ketscale.words import counted

# A test gives no verdict if more than this share of it may be known from training.
MOST_SHARED = 0.05
GUESSING = "guessing"
# A data set, and the size if that is part of the task.
Task = tuple[str, str]


def seed_of(row: Row) -> metrics.Seed:
    """What tests of two models are paired by."""
    return str(row["workload"]), int(row["seed"])


def mean(rows: Group, column: str) -> float | None:
    """The mean of a column over the rows that have it; None without one."""
    values = [row[column] for row in rows if row.get(column) is not None]
    return statistics.fmean(values) if values else None


@dataclass(frozen=True, eq=False, kw_only=True)
class Configuration:
    """A configuration of a model, as a study tested it; or guessing, which has no runs.

    task: the data set, and the size if that is part of the task. tests: of its completed seeds, by `seed_of`. failed: the
    seeds that ended otherwise. validation: the mean of the headline metric. chance: what guessing gives. tried: how many
    settings validation chose from, 0 of what had no choice; once a configuration is chosen, of all of the model's.
    searched: whether a search drew them, or a model that is fitted tried them by itself.
    """

    point: Point = ()
    group: Group = ()
    metric: Metric
    task: Task = ("", "")
    model: str = ""
    tests: metrics.Tests
    failed: tuple[metrics.Seed, ...] = ()
    validation: float | None = None
    chance: float | None = None
    tried: int = 0
    searched: bool = False

    @classmethod
    def of(cls, point: Point, group: Group, collected: Collected) -> Configuration:
        """What a point's runs have shown, whose order does not matter.

        Those of several splits of the same data are one group, with the data's name in the point.
        """
        rows = sorted(group, key=seed_of)
        first, family = rows[0], collected.config.family(rows[0]["workload"])
        metric, search = family.headline, collected.config.protocols[rows[0]["protocol"]].search
        completed = [row for row in rows if row["status"] == "completed"]
        records = [collected.records[Run.of(row)] for row in completed]
        by_itself = max((each.quality.tried for each in records if each.quality), default=1)
        count = by_itself * (search.trials if search else 1)
        return cls(
            point=point, group=rows, metric=metric, task=(point[0], first["size"] if family.work else ""),
            model=first["model"], tests=metrics.scored(records, metric), tried=count, searched=count > 1,
            failed=tuple(seed_of(row) for row in rows if row["status"] != "completed"),
            validation=mean(completed, f"validation_{metric.name}"), chance=mean(completed, "test_chance"),
        )  # fmt: skip

    @property
    def completed(self) -> Group:
        """The rows of its completed runs."""
        return [row for row in self.group if row["status"] == "completed"]

    @cached_property
    def keys(self) -> list[comparability.Key]:
        """What its completed runs must share."""
        several = len({row["workload"] for row in self.group}) > 1
        return [comparability.quality(row, row["workload"] if several else "") for row in self.completed]

    @property
    def failures(self) -> str:
        """How many of its seeds failed, in words; '' of none."""
        every = len(self.failed) + len(self.tests)
        return f"{len(self.failed)} of {counted(every, 'seed')} of {self.model} failed" if self.failed else ""

    def overlap(self, beyond: float = MOST_SHARED) -> str:
        """That more than this share of its test is not new, in words; '' if it is new.

        Records count samples of validation and test together, so that all of them may be of the test.
        """
        counts = [(row["shared"] or 0, row["test_samples"]) for row in self.group if row["test_samples"]]
        shared, count = max(counts, key=lambda each: each[0] / each[1], default=(0, 1))
        reason = f"up to {min(shared, count):,} of {count:,} test samples are also in training"
        return reason if shared > beyond * count else ""

    def estimate(self) -> Estimate | None:
        """The headline metric on test data; None if its runs cannot be joined."""
        return None if comparability.mismatch(self.keys) else metrics.estimate(self.tests, self.metric)

    def standing(self, value: float) -> float:
        """A value of its metric, so that the larger is the better, with its failed seeds.

        Such a seed gets nothing right; of a metric that is no share, no value is worse.
        """
        sign, failed = 1 if self.metric.better == "up" else -1, len(self.failed)
        if not self.metric.is_share:
            return -math.inf if failed else sign * value
        worst = 0.0 if sign > 0 else 1.0
        return sign * (value * len(self.tests) + worst * failed) / (len(self.tests) + failed)

    def guessing(self) -> Configuration | None:
        """Guessing on the same test, as the control of a model that has none; None if the metric is no share."""
        if self.chance is None or not self.metric.is_share:
            return None
        # A failed seed has as many samples as another one of the same split and fold, if one was completed.
        folds = {seed_of(row): row["fold"] for row in self.group}
        alike = {(split, test.fold): test for (split, _), test in self.tests.items()}
        one = next(iter(self.tests.values()))
        failed = {
            seed: replace(alike.get((seed[0], folds[seed]), one), fold=folds[seed]) for seed in self.failed
        }
        guessed = {seed: test.guessed(self.chance) for seed, test in {**self.tests, **failed}.items()}
        return replace(self, group=(), model=GUESSING, tests=guessed, failed=(), tried=0)


@dataclass(frozen=True, eq=False)
class Comparison:
    """A chosen configuration and its reference: the best of its controls, the best baseline of the study, or guessing.

    of, to: None where a model has nothing to be compared with. baseline: the best on its data, if there is one. level: of
    the interval that is shown of the difference. verdict: None until it is known, empty for what is only a
    control. why: what kept an interval from deciding, but for failed seeds.
    """

    of: Configuration
    to: Configuration | None = None
    baseline: Configuration | None = None
    level: float = LEVEL
    verdict: str | None = None
    why: str = ""

    @property
    def sides(self) -> list[Configuration]:
        """The configuration, and its reference if it has one."""
        return [each for each in (self.of, self.to) if each]

    @cached_property
    def incomparable(self) -> str:
        """Why the two cannot be compared; '' if they can."""
        return comparability.mismatch(key for each in self.sides for key in each.keys)

    @property
    def unit(self) -> str:
        """The unit of the effect: 'points' of a share, 'times' of a ratio, else that of the metric."""
        metric = self.of.metric
        ratio = self.to and metrics.is_ratio(self.of.tests, self.to.tests, metric)
        return "times" if ratio else "points" if metric.is_share else metric.unit

    def effect(self, level: float | None = None, failed: bool = False) -> Estimate | None:
        """How much more the model has than its reference: a ratio if `unit` is 'times', else the difference, in `unit`.

        level: of the interval, by default that of the comparison. failed: whether seeds that failed on one side count as
        getting nothing right; if there are some there is no such effect of a metric that is no share.
        """
        if self.to is None or self.incomparable or any(each.overlap() for each in self.sides):
            return None
        one, other = self.of.tests, self.to.tests
        if failed and any(each.failed for each in self.sides):
            if not self.of.metric.is_share:
                return None
            one = {**one, **{seed: other[seed].guessed(0.0) for seed in self.of.failed if seed in other}}
            other = {**other, **{seed: one[seed].guessed(0.0) for seed in self.to.failed if seed in one}}
        effect = metrics.difference(one, other, self.of.metric, level or self.level)
        return effect.times(100) if effect and self.unit == "points" else effect

    def side(self, level: float | None = None, failed: bool = False) -> str | None:
        """On which side the whole interval of the effect is, as a verdict; None of neither."""
        return side(self.effect(level, failed), self.unit, self.of.metric)

    def decide(self, level: float | None = None) -> str | None:
        """The verdict of the interval at a level, by default its own, which failed seeds of the side that it is for must not
        overturn.
        """
        word = self.side(level)
        if word and level and self.side() not in (word, None):
            return None  # a wider interval says nothing else
        favoured = {verdicts.BETTER: [self.of], verdicts.WORSE: self.sides[1:]}.get(word or "", self.sides)
        if not any(each.failed for each in favoured):
            return word
        return word if word != verdicts.SAME and self.side(level, failed=True) == word else None

    def judge(self) -> Comparison:
        """The same with its verdict, and why, if no interval can give one."""
        if self.verdict is not None:
            return self
        if self.incomparable:
            return replace(self, verdict=verdicts.NOT_COMPARABLE, why=self.incomparable)
        if reason := next(filter(None, (each.overlap() for each in self.sides)), ""):
            return replace(self, verdict=verdicts.CANNOT_TELL, why=reason)
        if self.to is None:
            return replace(self, verdict=verdicts.MISSING, why="no control")
        if any(len(each.failed) > len(each.tests) for each in self.sides):
            # The rest are a choice.
            return replace(self, verdict=verdicts.FAILED)
        effect = self.effect()
        few = effect is None or effect.n < FEWEST
        return replace(self, verdict=verdicts.CANNOT_TELL, why=verdicts.FEW) if few else self

    def decided(self, word: str | None) -> Comparison:
        """The same with the verdict of its interval; failed seeds may have kept it from deciding."""
        failed = word is None and self.decide() is None and self.side()
        return replace(self, verdict=verdicts.FAILED if failed else word or verdicts.CANNOT_TELL)


def side(effect: Estimate | None, unit: str, metric: Metric) -> str | None:
    """On which side an effect in a `Comparison.unit` is with its whole interval, as a verdict; None of neither."""
    if effect is None or effect.low is None or effect.high is None:
        return None
    if unit == "points" and max(-effect.low, effect.high) < verdicts.POINTS:
        return verdicts.SAME
    if unit == "times" and effect.low >= 1 / verdicts.WORTH and effect.high <= verdicts.WORTH:
        return verdicts.SAME
    none = 1 if unit == "times" else 0
    if effect.low <= none <= effect.high:
        return None
    return verdicts.BETTER if (effect.low > none) == (metric.better == "up") else verdicts.WORSE


def judged(matches: Iterable[Comparison]) -> list[Comparison]:
    """The same with the verdicts of a study, all of which hold together."""
    matches = [one.judge() for one in matches]
    words = iter(verdicts.holm([one.decide for one in matches if one.verdict is None]))
    return [one.decided(next(words)) if one.verdict is None else one for one in matches]


def comparisons(candidates: Iterable[Configuration], study: Study, collected: Collected) -> list[Comparison]:
    """Each model of each task at its best configuration, with the best of its controls; without verdicts yet.

    A model that is only a control has no verdict, even if nothing that it controls has a result. Models of which every
    seed failed, and controls, are compared if there is no other configuration: they have no substitute.
    """
    config, by_task = collected.config, dict[tuple[Task, str], list[Configuration]]()
    for each in candidates:
        if each.tests or each.failed:
            by_task.setdefault((each.task, each.model), []).append(each)
    models = [
        replace(one, tried=sum(each.tried for each in group))
        for _, group in sorted(by_task.items())
        if (one := best(group))
    ]
    pairs = {(config.data(run.workload), run.model) for run in study.runs}
    matches = []
    for each in models:
        others = [one for one in models if one.task == each.task and one.model != each.model]
        own = [one for one in others if controls(config, one.model, each.model)]
        baselines = [one for one in others if config.models[one.model][1].baseline]
        matches.append(Comparison(each, best(own), best(baselines)))
    controlled = {one.of.task for one in matches if one.to}
    for number, match in enumerate(matches):
        model, task = match.of.model, match.of.task
        peers = {name for data, name in pairs if data == task[0]}
        baseline = config.models[model][1].baseline
        stands_in = baseline and not all(config.models[name][1].baseline for name in peers)
        control = stands_in or any(controls(config, model, name) for name in peers)
        if match.to is None and match.of.tests and not control and task not in controlled:
            matches[number] = replace(match, to=match.baseline or match.of.guessing())
        elif match.to is None:
            matches[number] = replace(match, verdict="")
    return matches


def best(candidates: Sequence[Configuration]) -> Configuration | None:
    """The best on validation data; without such data only one that is alone, since a test may choose nothing.

    If every seed of all failed, the first by name.
    """
    able = [each for each in candidates if each.tests]
    validated = [each for each in able if each.validation is not None]
    if validated or not able:
        return min(validated or candidates, key=_rank, default=None)
    return able[0] if len(able) == 1 else None


def _rank(each: Configuration) -> tuple[Any, ...]:
    """Smaller is better: the better validation, then no failed seeds, then the name."""
    value, sign = each.validation or 0.0, -1 if each.metric.better == "up" else 1
    return -each.standing(value), bool(each.failed), sign * value, each.model, tuple(map(str, each.point))


def controls(config: Config, other: str, model: str) -> bool:
    """Whether a model is a control of another: the one, or of the kind, that this names, or any classical one of a
    quantum one that is no baseline.
    """
    (kind, control), (_, of) = config.models[other], config.models[model]
    classical = other in config.classical and model not in config.classical and not control.baseline
    return other != model and (of.control in (other, kind) or classical)
