"""Studies of trained models: the rows of quality.csv, one for each configuration, and what a reader should know of them.

Models are compared by their family's headline metric, in the direction that the family calls better. Each data set and
model has one verdict, of the configuration that `selection` chose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from ketscale.analysis import comparability, verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.columns import other_metrics
from ketscale.analysis.heavy import np, pd
from ketscale.analysis.intervals import EFFECT, columns
from ketscale.analysis.kinds.selection import (
    GUESSING,
    Comparison,
    Configuration,
    best,
    comparisons,
    lacking,
    mean,
    together,
)
from ketscale.analysis.points import Group, Point, Row, median, point_of, size_axes, size_words, variants
from ketscale.grid import POINT, Run, Study

QualityRow = dict[str, Any]


def rows(study: Study, collected: Collected) -> Iterator[QualityRow]:
    """Every configuration of the study that has a record; the chosen ones beside the best of their controls."""
    made = configurations(study, collected)
    yield from table(study, made, together(comparisons(made, study, collected)), collected)


def configurations(study: Study, collected: Collected) -> list[Configuration]:
    """The configurations of a study that have a record, sorted. Splits of the same data are one data set."""
    groups: dict[Point, list[Row]] = {}
    for key in dict.fromkeys(map(point_of, study.runs)):
        if key in collected.points:
            groups.setdefault((collected.config.data(key[0]), *key[1:]), []).extend(collected.points[key])
    return [Configuration.of(key, group, collected) for key, group in sorted(groups.items())]


def table(
    study: Study, made: Sequence[Configuration], compared: Sequence[Comparison], collected: Collected
) -> list[QualityRow]:
    """The rows of a study's configurations, of which those that are compared are chosen."""
    chosen = {one.of.point: one for one in compared}
    config, found = collected.config, []
    for each in made:
        one = chosen.get(each.point)
        found.append(_reached(study, each, collected) | (_compared(one, compared, collected) if one else {}))
    if not found:
        return []
    but = ("workload", "model", *size_axes(config))
    for _, part in pd.DataFrame(found).groupby(["workload", "model"]):
        for at, variant in variants(part, config, but).items():
            row, split = found[int(str(at))], made[int(str(at))].group[0]["workload"]
            words = (row["model"], size_words(config, split, row["size"]), variant)
            row["point"] = f"{row['workload']}: {', '.join(filter(None, words))}"
    # What has a verdict comes first.
    return sorted(found, key=lambda row: (not row["verdict"], not row["chosen"]))


def _reached(study: Study, each: Configuration, collected: Collected) -> QualityRow:
    """What a configuration has reached by itself."""
    config, first, completed = collected.config, each.group[0], each.completed
    return {
        **dict(zip(POINT, each.point, strict=True)),
        **{name: first[name] for name in ("family", *size_axes(config))},
        "splits": len({row["workload"] for row in each.group}),
        "n": len(each.tests), "failed": len(each.failed),
        # None if no run of it had memory enough to have a model.
        "parameters": next((row["parameters"] for row in each.group if row["parameters"] is not None), None),
        "train_s": median(row["train_s"] for row in completed),
        "cohort": max((row["cohort"] for row in completed), default=1),
        "metric": each.metric.name, **columns(each.estimate(), "value", "value_low", "value_high"), "chance": each.chance,
        "shared": max((row["shared"] for row in completed if row["shared"] is not None), default=None),
        "epochs": mean(completed, "epochs"),
        **{name: mean(completed, f"test_{name}") for name in other_metrics(config)},
        "errors": _errors(completed, collected), "chosen": False, "verdict": "", "reference": "",
        "why": comparability.hindrance(each.keys) or each.failures,
        "hardware": "; ".join(sorted({row["hardware"] for row in completed})) or first["hardware"],
        "code": first["code"],
    }  # fmt: skip


def _compared(one: Comparison, others: Sequence[Comparison], collected: Collected) -> QualityRow:
    """What comes of the comparisons of a chosen configuration with its control and with the best baseline."""
    effect, to, baseline = one.effect(), one.to, one.baseline
    care = (
        one.why or comparability.hindrance(one.of.keys),
        *(each.failures for each in one.sides),
        *_care(one, others, collected),
    )
    row = {
        "chosen": True, "budget": one.of.budget, **columns(effect, *EFFECT),
        "unit": one.unit if effect else "",
        "pairs": effect.n if effect else 0 if to else None,
        "verdict": one.verdict, "why": "; ".join(dict.fromkeys(filter(None, care))),
        "baseline": baseline.model if baseline else "",
        **columns(baseline.estimate() if baseline else None, "baseline_value", "baseline_low", "baseline_high"),
        **columns(replace(one, to=baseline).effect(), "over_baseline", "over_baseline_low", "over_baseline_high"),
    }  # fmt: skip
    if to:
        row |= {"reference": f"{'the baseline ' * (to is baseline)}{to.model}", "control": to.model}
    return row


def _errors(completed: Group, collected: Collected) -> str:
    """The error of each of several targets, mean over seeds, in words; '' of one target."""
    qualities = [collected.records[Run.of(row)].quality for row in completed]
    errors = [found for one in qualities if one and isinstance(found := one.test.get("errors"), list)]
    if not errors:
        return ""
    workload, means = collected.config.block(completed[0]["workload"])[1], np.mean(errors, axis=0)
    names = getattr(workload, "target_columns", ()) or [f"target {n}" for n in range(1, len(means) + 1)]
    return ", ".join(f"{name} {mean:.3g}" for name, mean in zip(names, means, strict=True))


def _care(one: Comparison, others: Sequence[Comparison], collected: Collected) -> Iterator[str]:
    """What limits a comparison that an interval has decided, in a few words each."""
    if one.to is None or one.verdict not in (*verdicts.DECIDED, verdicts.CANNOT_TELL):
        return
    classical = [
        each.of for each in others
        if each.of.task == one.of.task and collected.config.models[each.of.model][1].classical
    ]  # fmt: skip
    better = [
        each for each in (one.baseline, *classical)
        if each and each.model not in (one.of.model, one.to.model)
        and all(replace(one, of=side, to=each).decide() == verdicts.WORSE for side in one.sides)
    ]  # fmt: skip
    if strongest := best(better) or next(iter(better), None):
        what = "the baseline " if strongest is one.baseline else ""
        yield f"{what}{strongest.model} is better than both"
    models = [each for each in one.sides if each.group]
    for each in models:
        reached = each.estimate() if each.metric.is_share and each.chance is not None else None
        if reached and (reached.low or 0.0) <= (each.chance or 0.0):
            yield f"{each.model} is not surely better than guessing"
        yield each.not_new(beyond=0.0)
    if one.to.model != GUESSING and not all(each.searched for each in models):
        yield "untuned"
    elif len({each.tried for each in models}) > 1:
        yield f"chosen out of {one.of.tried} settings, {one.to.model} out of {one.to.tried}"
    names = [each.group[0]["protocol"] for each in models]
    protocols = [collected.config.protocols[name] for name in names]
    # What is searched of single models is their own.
    same = [(each.search and each.search.settings, structs.replace(each, search=None)) for each in protocols]
    if same[0] != same[-1] and all(each.by_epochs for each in protocols):
        yield f"trained with protocol {names[0]}, {one.to.model} with {names[1]}"


def notes(made: list[Row], study: Study, collected: Collected) -> Iterator[str]:
    """Which baselines are not beside the study's models; all else is in the rows."""
    for each in configurations(study, collected):
        yield from (f"{each.task[0]}: {clause}." for clause in lacking(each, collected))
