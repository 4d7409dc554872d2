"""What several data sets say together: the verdict for all, by signed ranks, and the ranks of all models."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ketscale.analysis import ranks, verdicts
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.intervals import LEVEL, Estimate
from ketscale.analysis.kinds import finding
from ketscale.analysis.kinds.finding import Finding
from ketscale.analysis.kinds.selection import GUESSING, controls, side
from ketscale.analysis.points import FOUND
from ketscale.analysis.wording import SHORT, fitting, listed
from ketscale.config import Config, Metric
from ketscale.grid import Study
from ketscale.words import counted, spelled

# A data set, and the size if that is part of the task.
Task = tuple[str, str]


def tasks_of(study: Study, config: Config) -> dict[Task, set[str]]:
    """The data sets of a study, each with the models that are asked for on it."""
    found: dict[Task, set[str]] = {}
    for run in study.runs:
        size = run.size if config.family(run.workload).work else ""
        found.setdefault((config.data(run.workload), size), set()).add(run.model)
    return dict(sorted(found.items()))


def level_of(tasks: Collection[Task]) -> float:
    """The level of intervals, one for each data set, that hold together with 95 %, whatever has been measured yet."""
    return 1 - (1 - LEVEL) / len(tasks)


@dataclass(frozen=True, eq=False)
class Whole:
    """All data sets of a study.

    tasks: as of `tasks_of`. found: what its configurations have shown, in an order of their own.
    """

    config: Config
    tasks: Mapping[Task, set[str]]
    found: Sequence[Finding]

    @classmethod
    def of(cls, study: Study, inputs: Inputs) -> Whole:
        """From the study's rows of quality.csv."""
        rows = inputs.quality[inputs.quality["study"] == study.name]
        ordered = rows.sort_values(["workload", "model", "size", "batch", "simulator", "layout", "protocol"])
        return cls(inputs.config, tasks_of(study, inputs.config), [*ordered[FOUND]])

    @cached_property
    def heads(self) -> dict[Task, Finding]:
        """The configuration of each data set whose verdict is that of the data set."""
        return {each.task: each for each in sorted(self.found, key=lambda one: one.task) if each.verdict}

    @cached_property
    def unit(self) -> str:
        """The unit of the differences; '' if they have none in common."""
        units = {head.unit for head in self.heads.values() if head.effect}
        return units.pop() if len(units) == 1 else ""

    @cached_property
    def plain(self) -> list[float]:
        """The differences of the data sets, on the scale on which they add."""
        return [self._scaled(one.effect.value) for one in self.heads.values() if one.effect and self.unit]

    @cached_property
    def counted(self) -> list[float | None]:
        """The same where seeds that failed count as wrong; None of one for which that is no number."""
        made = []
        for task in self.tasks if self.unit else ():
            head = self.heads.get(task)
            if head and head.effect:
                made.append(None if head.counted is None else self._scaled(head.counted))
            elif lost := self.lost(task):
                made.append(lost if self.unit == "points" else None)
        return made

    @cached_property
    def typical(self) -> Estimate | None:
        """What is typical of the differences, as `Match.effect` has it; None without a difference."""
        return self._ranked(self.plain)

    @property
    def effect(self) -> Estimate | None:
        """The same in `unit`; of one data set alone its own effect."""
        if len(self.tasks) == 1:
            return next((head.effect for head in self.heads.values()), None)
        return self.typical.times(100) if self.typical and self.unit == "points" else self.typical

    @cached_property
    def verdict(self) -> str:
        """The word for all data sets: that of signed ranks; where these are too few, the word that every data set has.

        It is none that seeds which failed would overturn, and none if they leave most data sets undecided.
        """
        words = {head.verdict for head in self.heads.values()}
        if not words:
            return verdicts.OPEN
        if 2 * len(self.failing) > len(self.tasks):
            return verdicts.FAILED
        # Data sets are too few for an interval of signed ranks.
        if self.typical is None or self.typical.low is None:
            alike = len(words) == 1 and len(self.heads) == len(self.tasks)
            return words.pop() if alike else verdicts.CANNOT_TELL
        plain = side(self.typical, self.unit, self.metric)
        if self.counted == self.plain:
            return plain or verdicts.CANNOT_TELL
        known = [value for value in self.counted if value is not None]
        kept = len(known) == len(self.counted) and side(self._ranked(known), self.unit, self.metric) == plain
        if plain and (plain == verdicts.EQUAL or not kept):
            return verdicts.FAILED
        return plain or verdicts.CANNOT_TELL

    @cached_property
    def scores(self) -> list[dict[str, float]]:
        """What every model that is asked for on all data sets reaches, the larger the better, where all have a result.

        A seed that failed gets nothing right; of metrics that are no shares, a model with such a seed comes last.
        """
        models = set.intersection(*self.tasks.values())
        rows = [{model: _score(self._of(task, model)) for model in sorted(models)} for task in self.tasks]
        known = [{model: score for model, score in row.items() if score is not None} for row in rows]
        return [row for row in known if row and len(row) == len(models)]

    @cached_property
    def ranks(self) -> dict[str, float]:
        """The mean rank of each model, best first; of none if data sets or models are too few."""
        if len(self.scores) < ranks.FEWEST_DATA or len(self.scores[0]) < ranks.FEWEST_MODELS:
            return {}
        return dict(sorted(ranks.mean_ranks(self.scores).items(), key=lambda each: (each[1], each[0])))

    @cached_property
    def critical_difference(self) -> float:
        """The critical difference of mean ranks."""
        return ranks.critical_difference(len(self.ranks), len(self.scores))

    @property
    def metric(self) -> Metric:
        """The headline metric of all data sets."""
        return self.found[0].metric

    @property
    def model(self) -> str:
        """The model that the verdict is on, in words."""
        names = {head.model for head in self.heads.values()}
        classical = any(self.config.models[name][1].classical for name in names)
        return names.pop() if len(names) == 1 else "the best model" if classical else "the best quantum model"

    @property
    def control(self) -> str:
        """What it is compared with, in words."""
        beside = {head.beside: head.standard for head in self.heads.values() if head.beside}
        standard = all(name == baseline for name, baseline in beside.items())
        if len(beside) != 1:
            return "the best baseline" if standard else "the best control"
        name = next(iter(beside))
        return name if name == GUESSING else f"{'the baseline' if standard else 'its control'} {name}"

    def is_control(self, model: str, task: Task) -> bool:
        """Whether a model is the control of another one of a data set."""
        return any(controls(self.config, model, other) for other in self.tasks[task])

    @property
    def failing(self) -> list[Task]:
        """The data sets that are undecided since seeds failed."""
        known = (task for task, head in self.heads.items() if head.verdict == verdicts.FAILED)
        return [*known, *(task for task in self.tasks if task not in self.heads and self.lost(task))]

    def lost(self, task: Task) -> float:
        """-1 if every seed of every model on a data set failed but those of its controls, 1 if every one of these did, else 0."""
        for sign, of_controls in ((-1.0, False), (1.0, True)):
            models = [name for name in self.tasks[task] if self.is_control(name, task) == of_controls]
            if models and all(_score(self._of(task, name)) == -math.inf for name in models):
                return sign
        return 0.0

    def said(self) -> tuple[str, str]:
        """A sentence, and a short one of at most twelve words."""
        heads, model, control, metric = [*self.heads.values()], self.model, self.control, self.metric.title
        if len(self.tasks) == 1:
            return heads[0].said()
        of_sides = {task: self.budget(task) for task in self.heads}
        sides = (
            replace(head, uneven=0 not in of_sides[task] and len({*of_sides[task]}) > 1)
            for task, head in self.heads.items()
        )
        word, effect = self.verdict, self.effect
        care = finding.care(sides, failed=bool(self.failing) and word != verdicts.FAILED)
        if effect is None or effect.low is None:
            text = self._few(care)
        else:
            words = {
                "model": model, "control": control, "metric": metric, "failed": "seeds",
                "theirs": control if control == GUESSING else f"that of {control}",
                "amount": finding.amount(effect, self.unit), "ends": finding.ends(effect, self.unit),
            }  # fmt: skip
            over = f"Over {spelled(len(self.plain))} data sets"
            text = f"{over}, {finding.SENTENCES[word].format(**words)}{care}."
        short = finding.briefly(word, model, control)
        return text, fitting(short + care, short, limits=SHORT)

    def budget(self, task: Task) -> tuple[int, int]:
        """The number of settings that validation chose from on a data set: of all models that have a control, and of all controls."""
        spent = [
            (self.is_control(each.model, task), each.budget.tried)
            for each in self.found
            if each.task == task and each.budget
        ]
        return sum(tried for of, tried in spent if not of), sum(tried for of, tried in spent if of)

    def _few(self, care: str) -> str:
        """What is said where data sets are too few for signed ranks: how many have which verdict, and why there are no ranks."""
        better, worse = (
            sum(head.verdict == word for head in self.heads.values())
            for word in (verdicts.BETTER, verdicts.WORSE)
        )
        on = (
            f"Of {spelled(len(self.tasks))} data sets {self.model} is better than {self.control} on "
            f"{spelled(better) if better else 'none'}, worse on {spelled(worse) if worse else 'none'}"
        )
        return fitting(f"{on}; signed ranks need six{care}.", f"{on}{care}.")

    def notes(self) -> Iterator[str]:
        """What a reader should know of the whole, a sentence each."""
        count, lacking = len(self.tasks), len(self.tasks) - len(self.plain)
        if count > 1:
            yield (
                f"Intervals of differences are of {100 * level_of(self.tasks):.4g} % each, so that those of {spelled(count)} data sets hold together "
                "with 95 %; on each data set validation chose the model and the control that have the verdict."
            )
        for ours, theirs in sorted({self.budget(task) for task in self.heads}):
            if ours != theirs and min(ours, theirs):
                yield f"Careful: validation chose out of {ours} settings of models, and out of {theirs} of controls."
        if any(
            one.splits == 1 and not self.config.block(one.task[0])[1].folded for one in self.heads.values()
        ):
            yield "Careful: the verdict on a data set with one split holds for its training samples alone."
        made = {name: self.config.block(name) for name, _ in self.tasks}
        generated = [name for name, (_, block) in made.items() if block.generated]
        if generated:
            yield f"{listed(generated)} {'are' if len(generated) > 1 else 'is'} generated, not measured, data."
        if len(generated) > (generators := len({made[name][0] for name in generated})):
            yield (
                f"Careful: {spelled(len(generated))} data sets are of {counted(generators, 'generator')}; the verdict for all takes "
                "data sets as independent of each other."
            )
        if lacking:
            yield f"{lacking} of {count} data sets {'have' if lacking > 1 else 'has'} no difference to be joined."
        if self.ranks:
            p = ranks.friedman(self.scores)
            amount = f"p = {p:.2g}" if p >= 0.001 else "p < 0.001"
            found = "some models differ" if p < 1 - LEVEL else "no model is told from another by its rank"
            yield (
                f"Friedman's test on the ranks of {spelled(len(self.ranks))} models gives {amount}: {found}; their critical "
                f"difference is {self.critical_difference:.2f} ranks."
            )
        elif len(self.plain) < ranks.FEWEST_DATA:
            yield f"Fewer than {spelled(ranks.FEWEST_DATA)} data sets have no ranks."

    def _of(self, task: Task, model: str) -> list[Finding]:
        return [each for each in self.found if (each.task, each.model) == (task, model)]

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.unit == "times" else value / 100 if self.unit == "points" else value

    def _ranked(self, differences: Sequence[float]) -> Estimate | None:
        found = ranks.signed_rank(differences)
        return found.mapped(math.exp) if found and self.unit == "times" else found


def _score(points: Sequence[Finding]) -> float | None:
    """The score of a model on a data set from its configurations; None if it has none yet."""
    if points and all(each.failed and not each.n for each in points):
        return -math.inf
    chosen = next((each for each in points if each.chosen and each.reached), None)
    if chosen is None or chosen.reached is None or chosen.why:
        return None
    up, value = chosen.metric.better == "up", chosen.reached.value
    if chosen.metric.is_share:
        value = (value * chosen.n + (0 if up else chosen.failed)) / (chosen.n + chosen.failed)
    elif chosen.failed:
        return -math.inf
    return value if up else -value
