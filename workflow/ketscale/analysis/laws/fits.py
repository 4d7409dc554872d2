"""The table laws: which runs each law is fitted to, a row for each of its parameters, or one with a refusal; and what it says.

The regime of a point of a sweep says what its cost is. dispatch: the fixed time is the larger part, so that more work
costs little. cache: the states fit into the last-level cache, and each update of an amplitude costs the same time.
memory: they do not fit, and have a time per update of their own, usually a longer one.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ketscale.analysis import comparability
from ketscale.analysis.collected import Collected
from ketscale.analysis.heavy import pd
from ketscale.analysis.laws.fit import Fit, Law, fit
from ketscale.analysis.laws.known import ALPHA_BETA, AMDAHL, COST, GUSTAFSON, USL, all_reduce, cost
from ketscale.analysis.points import Group, Row, point, serial, usable, workers
from ketscale.analysis.verdicts import ACCEPTED, REFUSED
from ketscale.config import Family
from ketscale.grid import BACKENDS, ONE_MESSAGE, POINT, Run, Study, layout

# By the kind of study.
LAWS: dict[str, tuple[Law, ...]] = {"strong": (AMDAHL, USL), "weak": (GUSTAFSON,)}
# What the points of a sweep share, and of a series of workers.
SWEPT = ("workload", "model", "simulator", "protocol")
SAME = (*SWEPT, "size")
# What all runs of a fit share.
HOST = ("hardware", "code")
OF_FIT = ("verdict", "reason", "n", "points", "p_value", "residual", "spread")
# The spans of an all-reduce. If it overlaps the backward pass, the first is the whole of it, and the second its exposed part.
ALL_REDUCE = ("communication.total", "communication")
# Bytes of a complex amplitude.
COMPLEX = {"fp32": 8, "amp": 8, "fp64": 16}
# What a line of points has in common with the rows of its laws.
ALIKE = ["study", "workload", "model", "simulator", "protocol", "hardware"]
# The simplest first: one is drawn.
CURVES = (AMDAHL, USL, GUSTAFSON)


@dataclass(frozen=True)
class Accepted:
    """The law of a line of workers: its name with its parameters, and its curve, speedups by workers."""

    words: str
    workers: Sequence[float]
    speedups: Sequence[float]


@dataclass(frozen=True)
class Place:
    """A point of a series: its name, its variables, and its runs, with the times that are fitted as `step_s`."""

    name: str
    variables: tuple[float, ...]
    rows: Sequence[Row]


def rows(collected: Collected, swept: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The laws of the config's studies, then those of its machines' communication.

    swept: the kinds of studies that sweep an axis, with the name of that axis.
    """
    for study in collected.config.studies:
        for host in collected.hosts(study):
            found: Iterator[dict[str, Any]] = iter(())
            if study.kind in LAWS:
                found = _of_workers(study, collected.on(host))
            elif study.kind in swept:
                found = _of_cost(study, swept[study.kind], collected.on(host))
            yield from ({"study": study.name, "kind": study.kind, **row} for row in found)
    yield from _of_messages(collected)


def _rows(of: Mapping[str, Any], places: Sequence[Place], found: Fit) -> Iterator[dict[str, Any]]:
    """The rows of one fit. of: the columns that name its series. places: those that it is of."""
    shared = {**of, "law": found.law.name, **{name: getattr(found, name) for name in OF_FIT}}
    if found.error:
        ends = (found.error.value, found.error.low, found.error.high)
        shared |= dict(zip(("error", "error_low", "error_high"), ends, strict=True))
        shared["held_out"] = places[-1].name
    for parameter, estimate in zip(found.law.parameters, found.estimates, strict=False):
        own = {"parameter": parameter.name, "unit": parameter.unit, "estimate": estimate.value}
        yield {**shared, **own, "low": estimate.low, "high": estimate.high}
    if not found.estimates:
        yield shared


