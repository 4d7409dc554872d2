"""All kinds of studies of speed as data: what a point is compared with, and how its effect is shown.

A kind is a few values; `rows` makes the rows of speed.csv of all but `parity`, which has `parity_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from ketscale.analysis import points, verdicts
from ketscale.analysis.comparison import Collected, Compared
from ketscale.analysis.heavy import pd
from ketscale.analysis.intervals import EFFECT, columns
from ketscale.analysis.points import WORK, Group, Point, Row, point, point_of
from ketscale.analysis.wording import where
from ketscale.config import Config, Simulator
from ketscale.grid import BACKENDS, POINT, Run, Study
from ketscale.measure import parity

AS_FAST, AS_LONG = "times as fast", "times as long"

# What each point of a study is compared with: itself if it is a reference; no point that was measured if that says nothing.
References = Iterable[Point | None]
Reference = Callable[["pd.DataFrame", Collected, Study], References]


class Speed(NamedTuple):
    """How a kind of study compares points.

    reference: of all points, from their columns in speed.csv, with `key` (the point) and `late` (whether its few steps would
    say more than was measured). growth: how many times as much a step of a run does as that of its reference, by which the
    ratio of times is multiplied. slower: whether the effect is how much longer a step takes, not how much faster. by_time:
    whether the rows of the same work are in the order of their times. more: further columns of a point, such as its words.
    """

    reference: Reference
    growth: Callable[[Row, Row], float] | None = None
    slower: bool = False
    by_time: bool = False
    more: Callable[[Group, Collected, Study], Mapping[str, Any]] = lambda group, collected, study: {}


def rows(kind: Speed, study: Study, collected: Collected) -> Iterator[dict[str, Any]]:
    """Every point of a study that has a record, with its reference and verdicts that hold for all of them together."""
    seeds: dict[Point, set[int]] = {}
    for run in study.runs:
        seeds.setdefault(point_of(run), set()).add(run.seed)
    serial_groups = _single_processes(collected.points)
    table = []
    for key in (key for key in seeds if key in collected.points):
        group = collected.points[key]
        absent = seeds[key] - {row["seed"] for row in group}
        row = {
            "absent": len(absent),
            **_measured(group, collected),
            **_over_best_serial(group, serial_groups, collected),
        }
        table.append({**row, **kind.more(group, collected, study)})
    if not table:
        return
    frame = pd.DataFrame(table).assign(key=pd.Series([*map(point, table)]))
    frame["late"] = (frame["flag"] == points.TIMED_OUT) | (frame["step_s"].isna() & (frame["timed_out"] > 0))
    reference_keys, words = kind.reference(frame, collected, study), points.variants(frame, collected.config)
    references = [key if key in collected.points else None for key in reference_keys]
    ratios = [
        _speedup(kind, key, other, collected) for key, other in zip(frame["key"], references, strict=True)
    ]
    decided = iter(verdicts.ratios([each for each in ratios if each]))
    for number, (row, other, each) in enumerate(zip(table, references, ratios, strict=True)):
        verdict, why = next(decided) if each else ("", "")
        if row["flag"] == points.MIXED:
            verdict, why = verdicts.NOT_COMPARABLE, row["why"]
        elif other is None:
            verdict, why = verdicts.MISSING, "timed out" if frame["late"][number] else "no reference"
        elif each and each.ratio and each.ratio.outliers and not why:
            why = f"outliers excluded: {each.ratio.outliers}"
        hosts = f"on {' and '.join(each.hosts)}" if each and len(each.hosts) > 1 else ""
        table[number] = row | _effect(kind, study.kind, each, row) | {
            "point": row.get("point") or words[number] or where(row["layout"]),
            "reference": _other(collected.points[other][0], row, collected.config) if each and other else "",
            "verdict": verdict, "why": "; ".join(filter(None, (why, hosts))),
        }  # fmt: skip
    if kind.by_time:
        of_work = frame.groupby([*WORK], sort=False).ngroup()
        order = frame.assign(work=of_work).sort_values(["work", "late", "step_s"]).index
        table = [table[number] for number in order]
    yield from table


def _speedup(kind: Speed, key: Point, other: Point | None, collected: Collected) -> Compared | None:
    """The comparison of a point with its reference, growth included; None without one, and of a reference itself."""
    if other in (None, key):
        return None
    of, over = (collected.points[each] for each in (key, other))
    ratio = collected.times.speedup(of, over)
    if kind.growth and ratio.ratio:
        ratio = replace(
            ratio,
            ratio=ratio.ratio.times(kind.growth(points.usable(of)[0][0], points.usable(over)[0][0])),
        )
    return ratio


def _measured(group: Group, collected: Collected) -> dict[str, Any]:
    """What was measured of a point."""
    (used, flag), first, typical = points.usable(group), group[0], collected.times.typical(group)
    # Usable runs that are not comparable have no median.
    alike = [] if typical.why else used
    time = typical.ratio and typical.ratio.value
    medians = {"first_s": "first_step_s", "epoch_s": "epoch_s"}
    return {
        **{name: first[name] for name in (*points.axis_names(collected.config), "size", "family", "features", "code")},
        **columns(typical.ratio, "step_s", "step_low_s", "step_high_s"),
        **{name: points.median(row[column] for row in alike) for name, column in medians.items()},
        "workers": points.workers(first["layout"]),
        "samples_per_s": time and samples(used[0]) / time,
        "n": len(used),
        "busy": sum(not row["quiet"] and (flag == points.BUSY or row not in used) for row in group),
        "timed_out": sum(row["status"] == "timed_out" for row in group),
        "failed": sum(map(points.failed, group)),
        "flag": points.MIXED if typical.why else flag,
        "why": typical.why,
        "hardware": "; ".join(typical.hosts) or first["hardware"],
    }  # fmt: skip


def _effect(kind: Speed, name: str, compared: Compared | None, row: Row) -> dict[str, Any]:
    """The effect with its interval, in its unit; what it says about the workers; and the worse of the two flags."""
    ratio = compared.ratio if compared else None
    cells = {
        **columns(ratio and (ratio.inverse() if kind.slower else ratio), *EFFECT),
        "unit": (AS_LONG if kind.slower else AS_FAST) if ratio else "",
        "pairs": ratio and ratio.n, "outliers": ratio and ratio.outliers,
        "flag": points.worst([row["flag"], compared.flag if compared else ""]),
    }  # fmt: skip
    if ratio and name in ("strong", "weak", "break-even"):
        cells["efficiency"] = ratio.value / row["workers"]
    if ratio and name == "strong" and row["workers"] > 1:
        cells["karp_flatt"] = (row["workers"] / ratio.value - 1) / (row["workers"] - 1)
    if ratio and name in ("strong", "break-even") and row["step_s"]:
        cells["work_s"] = row["step_s"] * ratio.value / row["workers"]
    return cells


def _other(row: Row, than: Row, config: Config) -> str:
    """A point in words: the axes in which it differs from another."""
    differing = [name for name in points.axis_names(config) if row[name] != than[name]]
    rest = [name for name in differing if name != "protocol"]
    return ", ".join(points.axis_words(config, row, rest or differing))


def _work(row: Row) -> tuple[Any, ...]:
    """What is equal for points that do the same work, in the same precision, on the same hardware and kind of device."""
    return (*(row[name] for name in (*WORK, "precision", "hardware")), points.serial(row["backend"]))


def _single_processes(groups: Mapping[Point, Group]) -> dict[tuple[Any, ...], list[Group]]:
    """The timed single-process runs, with any simulator, by their work, the fastest first: ordered once, not by each point."""
    ranked = []
    for key, group in groups.items():
        used, flag = points.usable(group)
        if used and group[0]["timed"] and not BACKENDS[group[0]["backend"]].several_ranks:
            ranked.append((flag in points.HOLLOW, points.median(row["step_s"] for row in used), key))
    serial_points: dict[tuple[Any, ...], list[Group]] = {}
    for *_, key in sorted(ranked):
        serial_points.setdefault(_work(groups[key][0]), []).append(groups[key])
    return serial_points


def _over_best_serial(group: Group, base: Mapping[Any, list[Group]], collected: Collected) -> dict[str, Any]:
    """The speedup over the best that one process does on at most as many cores, with any simulator."""
    count = points.workers(group[0]["layout"])
    for each in base.get(_work(group[0]), ()) if count > 1 else ():
        first = each[0]
        if (
            points.workers(first["layout"]) <= count
            and not (speedup := collected.times.speedup(group, each)).why
        ):
            ratio = columns(speedup.ratio, "over_serial", "over_serial_low", "over_serial_high")
            return {"serial": f"{first['simulator']} on {where(first['layout'])}", **ratio}
    return {}


# ---------------------------------------------------------------- what a point is compared with


def _single_worker(row: Row) -> dict[str, Any]:
    """The same with the layout of one worker."""
    return {**row, "layout": points.serial(row["backend"])}


def _first(frame: pd.DataFrame, able: pd.Series[bool], *same: str) -> pd.Series[Any]:
    """For each point, the first able one among those with the same values of these columns."""
    return frame["key"].where(able).groupby([frame[name] for name in same]).transform("first")


def one_worker(frame: pd.DataFrame, collected: Collected, study: Study) -> References:
    """The same simulator on one rank and one thread, or on one GPU."""
    for key, count in zip(frame["key"], frame["workers"], strict=True):
        yield key if count == 1 else point(_single_worker(collected.points[key][0]))


def its_share(frame: pd.DataFrame, collected: Collected, study: Study) -> References:
    """One worker with its share of the batch; where that needs another size, the size that is most alike."""
    of_sizes: dict[Point, list[Row]] = {}
    for first in (group[0] for group in collected.points.values()):
        of_sizes.setdefault(point({**first, "size": ""}), []).append(first)
    for key, count in zip(frame["key"], frame["workers"], strict=True):
        row = collected.points[key][0]
        one, parts = {**_single_worker(row), "batch": row["batch"] // count}, {*row["size"].split("-")}
        if count == 1 or row["sample_work"] is None:
            yield key if count == 1 else point(one)
        else:
            able = of_sizes.get(point({**one, "size": ""}), [])
            alike = [(-len(parts & {*each["size"].split("-")}), point(each)) for each in able]
            yield min(alike, default=(0, None))[1]


def fair(frame: pd.DataFrame, collected: Collected, study: Study) -> References:
    """The study's first point of the same work on one core that nothing is wrong with, whatever its simulator."""
    one = frame["key"].map(lambda key: points.serial(collected.points[key][0]["backend"]))
    able = (frame["layout"] == one) & (frame["mistake"] == "")
    reference = _first(frame.assign(one=one), able, "one", *WORK)
    return reference.where((frame["workers"] > 1) | (frame["mistake"] != ""), frame["key"])


