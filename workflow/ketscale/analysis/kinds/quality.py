"""Studies of trained models: the rows of quality.csv, one for each configuration, and what a reader should know of them.

Models are compared by their family's headline metric, in the direction that the family calls better. Each data set and
model has one verdict, of the configuration that `selection` chose.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from ketscale.analysis import comparability, verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.columns import other_metrics
from ketscale.analysis.heavy import pd
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds.datasets import Overall
from ketscale.analysis.kinds.selection import (
    GUESSING,
    Budget,
    Comparison,
    Configuration,
    Task,
    best,
    comparisons,
    controls,
    lacking,
    together,
)
from ketscale.analysis.points import Group, Point, Row, median, point_of, size_axes, size_words, variants
from ketscale.analysis.wording import listed
from ketscale.config import Config, Settings
from ketscale.grid import POINT, Run, Study
from ketscale.words import counted, duration

# From this ratio on, two numbers of parameters are unequal.
UNEQUAL = 1.1
# If the control gets more than this share right, a model has little room to be better.
CEILING = 0.95
# Settings of a protocol that change nothing of what is learned.
_ASIDE = ("features", "timed", "warmup", "sampled_steps", "sharding", "parallel", "keep_model")

Eligible = Callable[[Config, str], bool]
QualityRow = dict[str, Any]


def rows(
    study: Study, collected: Collected, eligible: Eligible = lambda config, model: True
) -> Iterator[QualityRow]:
    """Every configuration of the study that has a record; the chosen ones beside the best of their controls."""
    made = configurations(study, collected)
    compared = together(comparisons(made, study, collected, eligible))
    yield from table(study, made, compared, collected)


def configurations(study: Study, collected: Collected) -> list[Configuration]:
    """The configurations of a study that have a record, sorted. Splits of the same data are one data set."""
    groups: dict[Point, list[Row]] = {}
    for key in dict.fromkeys(map(point_of, study.runs)):
        if key in collected.points:
            groups.setdefault((collected.config.data(key[0]), *key[1:]), []).extend(collected.points[key])
    return [Configuration.of(key, group, collected) for key, group in sorted(groups.items())]


def table(
    study: Study,
    made: Sequence[Configuration],
    compared: Sequence[Comparison],
    collected: Collected,
    failed: Collection[Point] = (),
) -> list[QualityRow]:
    """The rows of a study's configurations, of which those that are compared are chosen; those at `failed` have this verdict."""
    chosen = {one.of.point: one for one in compared}
    config = collected.config
    found = [
        _reached(study, each, collected)
        | ({"verdict": verdicts.FAILED} if each.point in failed else {})
        | ({} if (one := chosen.get(each.point)) is None else _compared(one, compared, collected))
        for each in made
    ]
    if not found:
        return []
    frame = pd.DataFrame(found)
    but = ("workload", "model", *size_axes(config))
    for _, part in frame.groupby(["workload", "model"]):
        for at, variant in variants(part, config, but).items():
            row = found[int(str(at))]
            size = size_words(config, row["workload_of_size"], row["size"])
            name = ", ".join(filter(None, (row["model"], size, variant)))
            row["point"] = f"{row['workload']}: {name}"
    # What has a verdict comes first.
    found.sort(key=lambda row: (not row["verdict"], not row["chosen"]))
    return [{name: value for name, value in row.items() if name != "workload_of_size"} for row in found]


def _reached(study: Study, each: Configuration, collected: Collected) -> QualityRow:
    """What a configuration has reached by itself."""
    config = collected.config
    first, completed = each.group[0], [row for row in each.group if row["status"] == "completed"]
    reached, means = each.estimate(), {}
    for name, column in {
        "epochs": "epochs",
        **{name: f"test_{name}" for name in other_metrics(config)},
    }.items():
        values = [row[column] for row in completed if row.get(column) is not None]
        means[name] = statistics.fmean(values) if values else None
    return {
        "study": study.name, "kind": study.kind, "on": "",
        **dict(zip(POINT, each.point, strict=True)), "workload_of_size": first["workload"],
        **{name: first[name] for name in ("family", *size_axes(config))},
        "splits": len({row["workload"] for row in each.group}),
        "n": len(each.tests), "failed": len(each.failed),
        "parameters": _parameters(each.group),
        "train_s": median(row["train_s"] for row in completed),
        "cohort": max((row["cohort"] for row in completed), default=1),
        "metric": each.metric.name, **_ends("value", reached), "chance": each.chance,
        "shared": max((row["shared"] for row in completed if row["shared"] is not None), default=None),
        **means, "errors": _errors(completed, collected), "chosen": False, "verdict": "", "reference": "",
        "why": comparability.hindrance(each.keys) or each.failures,
        "hardware": "; ".join(sorted({row["hardware"] for row in completed})) or first["hardware"],
        "code": first["code"],
    }  # fmt: skip


