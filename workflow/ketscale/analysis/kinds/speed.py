"""All kinds of studies of speed as data: what a point is compared with, and how its effect is shown.

A kind is a few values; `rows` makes the rows of speed.csv of every one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from ketscale.analysis import laws, verdicts
from ketscale.analysis.collected import SUBJECT, Collected
from ketscale.analysis.comparison import Compared
from ketscale.analysis.heavy import pd
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.points import (
    BUSY,
    HOLLOW,
    MIXED,
    TIMED_OUT,
    Group,
    Point,
    axis_words,
    failed,
    line_of,
    median,
    point,
    point_of,
    serial,
    size_axes,
    usable,
    value_of,
    variants,
    workers,
    worst,
)
from ketscale.analysis.wording import where
from ketscale.config import STEP, TOLERANCE, Config, Simulator
from ketscale.grid import BACKENDS, POINT, Run, Study
from ketscale.measure import parity

AS_FAST, AS_LONG = "times as fast", "times as long"
# The columns that are equal for points that do the same work.
WORK = tuple(name for name in POINT if name not in ("simulator", "layout", "protocol"))

Points = Mapping[Point, Group]  # of one study, in its order
# What each point is compared with: itself if it is a reference, None if that was not measured, or says nothing.
References = Mapping[Point, "Group | None"]
Reference = Callable[[Points, Collected, Study], References]


class Speed(NamedTuple):
    """How a kind of study compares points.

    reference: of all points. growth: how many times as much a step does as that of its reference, by which the ratio of
    times is multiplied. slower: whether the effect is how much longer a step takes, not how much faster. by_time: whether the
    rows of the same work are in the order of their times. more: further columns of a point. words: a point in words, by default
    whatever varies in the study.
    """

    reference: Reference
    growth: Callable[[Group, Group, Collected], float] = lambda group, other, collected: 1.0
    slower: bool = False
    by_time: bool = False
    more: Callable[[Group, Collected, Study], Mapping[str, Any]] = lambda group, collected, study: {}
    words: Callable[[Config, Study, Run], str] = lambda config, study, run: ""


def rows(kind: Speed, study: Study, collected: Collected) -> Iterator[dict[str, Any]]:
    """Every point of a study that has a record, beside its reference, with verdicts that hold for all of them together.

    Each class of hosts has rows of its own, `on`, if some point was measured on several.
    """
    asked: dict[Point, set[int]] = {}
    for run in study.runs:
        asked.setdefault(point_of(run), set()).add(run.seed)
    for host in collected.hosts(study):
        here = collected.on(host)
        points = {
            key: sorted(here.points[key], key=itemgetter("seed")) for key in asked if key in here.points
        }
        if kind.by_time:
            place = {work: number for number, work in enumerate(dict.fromkeys(map(_place, points)))}
            rank = {key: (_late(group), _step(group) or math.inf) for key, group in points.items()}
            points = {
                key: points[key] for key in sorted(points, key=lambda key: (place[_place(key)], *rank[key]))
            }
        alone, references, made = _single_processes(here.points), kind.reference(points, here, study), []
        for key, group in points.items():
            # What was measured elsewhere is not absent.
            absent = asked[key] - {row["seed"] for row in collected.points[key]}
            row: dict[str, Any] = {"study": study.name, "kind": study.kind, "on": host, "absent": len(absent)}
            other = references[key]
            row |= _measured(group, here) | _over_best_serial(group, alone, here)
            row |= kind.more(group, here, study)
            made.append((row, *_compared(kind, group, other, here)))
        judged = iter(verdicts.ratios([found for _, _, found in made if found]))
        named = _named(kind, [row for row, _, _ in made], study, collected.config)
        for (row, other, found), name in zip(made, named, strict=True):
            verdict, why = next(judged) if found else ("", "")
            if row["flag"] == MIXED:
                verdict, why = verdicts.NOT_COMPARABLE, row["why"]
            elif other is None:
                verdict, why = verdicts.MISSING, "timed out" if _late(points[point(row)]) else "no reference"
            elif found and found.ratio and found.ratio.outliers and not why:
                why = f"outliers left out: {found.ratio.outliers}"
            hosts = f"on {' and '.join(found.hosts)}" if found and len(found.hosts) > 1 else ""
            reference = _reference_words(row, other, collected.config) if found and other else ""
            yield row | _effect(kind, found, row) | {
                "point": name, "reference": reference, "verdict": verdict, "why": "; ".join(filter(None, (why, hosts))),
            }  # fmt: skip


def _place(key: Point) -> tuple[Any, ...]:
    """The values of a point that are equal where the work is."""
    return tuple(value for name, value in zip(POINT, key, strict=True) if name in WORK)


def _compared(
    kind: Speed, group: Group, other: Group | None, collected: Collected
) -> tuple[Group | None, Compared | None]:
    """The reference, and the comparison with it, growth included; None of a reference itself."""
    if other is None or point(other[0]) == point(group[0]):
        return other, None
    found = collected.times.speedup(group, other)
    if found.ratio:
        grown = kind.growth(usable(group)[0], usable(other)[0], collected)
        found = replace(found, ratio=found.ratio.times(grown))
    return other, found


def _measured(group: Group, collected: Collected) -> dict[str, Any]:
    """What was measured of a point."""
    (used, flag), first, count = usable(group), group[0], workers(group[0]["layout"])
    typical = collected.times.typical(group)
    time = typical.ratio and typical.ratio.value
    # Usable runs that are not comparable have no median.
    alike = [] if typical.why else used
    return {
        **{name: first[name] for name in (*POINT, "family", *size_axes(collected.config), "features")},
        "workers": count,
        "step_s": time,
        "step_low_s": typical.ratio and typical.ratio.low,
        "step_high_s": typical.ratio and typical.ratio.high,
        "first_s": median(row["first_step_s"] for row in alike),
        "circuit_s": median(row["circuit_s"] for row in alike),
        "epoch_s": median(row["epoch_s"] for row in alike),
        "epoch_estimated": any(row["epoch_estimated"] for row in alike),
        "samples_per_s": time and used[0]["samples_per_s"] * used[0]["step_s"] / time,
        # Core-seconds, or GPU-seconds, of 1,000 samples.
        "cost_s": time and 1000 * count * time / first["batch"],
        "n": len(used),
        "timed_steps": min((row["step_count"] for row in used), default=0),
        "busy": sum(not row["quiet"] and (flag == BUSY or row not in used) for row in group),
        "timed_out": sum(row["status"] == "timed_out" for row in group),
        "failed": sum(map(failed, group)),
        "flag": worst([MIXED if typical.why else "", flag]),
        "why": typical.why,
        "parity": collected.held.get(itemgetter(*SUBJECT)(first), "not run"),
        "hardware": "; ".join(typical.hosts) or first["hardware"],
        "code": first["code"],
    }  # fmt: skip


def _effect(kind: Speed, found: Compared | None, row: Mapping[str, Any]) -> dict[str, Any]:
    """The effect with its interval, in its unit, and the worse of the two flags."""
    ratio = found.ratio if found else None
    shown = ratio.inverse() if ratio and kind.slower else ratio
    flags = [row["flag"], found.flag if found else ""]
    return {
        "effect": shown and shown.value,
        "low": shown and shown.low,
        "high": shown and shown.high,
        "unit": (AS_LONG if kind.slower else AS_FAST) if shown else "",
        "pairs": shown and shown.n,
        "outliers": shown and shown.outliers,
        "flag": worst(flags),
        **_shares(row, ratio),
    }


def _shares(row: Mapping[str, Any], ratio: Estimate | None) -> dict[str, Any]:
    """What a speedup says about its workers, in studies of scaling."""
    count = row["workers"]
    if row["kind"] not in ("strong", "weak", "break-even") or ratio is None:
        return {}
    one = row["step_s"] * ratio.value if row["step_s"] and row["kind"] != "weak" else None
    return {
        "efficiency": ratio.value / count,
        "karp_flatt": laws.karp_flatt(ratio.value, count) if row["kind"] == "strong" else None,
        "work_s": one and one / count,
    }


def _named(kind: Speed, made: list[dict[str, Any]], study: Study, config: Config) -> list[str]:
    """Each point in words: whatever varies in the study."""
    if not made:
        return []
    first = {point_of(run): run for run in reversed(study.runs)}
    own = [kind.words(config, study, first[point(row)]) for row in made]
    frame = pd.DataFrame(made)
    names = variants(frame, config)
    names = names.where(names != "", frame["layout"].map(where))
    return [one or name for one, name in zip(own, names, strict=True)]


def _reference_words(row: Mapping[str, Any], other: Group, config: Config) -> str:
    """The reference in words: the axes in which the point differs from it."""
    theirs = {**other[0], **config.sizes(Run.of(other[0]))}
    axes = [part for name in POINT for part in (size_axes(config) if name == "size" else [name])]
    differing = [name for name in axes if row[name] != theirs.get(name)]
    rest = [name for name in differing if name != "protocol"]
    return ", ".join(axis_words(config, theirs, rest or differing))


def _work(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What is equal for points that do the same work on the same hardware and kind of device.

    The same work means the same workload, model, size, global batch and precision. Cached and inline features are the
    same work, since they give the same numbers.
    """
    return (*(row[name] for name in (*WORK, "precision", "hardware")), serial(row["backend"]))


