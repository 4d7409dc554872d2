"""Which configuration of each model is compared with which control, and what comes of it.

Configurations are chosen on validation data alone: choosing on test data would make the test result too good. The control
is the best of all that a model has, at its own best configuration. Nothing depends on an order: ties break by name.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ketscale.analysis import comparability, metrics, verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.intervals import FEWEST, LEVEL, Estimate
from ketscale.analysis.points import Group, Point
from ketscale.config import Config, Metric
from ketscale.grid import AXES, Run

# Shares whose difference is smaller by all of its interval are equal.
EQUAL_WITHIN = 0.02
# What stands beside a model that has no control.
GUESSING = "guessing"


@dataclass(frozen=True, eq=False)
class Candidate:
    """A configuration of a model, as a study tested it.

    task: the data set, and the size if that is part of the task. tests: of its completed seeds. failed: the seeds that
    ended otherwise. validation: the mean of the headline metric. chance: what guessing gives. why: what keeps its own runs from
    being joined, '' if nothing does.
    """

    point: Point
    group: Group
    metric: Metric
    task: tuple[str, str]
    model: str
    tests: metrics.Tests
    failed: tuple[int, ...]
    validation: float | None
    chance: float | None
    why: str

    @property
    def rank(self) -> tuple[Any, ...]:
        """Smaller is better: no failed seeds, then the better validation, then the name."""
        assert self.validation is not None
        value = -self.validation if self.metric.better == "up" else self.validation
        return bool(self.failed), value, self.model, tuple(map(str, self.point))

    def estimate(self) -> Estimate | None:
        """The headline metric on test data."""
        return None if self.why else metrics.estimate(self.tests, self.metric)


@dataclass(frozen=True, eq=False)
class Match:
    """A chosen configuration beside the best of its controls, or beside guessing.

    beside: the control's name, or `GUESSING`; '' if there is nothing. tried, control_tried: numbers of configurations of
    both.
    """

    chosen: Candidate
    tried: int
    control: Candidate | None = None
    control_tried: int = 0
    verdict: str = ""

    @property
    def beside(self) -> str:
        """What it is compared with."""
        if self.control is not None:
            return self.control.model
        return "" if self._guessed is None else GUESSING

    @cached_property
    def why(self) -> str:
        """What keeps the two from being compared; '' if nothing does."""
        sides = (self.chosen, self.control) if self.control else (self.chosen,)
        return comparability.hindrance(comparability.quality(row) for side in sides for row in side.group)

    @property
    def unit(self) -> str:
        """Of the effect: 'points' of a share, 'times' of a ratio, else that of the metric."""
        one, other = self.chosen, self.control
        if (
            other is not None
            and one.tests
            and other.tests
            and metrics.is_ratio(one.tests, other.tests, one.metric)
        ):
            return "times"
        return "points" if one.metric.is_share else one.metric.unit

    @property
    def _guessed(self) -> float | None:
        return self.chosen.chance if self.chosen.metric.is_share else None

    def effect(self, level: float = LEVEL) -> Estimate | None:
        """How much more the model has than what it is compared with, at a level; None if nothing is known of it.

        A difference, also where `unit` is 'points'; a ratio if it is 'times'.
        """
        if self.why or not self.beside:
            return None
        return self._against(self.chosen.tests, self.control.tests if self.control else {}, level)

    def decide(self, level: float) -> str | None:
        """The verdict of the interval at this level, which failed seeds must not overturn; None if it decides nothing."""
        effect = self.effect(level)
        word = self._side(effect)
        control = self.control or replace(self.chosen, tests={}, failed=())
        if word == verdicts.BETTER and self.chosen.failed:
            worst = self._wrong(self.chosen, control)
            return word if worst and self._side(self._against(worst, control.tests, level)) == word else None
        if word == verdicts.WORSE and control.failed:
            worst = self._wrong(control, self.chosen)
            return (
                word if worst and self._side(self._against(self.chosen.tests, worst, level)) == word else None
            )
        return None if word == verdicts.EQUAL and (self.chosen.failed or control.failed) else word

    def undecided(self) -> str:
        """Why no interval decides, as a verdict; '' if one may."""
        if not self.beside:
            return verdicts.NO_CONTROL
        if self.why:
            return verdicts.APART
        effect = self.effect()
        return verdicts.FEW if effect is None or effect.n < FEWEST else ""

    def _against(self, one: metrics.Tests, other: metrics.Tests, level: float) -> Estimate | None:
        if self.control is not None:
            return metrics.difference(one, other, self.chosen.metric, level)
        found = metrics.estimate(one, self.chosen.metric, level)
        guessed = self._guessed
        if found is None or found.low is None or found.high is None or guessed is None:
            return None
        return replace(found, value=found.value - guessed, low=found.low - guessed, high=found.high - guessed)

    def _side(self, found: Estimate | None) -> str | None:
        if found is None or found.low is None or found.high is None:
            return None
        if self.unit == "points" and self.control and max(-found.low, found.high) < EQUAL_WITHIN:
            return verdicts.EQUAL
        none = 1 if self.unit == "times" else 0
        if found.low <= none <= found.high:
            return None
        more = found.low > none
        return verdicts.BETTER if more == (self.chosen.metric.better == "up") else verdicts.WORSE

    def _wrong(self, side: Candidate, other: Candidate) -> metrics.Tests | None:
        """The tests of a side, with those of its failed seeds, which got nothing right; None if the metric is no share."""
        if not side.metric.is_share:
            return None
        # Of a seed that both sides lost nothing is known, and it is no pair.
        lost = {seed: other.tests[seed].all_wrong() for seed in side.failed if seed in other.tests}
        return {**side.tests, **lost}


def candidate(point: Point, group: Group, collected: Collected) -> Candidate:
    """What a point's runs have shown, whose order does not matter."""
    config, rows = collected.config, sorted(group, key=lambda row: int(row["seed"]))
    first = rows[0]
    family = config.family(first["workload"])
    metric = family.headline
    completed = [row for row in rows if row["status"] == "completed"]
    validation = _known(completed, f"validation_{metric.name}")
    chance = _known(completed, "test_chance")
    return Candidate(
        point, rows, metric, (first["workload"], first["size"] if family.work else ""), first["model"],
        metrics.tested([collected.records[Run(**{name: row[name] for name in AXES})] for row in completed], metric),
        tuple(row["seed"] for row in rows if row["status"] != "completed"),
        statistics.fmean(validation) if validation else None,
        statistics.fmean(chance) if chance else None,
        comparability.hindrance(comparability.quality(row) for row in completed),
    )  # fmt: skip