def baseline(frame: pd.DataFrame, collected: Collected, study: Study) -> References:
    """The study's first point."""
    return [point_of(study.runs[0])] * len(frame)


def fastest(compared: str, *same: str) -> Reference:
    """The fastest of the study's points with the same values of these axes; of equal times the first of what is compared."""

    def references(frame: pd.DataFrame, collected: Collected, study: Study) -> References:
        placed_frame = frame.assign(where=frame["layout"].map(where))
        order = placed_frame.sort_values(["step_s", compared, "where"])
        reference = _first(order, (order["step_s"] > 0) & ~order["late"], *same)
        return reference.where(~order["late"]).sort_index()

    return references


def smallest(axis: str) -> Reference:
    """The smallest value of an axis that was timed, where all else is equal."""

    def references(frame: pd.DataFrame, collected: Collected, study: Study) -> References:
        line = [points.line_of(axis, collected.points[key][0], collected.config) for key in frame["key"]]
        order = frame.assign(line=pd.Series(line)).sort_values(axis)
        measured = order["step_s"] > 0
        least = order[axis].where(measured).groupby(order["line"]).transform("min")
        return _first(order, measured, "line").where(order[axis] > least, order["key"]).sort_index()

    return references


def as_exact(frame: pd.DataFrame, collected: Collected, study: Study) -> References:
    """The fastest of the same work that is as exact; errors of rounding count as exact."""
    error = frame["error"].astype(float)
    exact = frame["simulator"].map(lambda name: collected.config.simulators[name].step is None)
    floor = error.where(exact).groupby([frame[name] for name in WORK]).transform("max").fillna(0)
    levels = frame.assign(level=error.clip(lower=floor))
    able = levels[(levels["step_s"] > 0) & ~levels["flag"].isin(points.HOLLOW)]
    pairs = levels.merge(able, on=[*WORK], suffixes=("", "_other")).query("level_other <= level")
    best = pairs.sort_values(["step_s_other", "level_other", "simulator_other"]).drop_duplicates("key")
    partners = dict(zip(best["key"], best["key_other"], strict=True))
    return [partners.get(key, key) for key in frame["key"]]


