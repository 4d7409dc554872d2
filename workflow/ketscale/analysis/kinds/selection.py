"""Configurations of models, and which control each is compared with.

Configurations are chosen on validation data alone: choosing on test data would make the test result too good. The control
is the best of all that a model has, at its own best configuration; where a study has none for a data set, the best
baseline of the data stands in, or else guessing. Nothing depends on an order: ties break by name.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ketscale.analysis import comparability, metrics, verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.intervals import FEWEST, LEVEL, Estimate
from ketscale.analysis.points import Group, Point, Row
from ketscale.config import Config, Metric
from ketscale.grid import Run, Study
from ketscale.jobs.baselines import Baselines
from ketscale.words import counted

# A test of which more than this share may be known from training decides nothing.
KNOWN_WITHIN = 0.05
GUESSING = "guessing"
# A data set, and the size if that is part of the task.
Task = tuple[str, str]


def seed_of(row: Row) -> metrics.Seed:
    """What tests of two models are paired by."""
    return str(row["workload"]), int(row["seed"])


@dataclass(frozen=True)
class Budget:
    """What a choice of settings was from, by validation alone.

    trials: of the search, or the settings that a model which is fitted has tried by itself; 0 if nothing was searched.
    tried: all settings that were tried, over all configurations of the model. node_hours: of the trials that a search
    trained. chosen: what a search chose, by name, a value for each split.
    """

    trials: int = 0
    tried: int = 1
    node_hours: float = 0.0
    chosen: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, runs: Sequence[Run], collected: Collected) -> Budget:
        """The budget of the runs of a configuration."""
        known = (collected.records[run].quality for run in runs if run in collected.records)
        own = max((quality.tried for quality in known if quality), default=1)
        search = collected.config.protocols[runs[0].protocol].search
        tried = own * (search.trials if search else 1)
        paths = sorted({run.choice for run in runs})
        found = [collected.searches[path] for path in paths if path in collected.searches]
        names = dict.fromkeys(name for each in found for name in each.choice.trial.settings)
        chosen = {name: tuple(each.choice.trial.settings[name] for each in found) for name in names}
        hours = math.fsum(each.node_hours for each in found)
        return cls(tried if tried > 1 else 0, tried, hours, chosen)

    def among(self, budgets: Collection[Budget]) -> Budget:
        """The budget of the configuration that was chosen among those with these."""
        hours = math.fsum(sorted(each.node_hours for each in budgets))
        return replace(self, tried=sum(each.tried for each in budgets), node_hours=hours)


@dataclass(frozen=True, eq=False)
class Configuration:
    """A configuration of a model, as a study tested it; or a baseline or guessing, which have no runs.

    task: the data set, and the size if that is part of the task. tests: of its completed seeds, by `seed_of`. failed: the
    seeds that ended otherwise. validation: the mean of the headline metric. chance: what guessing gives. budget: of the choice, None of what
    had none; once a configuration is chosen, over all of them.
    """

    point: Point
    group: Group
    metric: Metric
    task: Task
    model: str
    tests: metrics.Tests
    failed: tuple[metrics.Seed, ...]
    validation: float | None
    chance: float | None
    budget: Budget | None = None

    @classmethod
    def of(cls, point: Point, group: Group, collected: Collected) -> Configuration:
        """What a point's runs have shown, whose order does not matter.

        Those of several splits of the same data are one group, with the data's name in the point.
        """
        rows = sorted(group, key=seed_of)
        family = collected.config.family(rows[0]["workload"])
        metric = family.headline
        completed = [row for row in rows if row["status"] == "completed"]
        validation, chance = (
            [row[name] for row in completed if row[name] is not None]
            for name in (f"validation_{metric.name}", "test_chance")
        )
        return cls(
            point, rows, metric, (point[0], rows[0]["size"] if family.work else ""), rows[0]["model"],
            metrics.scored((collected.records[Run.of(row)] for row in completed), metric),
            tuple(seed_of(row) for row in rows if row["status"] != "completed"),
            statistics.fmean(validation) if validation else None, statistics.fmean(chance) if chance else None,
            Budget.of([Run.of(row) for row in rows], collected),
        )  # fmt: skip

    @cached_property
    def keys(self) -> list[comparability.Key]:
        """What its completed runs must share."""
        several = len({row["workload"] for row in self.group}) > 1
        completed = [row for row in self.group if row["status"] == "completed"]
        return [comparability.quality(row, row["workload"] if several else "") for row in completed]

    @property
    def mostly_failed(self) -> bool:
        """Whether it has lost more than half of its seeds, so that the rest are a choice."""
        return len(self.failed) > len(self.tests)

    @property
    def not_new(self) -> str:
        """That too much of its test is not new, in words; '' if it is new.

        Records count samples of validation and test together, so that all of them may be of the test.
        """
        counts = [(row["shared"] or 0, row["test_samples"]) for row in self.group if row["test_samples"]]
        shared, count = max(counts, key=lambda each: each[0] / each[1], default=(0, 1))
        few = shared <= KNOWN_WITHIN * count
        return "" if few else f"up to {min(shared, count):,} of {count:,} test samples are also in training"

    @property
    def failures(self) -> str:
        """How many of its seeds failed, in words; '' of none."""
        every = len(self.failed) + len(self.tests)
        return f"{len(self.failed)} of {counted(every, 'seed')} of {self.model} failed" if self.failed else ""

    def estimate(self) -> Estimate | None:
        """The headline metric on test data; None if its runs cannot be joined."""
        return None if comparability.hindrance(self.keys) else metrics.estimate(self.tests, self.metric)

    def guessing(self) -> Configuration | None:
        """Guessing on the same test, as the control of a model that has none; None if the metric is no share."""
        if self.chance is None or not self.metric.is_share:
            return None
        tests, folds = dict(self.tests), {seed_of(row): row["fold"] for row in self.group}
        for seed in self.failed:
            # As many samples as in the test of another seed, of the same split and fold if one was completed.
            part = seed[0], folds[seed]
            alike = (test for (split, _), test in self.tests.items() if (split, test.fold) == part)
            tests[seed] = replace(next(alike, next(iter(self.tests.values()))), fold=folds[seed])
        guessed = {seed: test.guessed(self.chance) for seed, test in tests.items()}
        return replace(self, group=(), model=GUESSING, tests=guessed, failed=(), budget=None)


@dataclass(frozen=True, eq=False)
class Comparison:
    """A chosen configuration and its reference: the best of its controls, the best baseline of its data, or guessing.

    of, to: None where a model has nothing to be compared with. baseline: the best of the data, if there is one. level: of
    the interval that is shown of the difference. verdict, why: empty for what is nothing but a control.
    """

    of: Configuration
    to: Configuration | None = None
    baseline: Configuration | None = None
    level: float = LEVEL
    verdict: str = ""
    why: str = ""

    @cached_property
    def incomparable(self) -> str:
        """Why the two cannot be compared; '' if they can."""
        return comparability.hindrance(key for each in self.sides for key in each.keys)

    @property
    def sides(self) -> list[Configuration]:
        """The configuration, and its reference if it has one."""
        return [each for each in (self.of, self.to) if each]

    @property
    def budgets(self) -> list[Budget]:
        """The budgets of the sides; baselines and guessing have none."""
        return [each.budget for each in self.sides if each.budget]

    @property
    def unit(self) -> str:
        """The unit of the effect: 'points' of a share, 'times' of a ratio, else that of the metric."""
        metric = self.of.metric
        ratio = self.to and metrics.is_ratio(self.of.tests, self.to.tests, metric)
        return "times" if ratio else "points" if metric.is_share else metric.unit

    def effect(self, level: float | None = None, failed: bool = False) -> Estimate | None:
        """How much more the model has than its reference: a ratio if `unit` is 'times', else the difference, in `unit`.

        level: of the interval, by default that of the comparison. failed: whether seeds that failed on one side count as
        getting nothing right.
        """
        if self.to is None or self.incomparable or any(each.not_new for each in self.sides):
            return None
        one, other = self.of.tests, self.to.tests
        if failed:
            one = {**one, **{seed: other[seed].guessed(0.0) for seed in self.of.failed if seed in other}}
            other = {**other, **{seed: one[seed].guessed(0.0) for seed in self.to.failed if seed in one}}
        found = metrics.difference(one, other, self.of.metric, level or self.level)
        return found.times(100) if found and self.unit == "points" else found

    def decide(self, level: float | None = None) -> str | None:
        """The verdict of the interval at a level, by default its own, which failed seeds of the side that it is for must not
        overturn.
        """
        word = side(self.effect(level), self.unit, self.of.metric)
        if word and level and side(self.effect(), self.unit, self.of.metric) not in (word, None):
            return None  # a wider interval says nothing else
        sides = {verdicts.BETTER: (self.of,), verdicts.WORSE: (self.to,)}
        if not any(each and each.failed for each in sides.get(word or "", (self.of, self.to))):
            return word
        cautious = self.effect(level, failed=True) if self.of.metric.is_share else None
        kept = side(cautious, self.unit, self.of.metric) == word
        return word if kept and word != verdicts.SAME else None

    def undecided(self) -> tuple[str, str]:
        """The verdict where no interval decides, and why; empty if one may."""
        if self.incomparable:
            return verdicts.NOT_COMPARABLE, self.incomparable
        if why := next(filter(None, (each.not_new for each in self.sides)), ""):
            return verdicts.CANNOT_TELL, why
        if self.to is None:
            return verdicts.MISSING, "no control"
        for each in self.sides:
            if each.mostly_failed:
                return verdicts.FAILED, each.failures
        effect = self.effect()
        return (verdicts.CANNOT_TELL, verdicts.FEW) if effect is None or effect.n < FEWEST else ("", "")

    def decided(self, word: str | None) -> Comparison:
        """The same with the verdict of its interval; failed seeds may have kept it from deciding."""
        if word is None and self.decide() is None and side(self.effect(), self.unit, self.of.metric):
            return replace(
                self,
                verdict=verdicts.FAILED,
                why="; ".join(filter(None, (each.failures for each in self.sides))),
            )
        return replace(self, verdict=word or verdicts.CANNOT_TELL)


def side(found: Estimate | None, unit: str, metric: Metric) -> str | None:
    """On which side an effect in a `Comparison.unit` is with its whole interval, as a verdict; None of neither."""
    if found is None or found.low is None or found.high is None:
        return None
    if unit == "points" and max(-found.low, found.high) < verdicts.POINTS:
        return verdicts.SAME
    if unit == "times" and found.low >= 1 / verdicts.WORTH and found.high <= verdicts.WORTH:
        return verdicts.SAME
    none = 1 if unit == "times" else 0
    if found.low <= none <= found.high:
        return None
    return verdicts.BETTER if (found.low > none) == (metric.better == "up") else verdicts.WORSE


def together(made: Sequence[Comparison]) -> list[Comparison]:
    """The same with the verdicts of a study, all of which hold together."""
    undecided = [one for one in made if one.to and not one.verdict]
    words = verdicts.holm([one.decide for one in undecided])
    decided = {one.of.point: one.decided(word) for one, word in zip(undecided, words, strict=True)}
    return [decided.get(one.of.point, one) for one in made]


def comparisons(
    candidates: Iterable[Configuration],
    study: Study,
    collected: Collected,
    eligible: Callable[[Config, str], bool],
) -> list[Comparison]:
    """Each model of each task at its best configuration, with the best of its controls, and why no interval can decide.

    eligible: whether a model of this name is compared; a control need not be. The others have no verdict, and neither has
    what is nothing but a control, even if nothing that it controls has a result. Models of which every seed failed, and
    controls, are compared if there is no other configuration: nothing stands in for them.
    """
    config = collected.config
    asked = {(config.data(run.workload), run.model) for run in study.runs}
    tried: dict[tuple[tuple[str, str], str], list[Configuration]] = {}
    lost: list[Configuration] = []
    for each in candidates:
        if each.tests:
            tried.setdefault((each.task, each.model), []).append(each)
        elif each.failed:
            lost.append(each)
    chosen = ((best(found), found) for _, found in sorted(tried.items()))
    models = [
        replace(each, budget=each.budget.among([one.budget for one in found if one.budget]))
        for each, found in chosen
        if each is not None and each.budget is not None
    ]

    def control(each: Configuration) -> Configuration | None:
        if not eligible(config, each.model):
            return None
        able, gone = (
            [other for other in of if other.task == each.task and controls(config, other.model, each.model)]
            for of in (models, lost)
        )
        return best(able) if able else min(gone, key=_name, default=None)

    made = [Comparison(each, control(each), standard(each, collected)) for each in models]
    controlled = {one.of.task for one in made if one.to}

    def alone(one: Comparison) -> bool:
        model, (workload, _) = one.of.model, one.of.task
        others = (other for name, other in asked if name == workload)
        return one.of.task not in controlled and not any(controls(config, model, each) for each in others)

    compared = [
        one if one.to else replace(one, to=one.baseline or one.of.guessing())
        for one in made
        if one.to or (alone(one) and eligible(config, one.of.model))
    ]
    known = {(each.task, each.model) for each in models}
    for each in sorted(lost, key=_name):
        if (each.task, each.model) not in known and (to := control(each)):
            known.add((each.task, each.model))
            compared.append(Comparison(each, to))
    for number, one in enumerate(compared):
        verdict, why = one.undecided()
        compared[number] = replace(one, verdict=verdict, why=why)
    return [*{one.of.point: one for one in (*made, *compared)}.values()]


def best(found: Sequence[Configuration]) -> Configuration | None:
    """The best on validation data; without such data only one that is alone, since a test may choose nothing."""
    validated = [each for each in found if each.validation is not None]
    return min(validated, key=_rank) if validated else found[0] if len(found) == 1 else None


def _rank(each: Configuration) -> tuple[Any, ...]:
    """Smaller is better: the better validation, then no failed seeds, then the name.

    A seed that failed gets nothing right; of metrics that are no shares, it comes after all without one.
    """
    assert each.validation is not None
    failed, up, value = len(each.failed), each.metric.better == "up", each.validation
    if each.metric.is_share:
        value = (value * len(each.tests) + (0 if up else failed)) / (len(each.tests) + failed)
    last = bool(failed) and not each.metric.is_share
    return last, -value if up else value, bool(failed), *_name(each)


def _name(each: Configuration) -> tuple[Any, ...]:
    """By what ties break."""
    return each.model, tuple(map(str, each.point))


def controls(config: Config, other: str, model: str) -> bool:
    """Whether a model is a control of another: the one, or of the kind, that this names, or any classical one of a
    quantum one.
    """
    (kind, control), (_, of) = config.models[other], config.models[model]
    return other != model and (of.control in (other, kind) or (control.classical and not of.classical))


def standard(each: Configuration, collected: Collected) -> Configuration | None:
    """The baseline that is best on validation data, with its test beside each seed of a configuration; None without one.

    It is the one that its family names last, if several are equally good or there are no validation data.
    """
    known = _known(each, collected)
    if None in known.values():
        return None
    fitted = {
        (one.name, workload, one.fold): one
        for workload, found in known.items()
        for one in (found.results if found else ())
        if one.test is not None
    }
    made, ratios = [], {split: test.ratio for (split, _), test in each.tests.items()}
    for name in dict.fromkeys(name for name, _, _ in fitted):
        parts = {seed_of(row): (name, row["workload"], row["fold"]) for row in each.group}
        if not fitted.keys() >= {*parts.values()}:
            continue
        found = {seed: fitted[part] for seed, part in parts.items()}
        validated = [one.validation for one in found.values() if one.validation is not None]
        made.append(
            replace(
                each, group=(), model=name, failed=(), budget=None,
                tests={seed: metrics.of_baseline(one, ratios.get(seed[0], 0.0)) for seed, one in found.items()},
                validation=statistics.fmean(validated) if validated else None,
            )
        )  # fmt: skip
    sign = -1 if each.metric.better == "up" else 1
    return min(reversed(made), key=lambda one: sign * (one.validation or 0), default=None)


def lacking(each: Configuration, collected: Collected) -> Iterator[str]:
    """Why some baseline, or all, are not beside a configuration, in words."""
    for workload, found in _known(each, collected).items():
        if collected.config.family(workload).baselines is None:
            return
        if found is not None:
            yield from dict.fromkeys(f"there is no {one.name}: {one.why}" for one in found.results if one.why)
        elif workload in collected.baselines:
            yield f"its baselines are of other data: run `ketscale baseline {workload}`"
        else:
            yield f"no baseline has been fitted to it: run `ketscale baseline {workload}`"


def _known(each: Configuration, collected: Collected) -> dict[str, Baselines | None]:
    """The baselines of a configuration's data, or of each of its splits; None if there are none of the data of its runs."""
    known: dict[str, Baselines | None] = {}
    for workload in dict.fromkeys(row["workload"] for row in each.group):
        found = collected.baselines.get(workload)
        completed = (row for row in each.group if row["status"] == "completed")
        features = {row["features_hash"] for row in completed if row["workload"] == workload}
        known[workload] = found if found is not None and features <= {found.features} else None
    return known
