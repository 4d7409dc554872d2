"""Scaling laws as pure functions, and scaling.csv: the points of every timed study with both speedups.

Times are seconds a step, p counts workers: ranks x threads on CPUs, GPUs (one a rank) on GPUs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketscale import grid
from ketscale.analysis import parity
from ketscale.grid import BACKENDS

Row = Mapping[str, Any]

# What each kind of study varies; kinds that are not here are not about speed.
VARIED = {
    "simulator": "simulator",
    "strong": "place",
    "weak": "place",
    "break-even": "place",
    "batch": "batch",
    "depth": "layers",
    "qubits": "qubits",
    "features": "features",
    "mistakes": "mistake",
}
SERIAL = "cpu-n1r1t1"
POINT = ("workload", "model", "qubits", "layers", "batch", "simulator", "place", "protocol")
COLUMNS = (
    "study", "kind", *POINT, "features", "workers", "varied", "value",
    "step_s", "step_low_s", "step_high_s", "epoch_s", "samples_per_s", "n", "busy", "resumed", "failed", "absent",
    "flag", "speedup_same", "speedup_same_low", "speedup_same_high", "speedup_same_n", "same_reference",
    "speedup_best_serial", "speedup_best_serial_low", "speedup_best_serial_high", "speedup_best_serial_n",
    "best_serial_reference", "efficiency", "karp_flatt", "parity", "hardware", "code",
)  # fmt: skip


def speedup(reference_s: float, time_s: float) -> float:
    """S = t_reference / t: how many times faster (dimensionless)."""
    return reference_s / time_s


def strong_efficiency(speedup: float, workers: int) -> float:
    """E = S / p at a fixed global batch; 1 is the ideal (Amdahl 1967)."""
    return speedup / workers


def weak_efficiency(one_s: float, time_s: float) -> float:
    """E = t(1) / t(p) at a fixed batch per worker; 1 is the ideal (Gustafson 1988)."""
    return one_s / time_s


def karp_flatt(speedup: float, workers: int) -> float | None:
    """Serial fraction e = (1/S - 1/p) / (1 - 1/p) by experiment (Karp & Flatt 1990); None for p = 1."""
    if workers == 1:
        return None
    return (1 / speedup - 1 / workers) / (1 - 1 / workers)


@dataclass(frozen=True)
class Spread:
    """A median over seeds with its range and quartiles, in the values' unit."""

    median: float
    low: float
    high: float
    q25: float
    q75: float
    n: int


def spread(values: Sequence[float]) -> Spread | None:
    """Median, min..max and quartiles (inclusive method) of the values; None where there are none."""
    if not values:
        return None
    quartiles = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return Spread(
        statistics.median(values), min(values), max(values), quartiles[0], quartiles[2], len(values)
    )


def paired_ratio(reference: Iterable[Row], rows: Iterable[Row], key: str = "step_s") -> Spread | None:
    """t_reference / t seed by seed, over pairs of runs on the same kind of host; None without a pair."""
    times = {(row["seed"], row["hardware"]): row[key] for row in reference}
    pairs = [(times.get((row["seed"], row["hardware"])), row[key]) for row in rows]
    return spread([speedup(first, second) for first, second in pairs if first and second])


@dataclass(frozen=True)
class Line:
    """y = intercept + slope * x by least squares, with the share of variance explained."""

    intercept: float
    slope: float
    r2: float


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line | None:
    """The least-squares line through three points or more; None through fewer, which any line would fit."""
    if len(set(x)) < 3:
        return None
    slope, intercept = statistics.linear_regression(x, y)
    mean = statistics.fmean(y)
    total = sum((v - mean) ** 2 for v in y)
    rest = sum((v - intercept - slope * u) ** 2 for u, v in zip(x, y, strict=True))
    return Line(intercept, slope, 1 - rest / total if total else 1.0)


def on_gpu(row: Row) -> bool:
    """Whether the run's ranks each had a GPU."""
    return BACKENDS[row["backend"]].device == "gpu"


def workers(row: Row) -> int:
    """p: GPUs on GPUs, else ranks x threads."""
    return int(row["ranks"] if on_gpu(row) else row["ranks"] * row["threads"])


# Flags of a point whose ratios were taken on a busy machine: itself, or what it is compared with.
BUSY_RATIOS = ("busy", "busy reference")


def usable(rows: Iterable[Row]) -> tuple[list[Row], str]:
    """The runs that a median is taken over, and a flag where they are not what they should be.

    Diverged, out-of-memory and resumed runs never count, busy ones only where every seed was busy: then the
    point is flagged `busy`, shown as such and kept out of fits. `untimed` flags a protocol that shares the
    machine.
    """
    finished = [row for row in rows if row["status"] == "completed" and not row["resumed"] and row["step_s"]]
    quiet = [row for row in finished if row["quiet"]]
    if finished and not quiet:
        return finished, "busy"
    return quiet, "" if all(row["timed"] for row in quiet) else "untimed"


def table(
    config: Mapping[str, Any], rows: Iterable[Row], held: Mapping[tuple[Any, ...], str]
) -> list[dict[str, Any]]:
    """Rows of scaling.csv: every point of every study about speed, in the study's order.

    Args:
        rows: the rows of runs.csv.
        held: what `parity.held` found.
    """
    points: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        points.setdefault(_point(row), []).append(row)
    made = []
    for study in grid.studies(config):
        if study.kind in VARIED:
            seeds: dict[tuple[Any, ...], int] = {}
            for run in study.runs:
                point = tuple(getattr(run, name) for name in POINT)
                seeds[point] = seeds.get(point, 0) + 1
            made += [
                _row(study, list(seeds), point, points, held, count)
                for point, count in seeds.items()
                if point in points
            ]
    return made


