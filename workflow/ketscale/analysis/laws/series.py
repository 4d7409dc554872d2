"""Points that a law is fitted to: soundly timed runs, each point with the same seeds."""

from __future__ import annotations

import re
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ketscale.analysis import comparability
from ketscale.analysis.laws.fit import Fit, Law, fit
from ketscale.analysis.points import Row, usable
from ketscale.analysis.verdicts import REFUSED
from ketscale.grid import BACKENDS, layout


@dataclass(frozen=True)
class Place:
    """A point of a series: its name, its variables, and its runs, with the times that are fitted as `step_s`."""

    name: str
    variables: tuple[float, ...]
    rows: Sequence[Row]


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