def _single_processes(points: Points) -> dict[tuple[Any, ...], list[Group]]:
    """The timed single-process runs, with any simulator, by their work, the fastest first: ordered once, not by each point."""
    found: dict[tuple[Any, ...], list[tuple[bool, float, Point]]] = {}
    for key, group in points.items():
        first, (used, flag) = group[0], usable(group)
        if used and first["timed"] and not BACKENDS[first["backend"]].several_ranks:
            time = median(row["step_s"] for row in used) or math.inf
            found.setdefault(_work(first), []).append((flag in HOLLOW, time, key))
    return {work: [points[key] for *_, key in sorted(ranked)] for work, ranked in found.items()}


def _over_best_serial(group: Group, alone: Mapping[Any, list[Group]], collected: Collected) -> dict[str, Any]:
    """The speedup over the best that one process does on at most as many cores, with any simulator."""
    count = workers(group[0]["layout"])
    if count == 1:
        return {}
    for each in alone.get(_work(group[0]), ()):
        if workers(each[0]["layout"]) <= count and not (found := collected.times.speedup(group, each)).why:
            first, ratio = each[0], found.ratio
            ends = (
                {"over_serial": ratio.value, "over_serial_low": ratio.low, "over_serial_high": ratio.high}
                if ratio
                else {}
            )
            return {**ends, "serial": f"{first['simulator']} on {where(first['layout'])}"}
    return {}