def _compared(one: Comparison, others: Sequence[Comparison], collected: Collected) -> QualityRow:
    """What comes of the comparisons of a chosen configuration with its control and with the best baseline."""
    effect, budget, baseline = one.effect(), one.of.budget, one.baseline
    over = replace(one, to=baseline).effect() if baseline else None
    care = [one.why, *(each.failures for each in one.sides), *_care(one, others, collected)]
    row = {
        "chosen": True,
        "budget": budget and spent(budget), "settings": budget and settled(budget),
        **_ends("", effect), "unit": one.unit if effect else "", "pairs": effect.n if effect else 0 if one.to else None,
        "verdict": one.verdict, "why": "; ".join(dict.fromkeys(filter(None, care))),
        "baseline": baseline.model if baseline else "",
        **_ends("baseline", baseline.estimate() if baseline else None), **_ends("over_baseline", over),
    }  # fmt: skip
    if one.to:
        row |= {
            "reference": f"{'the baseline ' * (one.to is baseline)}{one.to.model}", "control": one.to.model,
            **_ends("control", one.to.estimate()), "control_failed": len(one.to.failed),
            "control_parameters": _parameters(one.to.group),
            "control_budget": one.to.budget and spent(one.to.budget),
        }  # fmt: skip
    return row


def _errors(completed: Group, collected: Collected) -> str:
    """The error of each of several targets, mean over seeds, in words; '' of one target."""
    qualities = [collected.records[Run.of(row)].quality for row in completed]
    errors = [found for one in qualities if one and isinstance(found := one.test.get("errors"), list)]
    if not errors:
        return ""
    workload = collected.config.block(completed[0]["workload"])[1]
    names = getattr(workload, "target_columns", ()) or [
        f"target {number}" for number, _ in enumerate(errors[0], 1)
    ]
    means = (statistics.fmean(values) for values in zip(*errors, strict=True))
    return ", ".join(f"{name} {mean:.3g}" for name, mean in zip(names, means, strict=True))


def _ends(name: str, found: Estimate | None) -> dict[str, float | None]:
    """The columns of an estimate; those of the effect have no name before them."""
    of = {"": "effect", "baseline": "baseline_value", "control": "control_value"}.get(name, name)
    low, high = (f"{name}_low", f"{name}_high") if name else ("low", "high")
    names = (of, low, high)
    return dict(
        zip(names, (found.value, found.low, found.high) if found else (None, None, None), strict=True)
    )


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
    if one.to.model != GUESSING and not all(each.trials for each in one.budgets):
        yield "untuned"
    elif len({each.tried for each in one.budgets}) > 1:
        ours, theirs = (each.tried for each in one.budgets)
        yield f"chosen out of {ours} settings, {one.to.model} out of {theirs}"
    if one.to.group and (
        apart := unequal_training(*(collected.config.settings(Run.of(each.group[0])) for each in one.sides))
    ):
        yield f"trained with other {listed(apart)}"


def notes(made: list[Row], study: Study, collected: Collected) -> Iterator[str]:
    """What a reader should know of the chosen configurations, a sentence each."""
    for row in made:
        where, model, control = row["workload"], row["model"], row.get("control")
        if not row["chosen"]:
            if row["failed"] and not row["n"]:
                yield f"Every seed of {model} on {where} failed."
            continue
        ours, theirs = row["parameters"], row.get("control_parameters")
        if ours and theirs and max(ours, theirs) > UNEQUAL * min(ours, theirs):
            yield f"On {where} {model} has {ours:,.0f} parameters and {control} {theirs:,.0f}."
        if row["shared"]:
            yield f"{row['shared']:.0f} samples of validation and test of {where} equal, overlap or share a group with earlier ones."
        share = collected.config.family(row["workload"]).headline.is_share
        if (
            share
            and row["value_low"] is not None
            and row["chance"] is not None
            and row["value_low"] <= row["chance"]
        ):
            yield f"{model} on {where} is not surely better than guessing."
        if share and control not in (None, GUESSING) and (row.get("control_value") or 0) >= CEILING:
            yield f"On {where} {control} leaves little room to be better."
    for each in configurations(study, collected):
        yield from (f"{each.task[0]}: {clause}." for clause in lacking(each, collected))