# ---------------------------------------------------------------- how much more a step does


def samples(row: Row) -> float:
    """The samples of a step."""
    return float(row["samples_per_s"] * row["step_s"])


def more_samples(row: Row, other: Row) -> float:
    """How many times as many samples a step has, so that the speedup is that of a sample."""
    return samples(row) / samples(other)


def more_work(row: Row, other: Row) -> float:
    """How many times as much work a step does: the ratio t(1)/t(p) is the efficiency (Gustafson 1988)."""
    of_sample = row["sample_work"] / other["sample_work"] if row["sample_work"] is not None else 1.0
    return float(of_sample * more_samples(row, other))


# ---------------------------------------------------------------- further columns of some kinds


def mistakes(group: Group, collected: Collected, study: Study) -> dict[str, Any]:
    """What is misconfigured, and the point in words if something is."""
    first = group[0]
    simulator = collected.config.simulators.get(first["simulator"])
    loop = simulator is not None and simulator.content().get("batching") == "loop"
    wrong = ", ".join(filter(None, (first["mistake"], "sample by sample" * loop)))
    return {"mistake": wrong, "point": f"{where(first['layout'])} ({wrong})" if wrong else ""}


def errors(group: Group, collected: Collected, study: Study) -> dict[str, Any]:
    """The simulator's step, its largest error, and its method."""
    simulator = collected.config.simulators[group[0]["simulator"]]
    metric = collected.config.family(group[0]["workload"]).about("error")
    values = [row[f"test_{metric.name}"] for row in points.usable(group)[0]] if metric else []
    largest = max((value for value in values if value is not None), default=None)
    return {"dt": simulator.step, "method": method(simulator), "error": largest}