# ---------------------------------------------------------------- what a point is compared with


def _by(points: Points, key: Callable[[Group], Any]) -> dict[Any, list[Group]]:
    """The points that have the same key, in their order."""
    groups: dict[Any, list[Group]] = {}
    for group in points.values():
        groups.setdefault(key(group), []).append(group)
    return groups


def _over_one(points: Points, of: Callable[[Group], Group | None]) -> References:
    """A reference that was measured, for each point of several workers; one of one worker is one itself."""
    return {key: group if workers(group[0]["layout"]) == 1 else of(group) for key, group in points.items()}


def one_worker(points: Points, collected: Collected, study: Study) -> References:
    """The same simulator on one rank and one thread, or on one GPU."""
    return _over_one(
        points, lambda group: collected.points.get(point({**group[0], "layout": serial(group[0]["backend"])}))
    )


def its_share(points: Points, collected: Collected, study: Study) -> References:
    """One worker with its share of the batch; where that needs another size, the size that is most alike."""
    of_sizes = _by(collected.points, lambda group: point({**group[0], "size": ""}))

    def share(group: Group) -> Group | None:
        first = group[0]
        batch = first["batch"] // workers(first["layout"])
        wanted = {**first, "layout": serial(first["backend"]), "batch": batch}
        if first["sample_work"] is None:
            return collected.points.get(point(wanted))
        parts, able = set(first["size"].split("-")), of_sizes.get(point({**wanted, "size": ""}), [])
        return max(able, key=lambda each: len(parts & set(each[0]["size"].split("-"))), default=None)

    return _over_one(points, share)


def work(group: Group, other: Group, collected: Collected) -> float:
    """How many times as much work a step does: the ratio t(1)/t(p) is the efficiency (Gustafson 1988)."""
    ours, theirs = group[0], other[0]
    of_sample = ours["sample_work"] / theirs["sample_work"] if ours["sample_work"] is not None else 1
    return float(of_sample * ours["batch"] / theirs["batch"])


def fair(points: Points, collected: Collected, study: Study) -> References:
    """The study's first point of the same work on one core, whatever its simulator."""

    def key(row: Mapping[str, Any], layout: str) -> tuple[Any, ...]:
        return layout, *(row[name] for name in WORK)

    without = {name: group for name, group in points.items() if not group[0]["mistake"]}
    first = _by(without, lambda group: key(group[0], group[0]["layout"]))
    found: dict[Point, Group | None] = {}
    for name, group in points.items():
        row = group[0]
        own = workers(row["layout"]) == 1 and not mistake(collected.config, row)
        other = group if own else first.get(key(row, serial(row["backend"])), [None])[0]
        found[name] = other
    return found