def unequal_training(ours: Settings, theirs: Settings) -> tuple[str, ...]:
    """The settings in which the protocols of two sides differ; empty if they do not, or a side is fitted."""
    # What is searched of a model is its own.
    protocols = [
        structs.replace(each, search=each.search and each.search.for_model(""))
        for each in (ours.protocol, theirs.protocol)
    ]
    if ours.run.protocol == theirs.run.protocol or not all(each.by_epochs for each in protocols):
        return ()
    fields = [name for name in ours.protocol.__struct_fields__ if name not in _ASIDE]
    return tuple(name for name in fields if getattr(protocols[0], name) != getattr(protocols[1], name))


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


def _parameters(group: Group) -> int | None:
    """The number of parameters of a point; None if no run of it had memory enough to have a model."""
    return next((row["parameters"] for row in group if row["parameters"] is not None), None)


# ---------------------------------------------------------------- several data sets


def over_data_sets(study: Study, collected: Collected) -> Iterator[QualityRow]:
    """Models against controls over several data sets: a verdict for each data set and one for all, and ranks of all models.

    On each data set validation chooses one of the models that have a control, and one of that one's controls; the test
    compares the two. All intervals of differences are of one level, 1 - 5 % / (number of data sets), so that those of the
    data sets hold together, and decide. The verdict for all is of the signed ranks of these differences.
    """
    made, config = configurations(study, collected), collected.config
    tasks = tasks_of(study, config)
    compared = [
        _against_best(one, tasks, config)
        for one in comparisons(made, study, collected, lambda config, model: True)
        if one.of.tests
    ]
    able: dict[Task, list[Configuration]] = {}
    for one in compared:
        if one.to or one.verdict:
            able.setdefault(one.of.task, []).append(one.of)
    leads = {lead.point for each in able.values() if (lead := best(each))}
    compared = [
        (one if one.verdict else one.decided(one.decide()))
        if one.of.point in leads
        else replace(one, verdict="", why="")
        for one in compared
    ]
    overall = Overall.of(config, tasks, made, compared)
    # The first of each data set.
    failed = {each.task: each.point for each in reversed(made) if overall.has_failed(each)}
    rows = table(study, made, compared, collected, failed.values())
    about = {"study": study.name, "kind": study.kind, "on": "", "chosen": False, "failed": 0}
    whole, *ranks = ({**about, **row} for row in overall.rows())
    yield from (whole, *rows, *ranks)


def _against_best(one: Comparison, tasks: dict[Task, set[str]], config: Config) -> Comparison:
    """The same beside the best of its controls and the baseline; nothing stands in for controls without a result."""
    one = replace(one, level=Overall.level(tasks))
    if not any(controls(config, other, one.of.model) for other in tasks[one.of.task]):
        return one
    if one.to is None or not (one.to.group and one.to.tests):
        return replace(one, to=None, verdict="", why="")
    one = replace(one, to=best([one.to, one.baseline]) if one.baseline else one.to)
    verdict, why = one.undecided()
    return replace(one, verdict=verdict, why=why)


def tasks_of(study: Study, config: Config) -> dict[Task, set[str]]:
    """The data sets of a study, each with the models that are asked for on it."""
    tasks: dict[Task, set[str]] = {}
    for run in study.runs:
        size = run.size if config.family(run.workload).work else ""
        tasks.setdefault((config.data(run.workload), size), set()).add(run.model)
    return dict(sorted(tasks.items()))


def notes_over_data_sets(made: list[Row], study: Study, collected: Collected) -> Iterator[str]:
    """The notes on each data set, and on what they say together."""
    config, tasks = collected.config, tasks_of(study, collected.config)
    yield from notes([row for row in made if row.get("workload")], study, collected)
    if len(tasks) > 1:
        yield f"Intervals of differences are of {100 * Overall.level(tasks):.4g} % each, so that all hold together with 95 %."
    blocks = {name: config.block(name) for name, _ in tasks}
    generated = sorted(name for name, (_, block) in blocks.items() if block.generated)
    if generated:
        yield f"Generated, not measured, data: {listed(generated)}."
    if len(generated) > len({blocks[name][0] for name in generated}):
        yield "Some of these are of one generator, and the verdict for all takes data sets as independent of each other."
    yield from dict.fromkeys(f"{row['why']}." for row in made if row.get("row") == "rank")


# ---------------------------------------------------------------- adaptation


def adapting(config: Config, model: str) -> bool:
    """Models that adapt to each sample; the others are trained on the test's own samples."""
    return bool(config.models[model][1].adapts)
