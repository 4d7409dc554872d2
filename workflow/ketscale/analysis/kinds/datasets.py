"""What several data sets say together: the verdict for all, by signed ranks, and the ranks of all models."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ketscale.analysis import ranks, verdicts
from ketscale.analysis.intervals import LEVEL, Estimate
from ketscale.analysis.kinds.selection import Comparison, Configuration, Task, controls, side
from ketscale.config import Config


@dataclass(frozen=True, eq=False)
class Overall:
    """What all data sets of a study say together.

    tasks: each data set with the models that are asked for. made: the configurations. heads: the comparison of each data
    set whose verdict is that of the data set. chosen: the configuration of each data set and model that validation chose.
    """

    config: Config
    tasks: Mapping[Task, set[str]]
    made: Sequence[Configuration]
    heads: Mapping[Task, Comparison]
    chosen: Mapping[tuple[Task, str], Comparison]

    @classmethod
    def of(
        cls,
        config: Config,
        tasks: Mapping[Task, set[str]],
        made: Sequence[Configuration],
        compared: Sequence[Comparison],
    ) -> Overall:
        """From a study's configurations and comparisons."""
        ordered = sorted(compared, key=lambda one: one.of.point)
        heads = {one.of.task: one for one in ordered if one.verdict}
        chosen = {(one.of.task, one.of.model): one for one in ordered}
        return cls(config, tasks, made, dict(sorted(heads.items())), chosen)

    @staticmethod
    def level(tasks: Collection[Task]) -> float:
        """The level of intervals, one for each data set, that hold together with 95 %, whatever has been measured yet."""
        return 1 - (1 - LEVEL) / len(tasks)

    @cached_property
    def unit(self) -> str:
        """The unit of the differences; '' if they have none in common."""
        units = {head.unit for head in self.heads.values() if head.effect()}
        return units.pop() if len(units) == 1 else ""

    @cached_property
    def plain(self) -> list[float]:
        """The differences of the data sets, on the scale on which they add."""
        effects = [effect for one in self.heads.values() if self.unit and (effect := one.effect())]
        return [self._scaled(effect.value) for effect in effects]

    @cached_property
    def cautious(self) -> list[float | None]:
        """The same where seeds that failed count as wrong; None of one for which that is no number."""
        made: list[float | None] = []
        for task in self.tasks if self.unit else ():
            head = self.heads.get(task)
            if head and head.effect():
                failed = any(each.failed for each in head.sides)
                counted = head.effect(failed=failed) if head.of.metric.is_share or not failed else None
                made.append(self._scaled(counted.value) if counted else None)
            elif lost := self.lost(task):
                made.append(100 * lost if self.unit == "points" else None)
        return made

    @cached_property
    def effect(self) -> Estimate | None:
        """What is typical of the differences, in `unit`; of one data set alone its own effect."""
        if len(self.tasks) == 1:
            return next((head.effect() for head in self.heads.values()), None)
        return self._ranked(self.plain)

    @property
    def verdict(self) -> tuple[str, str]:
        """The word for all data sets, and why: that of signed ranks; where these are too few, the word that every data set has.

        It is none that seeds which failed would overturn, and none if they leave most data sets undecided.
        """
        failing = [
            task for task in self.tasks
            if (self.heads[task].verdict == verdicts.FAILED if task in self.heads else self.lost(task))
        ]  # fmt: skip
        if 2 * len(failing) > len(self.tasks):
            return verdicts.FAILED, "seeds failed on most data sets"
        words = {head.verdict for head in self.heads.values()}
        if not words:
            return verdicts.MISSING, "no data set has both a model and a control with a result"
        typical = self._ranked(self.plain)
        if not self.unit and any(head.effect() for head in self.heads.values()):
            return verdicts.CANNOT_TELL, "the differences have no unit in common"
        if typical is None or typical.low is None:
            alike = len(words) == 1 and len(self.heads) == len(self.tasks)
            return (words.pop(), "") if alike else (verdicts.CANNOT_TELL, "signed ranks need six data sets")
        metric = next(iter(self.heads.values())).of.metric
        plain = side(typical, self.unit, metric)
        if self.cautious == self.plain:
            return plain or verdicts.CANNOT_TELL, ""
        known = [value for value in self.cautious if value is not None]
        kept = len(known) == len(self.cautious) and side(self._ranked(known), self.unit, metric) == plain
        if plain and (plain == verdicts.SAME or not kept):
            return verdicts.FAILED, "with failed seeds counted as wrong nothing is decided"
        return plain or verdicts.CANNOT_TELL, ""

    @cached_property
    def scores(self) -> list[dict[str, float]]:
        """What every model that is asked for on all data sets reaches, the larger the better, where all have a result.

        A seed that failed gets nothing right; of metrics that are no shares, a model with such a seed comes last.
        """
        models = set.intersection(*self.tasks.values())
        rows = [{model: self._score(task, model) for model in sorted(models)} for task in self.tasks]
        known = [{model: score for model, score in row.items() if score is not None} for row in rows]
        return [row for row in known if row and len(row) == len(models)]

    def rows(self) -> Iterator[dict[str, Any]]:
        """The row of all data sets, and from five data sets and three models on one for each model's rank."""
        word, why = self.verdict
        effect, count = self.effect, len(self.tasks)
        ends = {"effect": effect.value, "low": effect.low, "high": effect.high} if effect else {}
        names = {head.of.model for head in self.heads.values()}
        theirs = {head.to.model for head in self.heads.values() if head.to}
        yield {
            "row": "data sets", "point": f"{count} data sets: {names.pop() if len(names) == 1 else 'the best model'}",
            "reference": theirs.pop() if len(theirs) == 1 else "the best control",
            **ends, "unit": self.unit if effect else "", "pairs": len(self.plain), "n": len(self.plain),
            "verdict": word, "why": why,
        }  # fmt: skip
        if len(self.scores) < ranks.FEWEST_DATA or len(self.scores[0]) < ranks.FEWEST_MODELS:
            return
        difference, p = (
            ranks.critical_difference(len(self.scores[0]), len(self.scores)),
            ranks.friedman(self.scores),
        )
        for model, rank in sorted(ranks.mean_ranks(self.scores).items(), key=lambda each: (each[1], each[0])):
            yield {
                "row": "rank", "point": model, "model": model, "effect": rank,
                "control": model if any(self.is_control(model, task) for task in self.tasks) else "", "unit": "mean rank", "n": len(self.scores),
                "low": rank - difference / 2, "high": rank + difference / 2,
                "why": f"Friedman's test: p = {p:.2g}; ranks that are {difference:.2f} apart differ",
            }  # fmt: skip

    def lost(self, task: Task) -> float:
        """-1 if every seed of every model on a data set failed but those of its controls, 1 if every one of these did, else 0."""
        for sign, of_controls in ((-1.0, False), (1.0, True)):
            models = [name for name in self.tasks[task] if self.is_control(name, task) == of_controls]
            if models and all(self._score(task, name) == -math.inf for name in models):
                return sign
        return 0.0

    def has_failed(self, each: Configuration) -> bool:
        """Whether its side of a data set failed, so that the data set has no comparison."""
        lost = self.lost(each.task)
        return (
            each.task not in self.heads and lost != 0 and self.is_control(each.model, each.task) == (lost > 0)
        )

    def is_control(self, model: str, task: Task) -> bool:
        """Whether a model is the control of another one of a data set."""
        return any(controls(self.config, model, other) for other in self.tasks[task])

    def _score(self, task: Task, model: str) -> float | None:
        """The score of a model on a data set from its configurations; None if it has none yet."""
        own = [each for each in self.made if (each.task, each.model) == (task, model)]
        if own and all(each.failed and not each.tests for each in own):
            return -math.inf
        one = self.chosen.get((task, model))
        reached = one.of.estimate() if one else None
        if one is None or reached is None or one.incomparable:
            return None
        metric, failed, n, value = one.of.metric, len(one.of.failed), len(one.of.tests), reached.value
        if metric.is_share:
            value = (value * n + (0 if metric.better == "up" else failed)) / (n + failed)
        elif failed:
            return -math.inf
        return value if metric.better == "up" else -value

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.unit == "times" else value

    def _ranked(self, differences: Sequence[float]) -> Estimate | None:
        typical = ranks.signed_rank(differences)
        return typical.mapped(math.exp) if typical and self.unit == "times" else typical