def mistake(config: Config, row: Mapping[str, Any]) -> str:
    """What is misconfigured at a point, in words; '' where nothing is."""
    sample = "sample by sample" * one_by_one(config, row["simulator"])
    return ", ".join(filter(None, (row["mistake"] or "", sample)))


def one_by_one(config: Config, name: str) -> bool:
    """Whether a simulator evaluates the samples of a batch one after the other."""
    simulator = config.simulators.get(name)
    return simulator is not None and simulator.content().get("batching") == "loop"


def baseline(points: Points, collected: Collected, study: Study) -> References:
    """The study's first point."""
    return dict.fromkeys(points, points.get(point_of(study.runs[0])))


def samples(group: Group, other: Group, collected: Collected) -> float:
    """How many times as many samples a step has, so that the speedup is that of a sample."""
    ours, theirs = (each[0]["samples_per_s"] * each[0]["step_s"] for each in (group, other))
    return float(ours / theirs)


def _step(group: Group) -> float | None:
    return median(row["step_s"] for row in usable(group)[0])


def _late(group: Group) -> bool:
    """Whether its few steps would say more than was measured."""
    timed_out = any(row["status"] == "timed_out" for row in group)
    return usable(group)[1] == TIMED_OUT or (_step(group) is None and timed_out)


def fastest(compared: str, *same: str) -> Reference:
    """The fastest of the study's points with the same values of these axes; equal times are ordered by name.

    compared: the column that the kind compares.
    """

    def references(points: Points, collected: Collected, study: Study) -> References:
        found: dict[Point, Group | None] = {}
        for alike in _by(points, lambda group: tuple(group[0][name] for name in same)).values():
            late = [_late(each) for each in alike]
            timed = [
                (step, each[0][compared], where(each[0]["layout"]), number)
                for number, each in enumerate(alike)
                if (step := _step(each)) and not late[number]
            ]
            best = alike[min(timed)[-1]] if timed else None
            found |= {
                point(each[0]): None if is_late else best for each, is_late in zip(alike, late, strict=True)
            }
        return found

    return references


def smallest(axis: str) -> Reference:
    """The smallest value of an axis that was timed, where all else is equal."""

    def references(points: Points, collected: Collected, study: Study) -> References:
        found: dict[Point, Group | None] = {}
        for line in _by(points, lambda group: line_of(axis, group, collected.config)).values():
            at = [value_of(axis, each, collected.config) for each in line]
            timed = [(value, number) for number, value in enumerate(at) if _step(line[number])]
            least, first = min(timed, default=(math.inf, 0))
            found |= {
                point(each[0]): line[first] if value > least else each
                for value, each in zip(at, line, strict=True)
            }
        return found

    return references


def batches(group: Group, other: Group, collected: Collected) -> float:
    """How many times as many samples a step has."""
    return float(group[0]["batch"] / other[0]["batch"])


def as_exact(points: Points, collected: Collected, study: Study) -> References:
    """The fastest of the same work that is as exact; what rounds alone counts as exact."""
    config, found = collected.config, dict[Point, Group | None]()
    for alike in _by(points, lambda group: tuple(group[0][name] for name in WORK)).values():
        errors = [_worst("error", each, config) for each in alike]
        exact = [config.simulators[each[0]["simulator"]].step is None for each in alike]
        floor = max(
            (error or 0.0 for error, is_exact in zip(errors, exact, strict=True) if is_exact), default=0.0
        )
        levels = [None if error is None else max(error, floor) for error in errors]
        timed = [
            (step, level, each[0]["simulator"], number)
            for number, (each, level) in enumerate(zip(alike, levels, strict=True))
            if level is not None and usable(each)[1] not in HOLLOW and (step := _step(each))
        ]
        for each, own in zip(alike, levels, strict=True):
            able = [one for one in timed if own is not None and one[1] <= own]
            found[point(each[0])] = alike[min(able)[-1]] if able else each
    return found


# ---------------------------------------------------------------- further columns of some kinds


def _worst(about: str, group: Group, config: Config) -> float | None:
    """The largest error, or the largest distance of states from physical ones, of a point's usable runs."""
    metric = config.family(group[0]["workload"]).about(about)  # type: ignore[arg-type]
    values = [row[f"test_{metric.name}"] for row in usable(group)[0]] if metric else []
    return max((value for value in values if value is not None), default=None)