def method(simulator: Simulator) -> str:
    """What a simulator is apart from its step: its device, and its settings that are not the usual ones."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(simulator)}
    others = {name: value for name, value in simulator.content().items() if name not in ("dt", "tolerance")}
    return ", ".join(str(value) for name, value in others.items() if value != defaults[name])


def losses(group: Group, collected: Collected, study: Study) -> dict[str, Any]:
    """What is other than at the study's first point, and the largest relative difference of the first losses from its."""
    base, config, records = study.runs[0], collected.config, collected.records
    axes = {name: points.axis_of(config, base, name) for name in points.axis_names(config)}
    bases = {row["seed"]: Run.of(row) for row in points.usable(collected.points.get(point_of(base), ()))[0]}
    pairs = [(Run.of(row), bases[row["seed"]]) for row in points.usable(group)[0] if row["seed"] in bases]
    distances = [parity.between((run, records[run]), (other, records[other])) for run, other in pairs]
    largest = max((each for each in distances if each is not None), default=None)
    return {"losses": largest, "point": _other(group[0], axes, config) or "baseline"}


# ---------------------------------------------------------------- studies of parity


def parity_rows(study: Study, collected: Collected) -> Iterator[dict[str, Any]]:
    """Every comparison of two runs of the study, the farthest from its limit first; ties break by name."""
    own = {*study.runs}
    pairs = [each for each in collected.comparisons if each.run in own and each.reference in own]
    pairs.sort(key=lambda each: (-each.difference / each.limit, each.run.path, each.reference.path))
    for each in pairs:
        sizes = {
            name: collected.config.sizes(each.run).get(name) for name in points.size_axes(collected.config)
        }
        why = f"limit {each.limit:.3g}, {each.precision}, {each.steps} steps"
        yield {
            **{name: getattr(each.run, name) for name in POINT}, **sizes,
            "point": _label(each.run), "reference": _label(each.reference),
            "effect": each.difference, "unit": "relative difference", "pairs": 1, "why": why,
            "verdict": verdicts.SAME if each.agrees else verdicts.DIFFERS,
        }  # fmt: skip


def _label(run: Run) -> str:
    simulated = run.model if run.simulator == "none" else run.simulator
    return f"{simulated} on {where(run.layout)}, seed {run.seed}"


SPEED: Mapping[str, Speed] = {
    "strong": Speed(one_worker),
    "weak": Speed(its_share, more_work),
    "break-even": Speed(one_worker),
    "simulator": Speed(fastest("simulator", *WORK, "protocol"), slower=True, by_time=True),
    "features": Speed(fastest("features", *WORK), slower=True, by_time=True),
    "mistakes": Speed(fair, slower=True, more=mistakes),
    "changes": Speed(baseline, more_samples, more=losses),
    "convergence": Speed(as_exact, slower=True, by_time=True, more=errors),
    "batch": Speed(smallest("batch"), more_samples),
}


def sweep(axis: str) -> Speed:
    """A sweep of a size: how much longer a step takes than at the smallest."""
    return Speed(smallest(axis), slower=True)