def _point(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in POINT)


def _row(
    study: grid.Study,
    asked: Sequence[tuple[Any, ...]],
    point: tuple[Any, ...],
    points: Mapping[tuple[Any, ...], Sequence[Row]],
    held: Mapping[tuple[Any, ...], str],
    seeds: int,
) -> dict[str, Any]:
    rows = points[point]
    used, flag = usable(rows)
    first, count = rows[0], workers(rows[0])
    time = spread([row["step_s"] for row in used])
    if study.kind == "mistakes":
        same = _fair(asked, points)
    else:
        same = _serial(first, points, weak=study.kind == "weak")
    best = _best_serial(first, points)
    same_ratio = same and paired_ratio(same[0], used)
    best_ratio = best and paired_ratio(best[0], used)
    efficiency = fraction = None
    if same_ratio and study.kind == "strong":
        efficiency, fraction = (
            strong_efficiency(same_ratio.median, count),
            karp_flatt(same_ratio.median, count),
        )
    if same_ratio and study.kind == "weak":
        efficiency = same_ratio.median  # t(1)/t(p); below it becomes the throughput ratio
        same_ratio = _times(same_ratio, first["batch"] / same[0][0]["batch"]) if same else None
    flags = [flag, *(f"{found[1]} reference" for found in (same, best) if found and found[1] and not flag)]
    return {
        "study": study.name,
        "kind": study.kind,
        **{name: first[name] for name in POINT},
        "features": first["features"],
        "workers": count,
        "varied": VARIED[study.kind],
        "value": first[VARIED[study.kind]],
        "step_s": time and time.median,
        "step_low_s": time and time.low,
        "step_high_s": time and time.high,
        "epoch_s": time and time.median * first["steps_per_epoch"],
        "samples_per_s": time and first["batch"] / time.median,
        "n": len(used),
        "busy": sum(not row["quiet"] for row in rows),
        "resumed": sum(row["resumed"] > 0 for row in rows),
        "failed": sum(row["status"] != "completed" for row in rows),
        "absent": seeds - len(rows),
        "flag": next((text for text in flags if text), ""),
        **_columns("speedup_same", same_ratio),
        "same_reference": _name(same, first),
        **_columns("speedup_best_serial", best_ratio),
        "best_serial_reference": _name(best, first),
        "efficiency": efficiency,
        "karp_flatt": fraction,
        "parity": held.get(parity.subject(first), "not run"),
        "hardware": first["hardware"],
        "code": first["code"],
    }


def _serial(
    row: Row, points: Mapping[tuple[Any, ...], Sequence[Row]], weak: bool
) -> tuple[list[Row], str] | None:
    """The same simulator on one rank and one thread (or one GPU), at a worker's share of the batch if weak."""
    place = "gpu-n1r1t1" if on_gpu(row) else SERIAL
    batch = row["batch"] // workers(row) if weak else row["batch"]
    found = points.get(_point({**row, "place": place, "batch": batch}))
    return _found(usable(found)) if found else None


def _fair(
    asked: Iterable[tuple[Any, ...]], points: Mapping[tuple[Any, ...], Sequence[Row]]
) -> tuple[list[Row], str] | None:
    """A study of mistakes compares everything with its first runs on one rank and one thread."""
    found = (points[point] for point in asked if point in points)
    serial = (rows for rows in found if rows[0]["place"] == SERIAL)
    return next((_found(usable(rows)) for rows in serial), None)


def _best_serial(row: Row, points: Mapping[tuple[Any, ...], Sequence[Row]]) -> tuple[list[Row], str] | None:
    """The fastest timed single-process runs of the same work on at most the same cores, by any simulator.

    The same work: workload, model, qubits, layers, global batch and precision; cached features count as the
    same work as inline ones, for they give the same numbers.
    """

    def may(other: Row) -> bool:
        alike = all(
            other[name] == row[name]
            for name in ("workload", "model", "qubits", "layers", "batch", "precision")
        )
        single = other["backend"] == ("gpu" if on_gpu(row) else "cpu") and other["ranks"] == 1
        return (
            alike
            and single
            and other["timed"]
            and workers(other) <= workers(row)
            and other["hardware"] == row["hardware"]
        )

    candidates = [_found(usable(rows)) for rows in points.values() if may(rows[0])]
    return min((c for c in candidates if c), key=lambda c: (c[1] == "busy", _median(c)), default=None)


def _median(found: tuple[list[Row], str]) -> float:
    return float(statistics.median(row["step_s"] for row in found[0]))


def _found(found: tuple[list[Row], str]) -> tuple[list[Row], str] | None:
    return found if found[0] else None


def _times(ratio: Spread, factor: float) -> Spread:
    median, low, high, q25, q75 = (
        value * factor for value in (ratio.median, ratio.low, ratio.high, ratio.q25, ratio.q75)
    )
    return Spread(median, low, high, q25, q75, ratio.n)


def _columns(name: str, ratio: Spread | None) -> dict[str, Any]:
    return {
        name: ratio and ratio.median,
        f"{name}_low": ratio and ratio.low,
        f"{name}_high": ratio and ratio.high,
        f"{name}_n": ratio.n if ratio else 0,
    }


def _name(found: tuple[list[Row], str] | None, row: Row) -> str:
    """Where the reference ran, with its simulator, batch and protocol where they are not the point's own."""
    if not found:
        return ""
    reference = found[0][0]
    others = [f"b{reference['batch']}"] if reference["batch"] != row["batch"] else []
    others += [reference[name] for name in ("simulator", "protocol") if reference[name] != row[name]]
    return " ".join([reference["place"], *others])