def _of_workers(study: Study, collected: Collected) -> Iterator[dict[str, Any]]:
    """The laws of strong or weak scaling of each series of a study with at least two numbers of workers.

    A series is the ranks of a backend, or the threads of a process. One that lacks one worker takes the process with one
    thread and its share of the batch, unless its ranks have more threads.
    """
    weak = study.kind == "weak"
    series: dict[tuple[Any, ...], dict[int, Group]] = {}
    for group in collected.groups(study):
        first = group[0]
        # Each row of weak scaling has a batch of its own.
        alike = (*(first[name] for name in SAME), weak or first["batch"], grows(first["layout"]))
        series.setdefault(alike, {})[size_of(first["layout"])] = group
    for groups in series.values():
        row = next(iter(groups.values()))[0]
        share = row["batch"] // workers(row["layout"]) if weak else row["batch"]
        alone = collected.points.get(point({**row, "layout": serial(row["backend"]), "batch": share}))
        if 1 not in groups and alone and (row["threads"] == 1 or not BACKENDS[row["backend"]].several_ranks):
            groups[1] = alone
        if len(groups) == 1:
            continue
        last = groups[max(groups)][0]
        what = "ranks" if last["ranks"] > 1 else "threads"
        named = {name: last[name] for name in (*SAME, *HOST)}
        named |= {"batch": None if weak else last["batch"], "series": grows(last["layout"])}
        timed = (Place(f"{p} {what}", (float(p),), group) for p, group in groups.items())
        places, left_out = sound(timed, own_cores=True)
        for law in LAWS[study.kind]:
            found = fitted(law, places, left_out)
            if law is GUSTAFSON and collected.config.family(last["workload"]).work:
                why = "a larger batch needs a larger model here, and the law is of a fixed share of work"
                found = Fit(REFUSED, why, law)
            yield from _rows(named, places, found)


def _of_messages(collected: Collected) -> Iterator[dict[str, Any]]:
    """The time of an all-reduce, of each layout whose ranks summed gradients of several sizes, from all studies.

    A sampled step times its all-reduce after a barrier, so waiting for the slowest rank is not part of it. Torch sends a
    large gradient in several messages, while the backward pass goes on; such an all-reduce is not told.
    """
    series: dict[tuple[str, str], dict[tuple[int, int], list[Row]]] = {}
    for row in itertools.chain(*collected.points.values()):
        spans, size = collected.records[Run.of(row)].timing.spans, row["gradient_bytes"]
        whole = BACKENDS[row["backend"]].launcher != "torchrun" or (size or 0) <= ONE_MESSAGE
        seconds = next((spans[name].median_s for name in ALL_REDUCE if name in spans), None)
        if row["ranks"] > 1 and row["timed"] and size and whole and seconds is not None:
            found = series.setdefault((grows(row["layout"]), row["hardware"]), {})
            found.setdefault((row["ranks"], size), []).append({**row, "step_s": seconds})
    for (name, _), timed in series.items():
        if len({size for _, size in timed}) < 2:
            continue
        every = list(itertools.chain(*timed.values()))
        studies = dict.fromkeys(study for row in every for study in row["studies"].split())
        named = {"study": " ".join(studies), "series": name, **{x: every[0][x] for x in HOST}}
        places, left_out = sound(
            (
                Place(f"{ranks} ranks, {size} B", all_reduce(group[0]["backend"], ranks, size), group)
                for (ranks, size), group in timed.items()
            ),
            own_cores=True,
        )
        yield from _rows(named, places, fitted(ALPHA_BETA, places, left_out, POINT))


def load(family: Family, sizes: Mapping[str, int], batch: int, precision: str) -> tuple[float, float] | None:
    """A step's work, in updates of an amplitude by a gate, and the bytes of its states, of one circuit a sample.

    The work is batch * 2^qubits * gates, where gates are relative: qubits * layers or segments. None for a classical
    model. In families that say what the amplitudes of a sample are (`Family.work`), the number of gates is fixed.
    """
    if not sizes.get("qubits"):
        return None
    amplitudes = batch * (family.work(sizes) if family.work else 2.0 ** sizes["qubits"])
    gates = 1 if family.work else math.prod(sizes.values())
    return amplitudes * gates, amplitudes * COMPLEX[precision]


