"""Studies of several data sets: a verdict for each and one for all, by signed ranks.

On each data set validation chooses one of the models that have a control, and its reference among that one's controls and
the best baseline; the test compares the two. All intervals of differences are of one level, 1 - 5 % / (number of data
sets), so that those of the data sets hold together, and decide.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ketscale.analysis import metrics, verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.intervals import EFFECT, LEVEL, Estimate, columns
from ketscale.analysis.kinds import quality
from ketscale.analysis.kinds.quality import QualityRow
from ketscale.analysis.kinds.selection import Comparison, Task, best, comparisons, controls, side
from ketscale.analysis.points import Row
from ketscale.analysis.wording import listed
from ketscale.config import Config
from ketscale.grid import Study
from ketscale.words import counted

# Each data set with the models that are asked for on it.
Tasks = Mapping[Task, set[str]]


def rows(study: Study, collected: Collected) -> Iterator[QualityRow]:
    """The row of all data sets, and those of configurations."""
    made, tasks = quality.configurations(study, collected), tasks_of(study, collected.config)
    compared = heads(comparisons(made, study, collected), tasks, collected.config)
    whole = over_all([one for one in compared if one.verdict], tasks)
    yield {"chosen": False, "failed": 0, **whole}
    yield from quality.table(study, made, compared, collected)


def notes(made: list[Row], study: Study, collected: Collected) -> Iterator[str]:
    """The notes on each data set, and on what they say together."""
    config, tasks = collected.config, tasks_of(study, collected.config)
    yield from quality.notes(made, study, collected)
    if len(tasks) > 1:
        yield f"Intervals of differences are of {100 * _level(tasks):.4g} % each, so that all hold together with 95 %."
    blocks = {name: config.block(name) for name, _ in tasks}
    generated = sorted(name for name, (_, block) in blocks.items() if block.generated)
    if generated:
        yield f"Generated, not measured, data: {listed(generated)}."
    if len(generated) > len({blocks[name][0] for name in generated}):
        yield "Some of these are of one generator, and the verdict for all takes data sets as independent of each other."


def tasks_of(study: Study, config: Config) -> dict[Task, set[str]]:
    """The data sets of a study, each with the models that are asked for on it."""
    tasks: dict[Task, set[str]] = {}
    for run in study.runs:
        size = run.size if config.family(run.workload).work else ""
        tasks.setdefault((config.data(run.workload), size), set()).add(run.model)
    return dict(sorted(tasks.items()))


def _level(tasks: Collection[Task]) -> float:
    """The level of intervals, one for each data set, that hold together with 95 %, whatever has been measured yet."""
    return 1 - (1 - LEVEL) / len(tasks)


def heads(found: Sequence[Comparison], tasks: Tasks, config: Config) -> list[Comparison]:
    """Comparisons of which each data set has one with a verdict, that of the model that validation chose.

    Nothing stands in for controls without a result. Where every seed of the models, or of their controls, failed, this
    is the verdict.
    """
    made, able = [], dict[Task, list[Comparison]]()
    for one in found:
        one = replace(one, level=_level(tasks))
        if any(controls(config, other, one.of.model) for other in tasks[one.of.task]):
            if one.to is None or not one.to.group:
                one = replace(one, to=None, verdict="")
            elif one.baseline and one.to.tests:
                one = replace(one, to=best([one.to, one.baseline]))
        made.append(one)
        if one.verdict is None:
            able.setdefault(one.of.task, []).append(one)
    leads = {}
    for task, own in able.items():
        whole = [one for one in own if all(each.tests for each in one.sides)]
        leads[task] = best([one.of for one in whole or own])

    made = [one.judge() if one.of is leads.get(one.of.task) else replace(one, verdict="") for one in made]
    return [one.decided(one.decide()) if one.verdict is None else one for one in made]


def over_all(heads: Sequence[Comparison], tasks: Tasks) -> QualityRow:
    """What the comparisons of all data sets say together, by signed ranks of their differences."""
    told = [head for head in heads if head.effect()]
    units = {head.unit for head in told}
    unit = units.pop() if len(units) == 1 else ""
    effects = [head.effect() for head in told if unit]
    effect = _typical(effects, unit)
    word, why = _verdict(heads, tasks, effects, unit)
    if len(tasks) == 1:
        effect = told[0].effect() if told else None
    models = {head.of.model for head in told or heads}
    references = {head.to.model for head in told or heads if head.to}
    return {
        "row": "data sets",
        "point": f"{counted(len(tasks), 'data set')}: {models.pop() if len(models) == 1 else 'the best model'}",
        "reference": references.pop() if len(references) == 1 else "the best control",
        **columns(effect, *EFFECT), "unit": unit if effect else "",
        "pairs": len(effects), "n": len(effects), "verdict": word, "why": why,
    }  # fmt: skip


def _verdict(
    heads: Sequence[Comparison], tasks: Tasks, effects: Sequence[Estimate | None], unit: str
) -> tuple[str, str]:
    """The word for all data sets, and why: that of signed ranks, or of too few data sets the one that all have.

    It is none that seeds which failed would overturn, and none if they leave most data sets undecided.
    """
    words = [head.verdict or "" for head in heads]
    if 2 * words.count(verdicts.FAILED) > len(tasks):
        return verdicts.FAILED, "seeds failed on most data sets"
    if not words:
        return verdicts.MISSING, "no data set has both a model and a control with a result"
    if not unit and any(head.effect() for head in heads):
        return verdicts.CANNOT_TELL, "the differences have no unit in common"
    effect, metric = _typical(effects, unit), heads[0].of.metric
    if effect is None or effect.low is None:
        alike = len({*words}) == 1 and len(words) == len(tasks)
        return (words[0], "") if alike else (verdicts.CANNOT_TELL, "signed ranks need six data sets")
    word = side(effect, unit, metric)
    # The same with seeds that failed as wrong, also where one side has no others.
    known = [head for head in heads if head.effect() or len({bool(each.tests) for each in head.sides}) > 1]
    cautious = [head.effect(failed=True) for head in known]
    overturned = word == verdicts.SAME or side(_typical(cautious, unit), unit, metric) != word
    if word and cautious != effects and overturned:
        return verdicts.FAILED, "with failed seeds counted as wrong nothing is decided"
    return word or verdicts.CANNOT_TELL, ""


def _typical(effects: Sequence[Estimate | None], unit: str) -> Estimate | None:
    """What is typical of the effects of data sets, of ratios on the logarithm; None if one is not known."""
    known = [effect.value for effect in effects if effect]
    if len(known) < len(effects):
        return None
    if unit != "times":
        return metrics.signed_rank(known)
    found = metrics.signed_rank([math.log(value) for value in known])
    return found and found.mapped(math.exp)
