"""Laws of scaling, fitted seed by seed to the step times of one way to work side by side, such as MPI ranks.

p workers take t(p); the speedup is S(p) = t(1) / t(p) at fixed work, p t(1) / t(p) at fixed work per worker.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketscale.analysis import comparability
from ketscale.analysis.comparison import Collected
from ketscale.analysis.heavy import np, optimize, pd, special
from ketscale.analysis.intervals import EFFECT, FEWEST, LEVEL, Estimate, columns, exceeded, typical
from ketscale.analysis.points import Group, Row, line_of, point, serial, usable, workers
from ketscale.grid import BACKENDS, Study, layout

# What the points of a fit share, and what the rows of a fit and its line in speed.csv have in common.
SAME = ("workload", "model", "simulator", "protocol", "size")
ALIKE = ["study", *SAME, "hardware"]


@dataclass(frozen=True)
class Law:
    """A law: its parameters, and the speedup of p workers by them. The time of one worker is fitted with them."""

    name: str
    parameters: tuple[str, ...]
    speedup: Callable[..., Any]
    largest: float = math.inf


# Amdahl, AFIPS Conf. Proc. 30, 483, 1967.
AMDAHL = Law("Amdahl", ("serial fraction",), lambda p, serial: 1 / (serial + (1 - serial) / p), 1.0)
# Gustafson, Commun. ACM 31, 532, 1988; the fraction is a share of the time on p workers.
GUSTAFSON = Law("Gustafson", ("serial fraction",), lambda p, serial: p - serial * (p - 1), 1.0)
# The universal scalability law: Gunther, Proc. CMG 1993, 1035.
USL = Law("USL", ("contention", "coherency"), lambda p, c, k: p / (1 + c * (p - 1) + k * p * (p - 1)))
# By the kind of study; the first is drawn.
LAWS: Mapping[str, tuple[Law, ...]] = {"strong": (AMDAHL, USL), "weak": (GUSTAFSON,)}


def fit(law: Law, counts: Sequence[float], times: Sequence[Sequence[float]]) -> tuple[Estimate, ...]:
    """The parameters, each typical of its fits to single seeds; none where the law does not describe the points: where these are
    too few to contradict it, a fit does not converge, or a parameter is at the upper end of its range.

    counts: of workers, (m,). times: (n, m), a row for each seed; their errors are relative, which is how step times vary.
    """
    p, m = np.array(counts, float), len(law.parameters)
    if len(p) < m + 2 or not len(times):
        return ()

    def time(p: Any, *values: float) -> Any:
        return (p if law is GUSTAFSON else 1.0) * values[-1] / law.speedup(p, *values[:-1])

    ends = [0.0] * (m + 1), [law.largest] * m + [math.inf]
    try:
        fits = [
            optimize.curve_fit(time, p, row, [0.1] * m + [row[0]], sigma=row, bounds=ends)[0][:-1]
            for row in times
        ]
    except RuntimeError:  # it does not converge
        return ()
    estimates = tuple(each for each in map(typical, np.transpose(fits).tolist()) if each)
    # Times that grow with the workers end there.
    return () if any(each.value >= law.largest * (1 - 1e-6) for each in estimates) else estimates


def slope(at: Any, logs: Any) -> tuple[Estimate, float | None]:
    """The slope of lines through the logarithms of several seeds, and the p-value of the F-test of lack of fit of one line for
    the whole range; None where nothing can show it.

    The slope of each seed is that of least squares; the estimate is their mean. Its interval is Student's over seeds, or that
    of the line through their means where this is wider: seeds that have a sample in common with all points say nothing of how
    far the points are from a line. The test compares the residuals of the means with the pure error (Draper & Smith, Applied
    Regression Analysis, 1998, 2.1; seeds are blocks). at: where the points are, (m,). logs: (n, m), a row for each seed.
    """
    centred = at - at.mean()
    slopes = logs @ centred / (centred @ centred)
    (n, m), mean = logs.shape, float(slopes.mean())
    if n < FEWEST:
        return Estimate(mean, None, None, n), None
    tail, p_value = (1 - LEVEL) / 2, None
    halves = [(exceeded(tail, n - 1) * float(slopes.std(ddof=1)) / math.sqrt(n), n - 1)]
    if m > 2:
        centre = logs.mean(0)
        missed = float(((centre - centre.mean() - mean * centred) ** 2).sum()) / (m - 2)
        halves.append((exceeded(tail, m - 2) * math.sqrt(missed / float(centred @ centred)), m - 2))
        pure = logs - centre - logs.mean(1, keepdims=True) + logs.mean()
        variance = float((pure**2).sum()) / ((m - 1) * (n - 1))
        if variance > 0:
            p_value = float(special.fdtrc(m - 2, (m - 1) * (n - 1), n * missed / variance))
    half, freedom = max(halves)
    return Estimate(mean, mean - half, mean + half, n, freedom=freedom), p_value


def exponents(axis: str, study: Study, collected: Collected) -> Iterator[dict[str, Any]]:
    """The exponent by which the step of each line grows with a size; nothing where one exponent does not describe the line, or
    too few sizes could contradict it.
    """
    lines: dict[tuple[Any, ...], dict[float, Group]] = {}
    for group in collected.groups(study):
        lines.setdefault(line_of(axis, group[0], collected.config), {})[float(group[0][axis])] = group
    for groups in lines.values():
        sizes, times = _joined(groups, "size")
        if len(sizes) < FEWEST:
            continue
        exponent, p_value = slope(np.log(np.array(sizes)), np.log(np.array(times)))
        if exponent.low is None or p_value is None or p_value < 1 - LEVEL:
            continue
        first = next(iter(groups.values()))[0]
        yield {
            **{name: first[name] for name in ("workload", "model", "batch", "simulator", "layout", "protocol", "hardware", "code")},
            "point": f"{first['model']}, {first['simulator']}", "series": f"{sizes[0]:g} to {sizes[-1]:g} {axis}",
            "law": "power", "parameter": "exponent", **columns(exponent, *EFFECT), "n": exponent.n, "points": len(sizes),
        }  # fmt: skip


def of_study(study: Study, collected: Collected) -> Iterator[dict[str, Any]]:
    """The laws of each way to work side by side: the ranks of a backend, or the threads of a process.

    One that lacks one worker takes the process with one thread and its share of the batch, unless its ranks have more
    threads.
    """
    weak = study.kind == "weak"
    series: dict[tuple[Any, ...], dict[float, Group]] = {}
    for group in collected.groups(study):
        first = group[0]
        # A larger batch may need a larger model, and the law is of a fixed share of work.
        if not (weak and collected.config.family(first["workload"]).work):
            # Each row of weak scaling has a batch of its own.
            alike = (*(first[name] for name in SAME), weak or first["batch"], series_of(first["layout"]))
            several = BACKENDS[first["backend"]].several_ranks
            series.setdefault(alike, {})[first["ranks" if several else "threads"]] = group
    for groups in series.values():
        first = next(iter(groups.values()))[0]
        share = first["batch"] // workers(first["layout"]) if weak else first["batch"]
        base = collected.points.get(point({**first, "layout": serial(first["backend"]), "batch": share}))
        if base and (first["threads"] == 1 or not BACKENDS[first["backend"]].several_ranks):
            groups.setdefault(1, base)
        counts, times = _joined(groups, "layout")
        names = {name: first[name] for name in (*SAME, "hardware", "code")} | {
            "batch": None if weak else first["batch"],
            "series": series_of(first["layout"]), "points": len(counts),
        }  # fmt: skip
        for law in LAWS[study.kind]:
            for name, each in zip(law.parameters, fit(law, counts, times), strict=False):
                yield {**names, "law": law.name, "parameter": name, **columns(each, *EFFECT), "n": each.n}


def _joined(groups: Mapping[float, Group], varied: str) -> tuple[list[float], list[list[float]]]:
    """The places (m,) of the points that can be fitted, in order, and their times (n, m), a row for each seed that all of
    them have; none if their runs, which differ in the axis `varied`, cannot be compared.
    """
    sound = {at: times for at in sorted(groups) if (times := _sound(groups[at]))}
    used = [row for at in sound for row in usable(groups[at])[0]]
    if not sound or comparability.mismatch(comparability.times(row, (varied,)) for row in used):
        return [], []
    seeds = sorted(set.intersection(*map(set, sound.values())))
    return [*sound] if seeds else [], [[times[seed] for times in sound.values()] for seed in seeds]


def _sound(rows: Group) -> dict[int, float]:
    """The times of a point's seeds, from quiet runs whose workers are known to have a core or a GPU each; none without."""
    used, flag = usable(rows)

    def own_cores(row: Row) -> bool:
        if BACKENDS[row["backend"]].device == "gpu":
            return bool(
                row["ranks"] <= row["nodes"] * len(list(filter(None, (row["gpus"] or "").split("; "))))
            )
        return row["shared_cores"] is False

    return {} if flag or not all(map(own_cores, used)) else {row["seed"]: row["step_s"] for row in used}


def series_of(text: str) -> str:
    """A layout with a star for what grows along its series, such as 'mpi-n1r*t1' and 'cpu-n1r1t*'."""
    growing = "r" if BACKENDS[layout(text)["backend"]].several_ranks else "t"
    return re.sub(rf"(-n\d+.*{growing})\d+", r"\1*", text)


def of_line(laws: pd.DataFrame, points: pd.DataFrame) -> tuple[Law, list[float]] | None:
    """The first law of a line of workers with its parameters; None without one. points: the line's rows of speed.csv."""
    last = points.sort_values("workers").iloc[-1]
    own = laws[(laws[ALIKE] == last[ALIKE]).all(axis="columns")]
    own = own[own["series"] == series_of(last["layout"])]
    own = own[own["batch"].isna() | (own["batch"] == last["batch"])]
    for law in LAWS.get(last["kind"], ()):
        estimates = own[own["law"] == law.name].set_index("parameter")["effect"]
        if len(estimates):
            return law, estimates[[*law.parameters]].tolist()
    return None