def _of_cost(study: Study, varies: str, collected: Collected) -> Iterator[dict[str, Any]]:
    """The cost along each line of a sweep of one axis, with the regimes of its points."""
    lines: dict[tuple[Any, ...], list[Place]] = {}
    for group in collected.groups(study):
        first = group[0]
        family, sizes = collected.config.family(first["workload"]), collected.config.sizes(Run.of(first))
        own = {"batch": first["batch"], **sizes}
        loaded = load(family, sizes, first["batch"], first["precision"])
        if varies not in own or loaded is None:
            continue
        # A larger batch may need a larger model; then the two grow together.
        moving = {varies, "batch"} if family.work else {varies}
        fixed = (value for name, value in own.items() if name not in moving)
        work, size = loaded
        place = Place(f"{varies} {own[varies]}", (work, size / first["nodes"]), group)
        lines.setdefault((*(first[name] for name in (*SWEPT, "layout")), *fixed), []).append(place)
    for line in lines.values():
        firsts = [place.rows[0] for place in line]
        first, batches = firsts[0], {row["batch"] for row in firsts}
        named = {name: first[name] for name in (*SWEPT, *HOST)} | {"series": first["layout"]}
        named["size"] = common_size(row["size"] for row in firsts)
        named["batch"] = first["batch"] if len(batches) == 1 else None
        places, left_out = sound(line)
        # The record has the processor's caches alone.
        cache = None if BACKENDS[first["backend"]].device == "gpu" else first["cache_bytes"]
        splits = cache is not None and len({place.variables[1] > cache for place in places}) == 2
        found = fitted(cost(cache if splits else None), places, left_out)
        yield from _rows({**named, "regimes": _regimes(places, found, cache)}, places, found)


def _regimes(places: Sequence[Place], found: Fit, cache: float | None) -> str:
    """The regime of each point, such as 'dispatch: 4 to 6; cache: 8'; '' unless the law is accepted."""
    if found.verdict != ACCEPTED:
        return ""
    fixed, *slopes = (estimate.value for estimate in found.estimates)
    named: dict[str, list[str]] = {}
    for place in places:
        work, size = place.variables
        beyond = cache is not None and size > cache
        where = "cache or memory" if cache is None else "memory" if beyond else "cache"
        regime = "dispatch" if fixed > slopes[-1 if beyond else 0] * work else where
        named.setdefault(regime, []).append(place.name.split()[-1])
    # The places are in the order of their work, and so are the regimes.
    ends = {regime: dict.fromkeys((values[0], values[-1])) for regime, values in named.items()}
    return "; ".join(f"{regime}: {' to '.join(values)}" for regime, values in ends.items())


def sound(places: Iterable[Place], own_cores: bool = False) -> tuple[list[Place], str]:
    """The places whose runs are soundly timed, in the order of their variables; and which were left out, and why.

    own_cores: whether the laws are about workers, so that each must be known to have a core or GPU of its own. Two threads
        of one core are not two workers.
    """
    kept, left_out = [], []
    for place in sorted(places, key=lambda place: place.variables):
        rows, why = usable(place.rows)
        if not rows:
            why = "no completed run"
        elif not why and own_cores:
            why = next(filter(None, map(shares, rows)), "")
        if why:
            left_out.append(f"{place.name}: {why}")
        else:
            kept.append(replace(place, rows=rows))
    return kept, f"left out: {'; '.join(left_out)}" if left_out else ""


def fitted(law: Law, places: Sequence[Place], left_out: str, varied: Collection[str] = ("layout",)) -> Fit:
    """The law fitted to sound places, the last of which is held out once, with what was left out among the reasons.

    It is refused where their times cannot be compared.

    varied: the axes in which the places differ, as `comparability.times` takes them.
    """
    rows = [row for place in places for row in place.rows]
    if why := comparability.hindrance(comparability.times(row, varied) for row in rows):
        return Fit(REFUSED, why, law, points=len(places))
    variables = list(zip(*(place.variables for place in places), strict=True))
    found = fit(law, variables, times(places), [place.name for place in places])
    return replace(found, reason=". ".join(filter(None, (found.reason, left_out))))