def matches(candidates: Iterable[Candidate], config: Config, eligible: Callable[[str], bool]) -> list[Match]:
    """Each model of each task at its best configuration, with the best of its controls, and the verdicts of a study.

    eligible: whether a model of this name is compared; a control need not be.
    """
    tried: dict[tuple[tuple[str, str], str], list[Candidate]] = {}
    for each in candidates:
        if each.validation is not None and each.tests:
            tried.setdefault((each.task, each.model), []).append(each)
    best = {key: min(found, key=lambda each: each.rank) for key, found in sorted(tried.items())}
    made = []
    for (task, model), chosen in best.items():
        if eligible(model):
            controls = [
                other for (of, name), other in best.items() if of == task and _controls(config, name, model)
            ]
            control = min(controls, key=lambda each: each.rank, default=None)
            number = len(tried[task, control.model]) if control else 0
            made.append(Match(chosen, len(tried[task, model]), control, number))
    return _judged(made)


def _controls(config: Config, name: str, model: str) -> bool:
    """Whether a model is a control of another: of the kind that this declares, or any classical one of a quantum one."""
    kind, of = config.models[name][0], config.models[model][1]
    return name != model and (kind == of.control or (config.models[name][1].classical and not of.classical))


def _judged(made: Sequence[Match]) -> list[Match]:
    """The matches with their verdicts, which hold together. A task's models without a control have none beside others."""
    tasks = {match.chosen.task for match in made if match.control}
    compared = [match for match in made if match.control or match.chosen.task not in tasks]
    words = {id(match): match.undecided() for match in compared}
    open_ = [match for match in compared if not words[id(match)]]
    for match, word in zip(open_, verdicts.holm([match.decide for match in open_]), strict=True):
        failed = match.chosen.failed or (match.control and match.control.failed)
        effect = match.effect()
        hidden = failed and effect is not None and match.decide(LEVEL) is None and match._side(effect)
        words[id(match)] = word or (verdicts.FAILED if hidden else verdicts.CANNOT_TELL)
    return [replace(match, verdict=words.get(id(match), "")) for match in made]


def _known(rows: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows if row[name] is not None]
