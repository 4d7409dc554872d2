"""Studies of trained models: the rows of quality.csv, one for each configuration, and what a reader should know of them.

Models are compared by their family's headline metric: on each data set, each at the configuration that `selection` chose. In
studies of several data sets validation chooses one of the models that have a control, and its reference among that one's
controls and the baselines; the test compares the two. Their intervals, of the level 1 - 5 % / (number of data sets),
hold together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from ketscale.analysis import comparability, metrics, verdicts
from ketscale.analysis.comparison import Collected
from ketscale.analysis.heavy import np, pd
from ketscale.analysis.intervals import EFFECT, LEVEL, Estimate, columns
from ketscale.analysis.kinds import selection
from ketscale.analysis.kinds.selection import Comparison, Configuration, Task, best, controls
from ketscale.analysis.points import Group, Point, Row, median, point_of, size_axes, size_words, variants
from ketscale.config import Config
from ketscale.grid import POINT, Run, Study
from ketscale.words import counted

QualityRow = dict[str, Any]
# Each data set with the models that are asked for on it.
Tasks = Mapping[Task, set[str]]


def rows(study: Study, collected: Collected) -> Iterator[QualityRow]:
    """Every configuration of the study that has a record; the chosen ones with the best of their controls."""
    candidates = configurations(study, collected)
    yield from table(
        study, candidates, selection.judged(selection.comparisons(candidates, study, collected)), collected
    )


def configurations(study: Study, collected: Collected) -> list[Configuration]:
    """The configurations of a study that have a record, sorted. Splits of the same data are one data set."""
    groups: dict[Point, list[Row]] = {}
    for key in dict.fromkeys(map(point_of, study.runs)):
        if key in collected.points:
            groups.setdefault((collected.config.data(key[0]), *key[1:]), []).extend(collected.points[key])
    return [Configuration.of(key, group, collected) for key, group in sorted(groups.items())]


def table(
    study: Study, candidates: Sequence[Configuration], compared: Sequence[Comparison], collected: Collected
) -> list[QualityRow]:
    """The rows of a study's configurations, of which those that are compared are chosen."""
    matches = {one.of.point: one for one in compared}
    config, rows = collected.config, []
    for each in candidates:
        one = matches.get(each.point)
        rows.append(_reached(study, each, collected) | (_compared(one, compared, collected) if one else {}))
    if not rows:
        return []
    but = ("workload", "model", *size_axes(config))
    for _, part in pd.DataFrame(rows).groupby(["workload", "model"]):
        for at, variant in variants(part, config, but).items():
            row, split = rows[int(str(at))], candidates[int(str(at))].group[0]["workload"]
            words = (row["model"], size_words(config, split, row["size"]), variant)
            row["point"] = f"{row['workload']}: {', '.join(filter(None, words))}"
    # What has a verdict comes first.
    return sorted(rows, key=lambda row: (not row["verdict"], not row["chosen"]))


def _reached(study: Study, each: Configuration, collected: Collected) -> QualityRow:
    """What a configuration has reached by itself."""
    config, first, completed = collected.config, each.group[0], each.completed
    return {
        **dict(zip(POINT, each.point, strict=True)),
        **{name: first[name] for name in ("family", *size_axes(config))},
        "n": len(each.tests), "failed": len(each.failed),
        # None if no run of it had memory enough to have a model.
        "parameters": next((row["parameters"] for row in each.group if row["parameters"] is not None), None),
        "train_s": median(row["train_s"] for row in completed),
        "metric": each.metric.name, **columns(each.estimate(), "value", "value_low", "value_high"), "chance": each.chance,
        "shared": max((row["shared"] for row in completed if row["shared"] is not None), default=None),
        "errors": _errors(completed, collected), "chosen": False, "verdict": "", "reference": "",
        "why": comparability.mismatch(each.keys) or each.failures,
        "hardware": "; ".join(sorted({row["hardware"] for row in completed})) or first["hardware"],
        "code": first["code"],
    }  # fmt: skip


def _compared(one: Comparison, others: Sequence[Comparison], collected: Collected) -> QualityRow:
    """What comes of the comparison of a chosen configuration with its reference."""
    effect, to = one.effect(), one.to
    care = (
        one.why or comparability.mismatch(one.of.keys),
        *(each.failures for each in one.sides),
        *_care(one, others, collected),
    )
    row = {
        "chosen": True, **columns(effect, *EFFECT),
        "unit": one.unit if effect else "",
        "pairs": effect.n if effect else 0 if to else None,
        "verdict": one.verdict, "why": "; ".join(dict.fromkeys(filter(None, care))),
    }  # fmt: skip
    if to:
        row |= {"reference": to.model, "control": to.model}
    return row


def _errors(completed: Group, collected: Collected) -> str:
    """The error of each of several targets, mean over seeds, in words; '' of one target."""
    qualities = [collected.records[Run.of(row)].quality for row in completed]
    errors = [errors_of for one in qualities if one and isinstance(errors_of := one.test.get("errors"), list)]
    if not errors:
        return ""
    workload, means = collected.config.block(completed[0]["workload"])[1], np.mean(errors, axis=0)
    names = getattr(workload, "target_columns", ()) or [f"target {n}" for n in range(1, len(means) + 1)]
    return ", ".join(f"{name} {mean:.3g}" for name, mean in zip(names, means, strict=True))