def times(places: Sequence[Place]) -> list[list[float]]:
    """The step times of each seed that every place has; medians where a seed has several runs."""
    found: list[dict[int, float]] = []
    for place in places:
        several: dict[int, list[float]] = {}
        for row in place.rows:
            several.setdefault(row["seed"], []).append(row["step_s"])
        found.append({seed: statistics.median(values) for seed, values in several.items()})
    common = set[int].intersection(*map(set, found)) if found else ()
    return [[of_place[seed] for of_place in found] for seed in sorted(common)]


def shares(row: Row) -> str:
    """Why the workers of a run are not known to have cores or GPUs of their own; '' if they have."""
    if BACKENDS[row["backend"]].device == "gpu":
        gpus = row["nodes"] * len(list(filter(None, (row["gpus"] or "").split("; "))))
        return f"{row['ranks']} ranks on {gpus} GPUs" if row["ranks"] > gpus else ""
    if row["shared_cores"] is None:
        return "unknown whether its threads share cores"
    return "its threads share cores" if row["shared_cores"] else ""


def grows(text: str) -> str:
    """A layout with a star for what grows along its series, such as 'mpi-n1r*t1' and 'cpu-n1r1t*'."""
    growing = "r" if BACKENDS[layout(text)["backend"]].several_ranks else "t"
    return re.sub(rf"(-n\d+.*{growing})\d+", r"\1*", text)


def size_of(text: str) -> int:
    """How far a layout is along its series: its ranks, or the threads of a single process."""
    where = layout(text)
    return int(where["ranks"] if BACKENDS[where["backend"]].several_ranks else where["threads"])


def common_size(sizes: Iterable[str]) -> str:
    """The parts that some sizes share, with a star for the others, such as 'q4-l*'."""
    parts = zip(*(size.split("-") for size in sizes), strict=True)
    return "-".join(found[0] if len(set(found)) == 1 else re.sub(r"\d+", "*", found[0]) for found in parts)


def of_line(laws: pd.DataFrame, points: pd.DataFrame) -> Accepted | None:
    """The accepted law of a line of workers, through its ratios to one worker; None without one.

    laws: the table laws. points: the line's rows of scaling.csv.
    """
    points = points.sort_values("workers")
    last = points.iloc[-1]
    own = _accepted(laws, last, grows(last["layout"]), last["size"])
    law = next((law for law in CURVES if law.name in set(own["law"])), None)
    known = points[points["speedup_same"].notna() & points["flag"].fillna("").eq("")]
    if law is None or known.empty:
        return None
    estimates = own[own["law"] == law.name].set_index("parameter")["estimate"]
    values = {parameter.name: float(estimates[parameter.name]) for parameter in law.parameters[:-1]}
    # The ratios are to a run that may be of another series, such as one process without MPI, so the law is scaled.
    ratios = zip(known["speedup_same"], map(size_of, known["layout"]), strict=True)
    scale = statistics.geometric_mean(ratio / law.speedup(size, *values.values()) for ratio, size in ratios)
    start, end = size_of(points.iloc[0]["layout"]), size_of(last["layout"])
    steps = [end ** (i / 50) * start ** (1 - i / 50) for i in range(51)]
    name = law.name if law is USL else f"{law.name}'s law"
    return Accepted(
        f"{name} with {', '.join(f'{parameter} {value:.2g}' for parameter, value in values.items())}",
        [last["workers"] / end * size for size in steps],
        [scale * law.speedup(size, *values.values()) for size in steps],
    )


def regimes(laws: pd.DataFrame, points: pd.DataFrame) -> str:
    """The regimes of one line of a sweep, such as 'dispatch: 16 to 64; cache: 256'; '' where they are unknown.

    points: rows of scaling.csv. laws: the table laws.
    """
    first = points.iloc[0]
    own = _accepted(laws, first, first["layout"], common_size(points["size"]))
    found = own.loc[own["law"] == COST, "regimes"]
    return str(found.iloc[0]) if len(found) else ""


def _accepted(laws: pd.DataFrame, point: pd.Series, series: str, size: str) -> pd.DataFrame:
    """The rows of accepted laws of the line that a point is of."""
    own = laws[(laws[ALIKE] == point[ALIKE]).all(axis="columns")]
    own = own[(own["verdict"] == ACCEPTED) & (own["series"] == series) & (own["size"] == size)]
    return own[own["batch"].isna() | (own["batch"] == point["batch"])]
