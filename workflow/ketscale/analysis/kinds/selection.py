"""Which configuration of each model is compared with which control, and what comes of it.

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

# Shares whose difference is smaller by all of its interval are equal.
EQUAL_WITHIN = 0.02
# A test of which more than this share may be known from training decides nothing.
KNOWN_WITHIN = 0.05
GUESSING = "guessing"


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
class Candidate:
    """A configuration of a model, as a study tested it; or a baseline or guessing, which have no runs.

    task: the data set, and the size if that is part of the task. tests: of its completed seeds, by `seed_of`. failed: the
    seeds that ended otherwise. validation: the mean of the headline metric. chance: what guessing gives. budget: of the choice, None of what
    had none; once a configuration is chosen, over all of them.
    """

    point: Point
    group: Group
    metric: Metric
    task: tuple[str, str]
    model: str
    tests: metrics.Tests
    failed: tuple[metrics.Seed, ...]
    validation: float | None
    chance: float | None
    budget: Budget | None = None

    @classmethod
    def of(cls, point: Point, group: Group, collected: Collected) -> Candidate:
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
    def known(self) -> str:
        """That too much of its test is not new, in words; '' if it is new.

        Records count samples of validation and test together, so that all of them may be of the test.
        """
        counts = [(row["shared"] or 0, row["test_samples"]) for row in self.group if row["test_samples"]]
        shared, count = max(counts, key=lambda each: each[0] / each[1], default=(0, 1))
        few = shared <= KNOWN_WITHIN * count
        return "" if few else f"up to {min(shared, count):,} of {count:,} test samples are not new"

    def estimate(self) -> Estimate | None:
        """The headline metric on test data; None if its runs cannot be joined."""
        return None if comparability.hindrance(self.keys) else metrics.estimate(self.tests, self.metric)

    def guessing(self) -> Candidate | None:
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
class Match:
    """A chosen configuration beside the best of its controls, if it has any, and the best baseline of its data.

    level: of the interval that is shown of their difference.
    """

    chosen: Candidate
    control: Candidate | None = None
    standard: Candidate | None = None
    verdict: str = ""
    level: float = LEVEL

    @cached_property
    def why(self) -> str:
        """What keeps the two from being compared; '' if nothing does."""
        sides = [each for each in (self.chosen, self.control) if each]
        apart = comparability.hindrance(key for each in sides for key in each.keys)
        return apart or next(filter(None, (each.known for each in sides)), "")

    @property
    def untuned(self) -> bool:
        """Whether a side has not been tuned by a search; guessing cannot be."""
        beside = self.control and self.control.model != GUESSING
        return bool(beside) and not all(each.trials for each in self._budgets)

    @property
    def uneven(self) -> bool:
        """Whether the sides were chosen from different numbers of settings."""
        return len({each.tried for each in self._budgets}) > 1

    @property
    def _budgets(self) -> list[Budget]:
        """The budgets of the sides; baselines and guessing have none."""
        return [each.budget for each in (self.chosen, self.control) if each and each.budget]

    @property
    def unit(self) -> str:
        """The unit of the effect: 'points' of a share, 'times' of a ratio, else that of the metric."""
        metric = self.chosen.metric
        ratio = self.control and metrics.is_ratio(self.chosen.tests, self.control.tests, metric)
        return "times" if ratio else "points" if metric.is_share else metric.unit

    def effect(self, level: float | None = None, failed: bool = False) -> Estimate | None:
        """How much more the model has than its control: a ratio if `unit` is 'times', else the difference.

        level: of the interval, by default that of the match. failed: whether seeds that failed on one side count as getting nothing right.
        """
        if self.control is None or self.why:
            return None
        one, other = self.chosen.tests, self.control.tests
        if failed:
            one = {**one, **{seed: other[seed].guessed(0.0) for seed in self.chosen.failed if seed in other}}
            other = {**other, **{seed: one[seed].guessed(0.0) for seed in self.control.failed if seed in one}}
        return metrics.difference(one, other, self.chosen.metric, level or self.level)

    def decide(self, level: float | None = None) -> str | None:
        """The verdict of the interval at a level, by default its own, which failed seeds of the side that it is for must not overturn."""
        word = side(self.effect(level), self.unit, self.chosen.metric)
        sides = {verdicts.BETTER: (self.chosen,), verdicts.WORSE: (self.control,)}
        failed = any(side and side.failed for side in sides.get(word or "", (self.chosen, self.control)))
        if not failed:
            return word
        counted = self.effect(level, failed=True) if self.chosen.metric.is_share else None
        kept = side(counted, self.unit, self.chosen.metric) == word
        return word if kept and word != verdicts.EQUAL else None

    def undecided(self) -> str:
        """Why no interval decides, as a verdict; '' if one may."""
        if self.why:
            return verdicts.APART
        if self.control is None:
            return verdicts.NO_CONTROL
        if self.chosen.mostly_failed or self.control.mostly_failed:
            return verdicts.FAILED
        effect = self.effect()
        return verdicts.FEW if effect is None or effect.n < FEWEST else ""

    def at_last(self, decided: str | None) -> str:
        """The verdict, where that is what the interval has decided."""
        hidden = self.decide() is None and side(self.effect(), self.unit, self.chosen.metric)
        return decided or (verdicts.FAILED if hidden else verdicts.CANNOT_TELL)


def side(found: Estimate | None, unit: str, metric: Metric) -> str | None:
    """On which side an effect in a `Match.unit` is with its whole interval, as a verdict; None of neither."""
    if found is None or found.low is None or found.high is None:
        return None
    if unit == "points" and max(-found.low, found.high) < EQUAL_WITHIN:
        return verdicts.EQUAL
    none = 1 if unit == "times" else 0
    if found.low <= none <= found.high:
        return None
    return verdicts.BETTER if (found.low > none) == (metric.better == "up") else verdicts.WORSE


def together(made: Sequence[Match]) -> list[Match]:
    """The same with the verdicts of a study, all of which hold together."""
    open_ = [match for match in made if match.control and not match.verdict]
    words = zip(open_, verdicts.holm([match.decide for match in open_]), strict=True)
    decided = {match.chosen.point: replace(match, verdict=match.at_last(word)) for match, word in words}
    return [decided.get(match.chosen.point, match) for match in made]


def matches(
    candidates: Iterable[Candidate],
    study: Study,
    collected: Collected,
    eligible: Callable[[Config, str], bool],
) -> list[Match]:
    """Each model of each task at its best configuration, with the best of its controls, and why no interval can decide.

    eligible: whether a model of this name is compared; a control need not be. The others have no verdict, and neither has
    what is nothing but a control, even if nothing that it controls has a result. Controls of which every seed failed are
    compared if there is no other: nothing stands in for them.
    """
    config = collected.config
    asked = {(config.data(run.workload), run.model) for run in study.runs}
    tried: dict[tuple[tuple[str, str], str], list[Candidate]] = {}
    lost: list[Candidate] = []
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

    def control(each: Candidate) -> Candidate | None:
        if not eligible(config, each.model):
            return None
        able, gone = (
            [other for other in of if other.task == each.task and controls(config, other.model, each.model)]
            for of in (models, lost)
        )
        return best(able) if able else min(gone, key=_name, default=None)

    made = [Match(each, control(each), standard(each, collected)) for each in models]
    controlled = {match.chosen.task for match in made if match.control}

    def alone(match: Match) -> bool:
        model, (workload, _) = match.chosen.model, match.chosen.task
        others = (other for name, other in asked if name == workload)
        return match.chosen.task not in controlled and not any(
            controls(config, model, each) for each in others
        )

    compared = [
        match if match.control else replace(match, control=match.standard or match.chosen.guessing())
        for match in made
        if match.control or (alone(match) and eligible(config, match.chosen.model))
    ]
    compared = [replace(match, verdict=match.undecided()) for match in compared]
    found = {match.chosen.point: match for match in (*made, *compared)}
    return list(found.values())


def best(found: Sequence[Candidate]) -> Candidate | None:
    """The best on validation data; without such data only one that is alone, since a test may choose nothing."""
    validated = [each for each in found if each.validation is not None]
    return min(validated, key=_rank) if validated else found[0] if len(found) == 1 else None


def _rank(each: Candidate) -> tuple[Any, ...]:
    """Smaller is better: the better validation, then no failed seeds, then the name.

    A seed that failed gets nothing right; of metrics that are no shares, it comes after all without one.
    """
    assert each.validation is not None
    failed, up, value = len(each.failed), each.metric.better == "up", each.validation
    if each.metric.is_share:
        value = (value * len(each.tests) + (0 if up else failed)) / (len(each.tests) + failed)
    last = bool(failed) and not each.metric.is_share
    return last, -value if up else value, bool(failed), *_name(each)


def _name(each: Candidate) -> tuple[Any, ...]:
    """By what ties break."""
    return each.model, tuple(map(str, each.point))


def controls(config: Config, other: str, model: str) -> bool:
    """Whether a model is a control of another: the one, or of the kind, that this names, or any classical one of a
    quantum one.
    """
    (kind, control), (_, of) = config.models[other], config.models[model]
    return other != model and (of.control in (other, kind) or (control.classical and not of.classical))


def standard(each: Candidate, collected: Collected) -> Candidate | None:
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


def lacking(each: Candidate, collected: Collected) -> Iterator[str]:
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


def _known(each: Candidate, collected: Collected) -> dict[str, Baselines | None]:
    """The baselines of a configuration's data, or of each of its splits; None if there are none of the data of its runs."""
    known: dict[str, Baselines | None] = {}
    for workload in dict.fromkeys(row["workload"] for row in each.group):
        found = collected.baselines.get(workload)
        completed = (row for row in each.group if row["status"] == "completed")
        features = {row["features_hash"] for row in completed if row["workload"] == workload}
        known[workload] = found if found is not None and features <= {found.features} else None
    return known