def errors(group: Group, collected: Collected, study: Study) -> dict[str, Any]:
    """The simulator's step, its largest error and negativity, and its method."""
    simulator = collected.config.simulators[group[0]["simulator"]]
    return {
        "dt": simulator.step,
        "error": _worst("error", group, collected.config),
        "negativity": _worst("unphysical", group, collected.config),
        "method": method(simulator),
    }


def method(simulator: Simulator) -> str:
    """What a simulator is apart from its step: its device, and its settings that are not the usual ones."""
    usual = {field.name: field.default for field in msgspec.structs.fields(simulator)}
    content = simulator.content()
    return ", ".join(
        str(value)
        for name, value in content.items()
        if name not in (STEP, TOLERANCE) and value != usual[name]
    )


def losses(group: Group, collected: Collected, study: Study) -> dict[str, Any]:
    """The largest relative difference of the first losses from those of the study's first point."""
    base, records = study.runs[0], collected.records
    bases = {row["seed"]: Run.of(row) for row in usable(collected.points.get(point_of(base), ()))[0]}
    pairs = [(Run.of(row), bases[row["seed"]]) for row in usable(group)[0] if row["seed"] in bases]
    apart = [parity.between((run, records[run]), (other, records[other])) for run, other in pairs]
    return {"losses": max((each for each in apart if each is not None), default=None)}


def accounts(group: Group, collected: Collected, study: Study) -> dict[str, Any]:
    """What is misconfigured; and of a fair point the times that some publications report as those of a step."""
    wrong = mistake(collected.config, group[0])
    used = [] if wrong else usable(group)[0]
    columns = ("step_with_first_s", "step_with_start_s")
    return {"mistake": wrong, **{name: median(row[name] for row in used) for name in columns}}


def misconfigured(config: Config, study: Study, run: Run) -> str:
    """A point of a study of mistakes: its layout and what is wrong."""
    row = {"mistake": config.protocols[run.protocol].mistake, "simulator": run.simulator}
    wrong = mistake(config, row)
    return f"{where(run.layout)} ({wrong})" if wrong else ""


def change(config: Config, study: Study, run: Run) -> str:
    """In what a point differs from the study's first one, such as 'batch 4 → 1'.

    It is an axis, a size, or the one setting in which two blocks of the config differ.
    """
    base = study.runs[0]
    axis = next((name for name in POINT if getattr(base, name) != getattr(run, name)), None)
    if axis is None:
        return "baseline"
    name, before, after = axis, getattr(base, axis), getattr(run, axis)
    one, other = (_content(config, each, axis) for each in (base, run))
    differing = [setting for setting in {**one, **other} if one.get(setting) != other.get(setting)]
    if len(differing) == 1:
        (name,) = differing
        before, after = one.get(name), other.get(name)
    return f"{name} {_word(before)} → {_word(after)}"


def _content(config: Config, run: Run, axis: str) -> dict[str, Any]:
    """The settings of the block that an axis of a run names, or its sizes. The tolerance follows from the others."""
    if axis == "size":
        return config.sizes(run)
    if axis == "simulator" and run.simulator in config.simulators:
        content = config.simulators[run.simulator].content()
        return {name: value for name, value in content.items() if name != TOLERANCE}
    if axis == "protocol":
        return config.protocols[run.protocol].content()
    if axis in ("workload", "model"):
        kind, block = (config.workloads if axis == "workload" else config.models)[getattr(run, axis)]
        content = block.content()
        # The settings of a model in a file are among its own.
        free = content.pop("settings", {})
        return {"kind": kind, **content, **free}
    return {}


def _word(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


SPEED: Mapping[str, Speed] = {
    "strong": Speed(one_worker),
    "weak": Speed(its_share, work),
    "break-even": Speed(one_worker),
    "simulator": Speed(fastest("simulator", *WORK, "protocol"), slower=True, by_time=True),
    "features": Speed(fastest("features", *WORK), slower=True, by_time=True),
    "mistakes": Speed(fair, slower=True, more=accounts, words=misconfigured),
    "changes": Speed(baseline, samples, more=losses, words=change),
    "convergence": Speed(as_exact, slower=True, by_time=True, more=errors),
    "batch": Speed(smallest("batch"), batches),
}


def sweep(axis: str) -> Speed:
    """A sweep of a size: how much longer a step takes than at the smallest."""
    return Speed(smallest(axis), slower=True)