def _care(one: Comparison, others: Sequence[Comparison], collected: Collected) -> Iterator[str]:
    """What limits a comparison that has a verdict, in a few words each."""
    if one.to is None or one.verdict not in (*verdicts.DECIDED, verdicts.CANNOT_TELL):
        return
    classical = [
        each.of for each in others
        if each.of.task == one.of.task and each.of.model in collected.config.classical
    ]  # fmt: skip
    better = [
        each for each in classical
        if each.model not in (one.of.model, one.to.model)
        and all(replace(one, of=side, to=each).decide() == verdicts.WORSE for side in one.sides)
    ]  # fmt: skip
    if strongest := best(better) or next(iter(better), None):
        yield f"{strongest.model} is better than both"
    models = [each for each in one.sides if each.group]
    for each in models:
        reached = each.estimate() if each.metric.is_share and each.chance is not None else None
        if reached and (reached.low or 0.0) <= (each.chance or 0.0):
            yield f"{each.model} is not surely better than guessing"
        yield each.overlap(beyond=0.0)
    if one.to.model != selection.GUESSING and not all(each.searched for each in models):
        yield "untuned"
    elif len({each.tried for each in models}) > 1:
        yield f"chosen out of {one.of.tried} settings, {one.to.model} out of {one.to.tried}"
    names = [each.group[0]["protocol"] for each in models]
    protocols = [collected.config.protocols[name] for name in names]
    # What is searched of single models is their own.
    same = [(each.search and each.search.settings, structs.replace(each, search=None)) for each in protocols]
    if same[0] != same[-1] and all(each.by_epochs for each in protocols):
        yield f"trained with protocol {names[0]}, {one.to.model} with {names[1]}"


def data_sets(study: Study, collected: Collected) -> Iterator[QualityRow]:
    """The row of all data sets, and those of configurations."""
    candidates, tasks = configurations(study, collected), tasks_of(study, collected.config)
    compared = heads(selection.comparisons(candidates, study, collected), tasks, collected.config)
    overall = over_all([one for one in compared if one.verdict], tasks)
    yield {"chosen": False, "failed": 0, **overall}
    yield from table(study, candidates, compared, collected)


def data_set_notes(rows: list[Row], study: Study, collected: Collected) -> Iterator[str]:
    """That data sets of one generator are not independent of each other."""
    blocks = {name: collected.config.block(name) for name, _ in tasks_of(study, collected.config)}
    generators = [kind for kind, block in blocks.values() if block.generated]
    if len(generators) > len({*generators}):
        yield "Some data sets are of one generator, and the verdict for all treats them as independent of each other."


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


def heads(compared: Sequence[Comparison], tasks: Tasks, config: Config) -> list[Comparison]:
    """Comparisons of which each data set has one with a verdict, that of the model that validation chose.

    Controls without a result have no substitute. Where every seed of the models, or of their controls, failed, this
    is the verdict.
    """
    rows, able = [], dict[Task, list[Comparison]]()
    for one in compared:
        one = replace(one, level=_level(tasks))
        if any(controls(config, other, one.of.model) for other in tasks[one.of.task]):
            if one.to is None or not one.to.group:
                one = replace(one, to=None, verdict="")
            elif one.baseline and one.to.tests:
                one = replace(one, to=best([one.to, one.baseline]))
        rows.append(one)
        if one.verdict is None:
            able.setdefault(one.of.task, []).append(one)
    leads = {}
    for task, own in able.items():
        tested = [one for one in own if all(each.tests for each in one.sides)]
        leads[task] = best([one.of for one in tested or own])

    rows = [one.judge() if one.of is leads.get(one.of.task) else replace(one, verdict="") for one in rows]
    return [one.decided(one.decide()) if one.verdict is None else one for one in rows]


def over_all(heads: Sequence[Comparison], tasks: Tasks) -> QualityRow:
    """What the comparisons of all data sets say together, by signed ranks of their differences."""
    measured = [head for head in heads if head.effect()]
    units = {head.unit for head in measured}
    unit = units.pop() if len(units) == 1 else ""
    effects = [head.effect() for head in measured if unit]
    effect = _typical(effects, unit)
    word, why = _verdict(heads, tasks, effects, unit)
    if len(tasks) == 1:
        effect = measured[0].effect() if measured else None
    models = {head.of.model for head in measured or heads}
    references = {head.to.model for head in measured or heads if head.to}
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
    word = selection.side(effect, unit, metric)
    # The same with seeds that failed as wrong, also where one side has no others.
    decided = [head for head in heads if head.effect() or len({bool(each.tests) for each in head.sides}) > 1]
    cautious = [head.effect(failed=True) for head in decided]
    overturned = word == verdicts.SAME or selection.side(_typical(cautious, unit), unit, metric) != word
    if word and cautious != effects and overturned:
        return verdicts.FAILED, "there is no verdict if failed seeds count as wrong"
    return word or verdicts.CANNOT_TELL, ""


def _typical(effects: Sequence[Estimate | None], unit: str) -> Estimate | None:
    """What is typical of the effects of data sets, of ratios on the logarithm; None if one is not known."""
    values = [effect.value for effect in effects if effect]
    if len(values) < len(effects):
        return None
    if unit != "times":
        return metrics.signed_rank(values)
    rank = metrics.signed_rank([math.log(value) for value in values])
    return rank and rank.mapped(math.exp)
