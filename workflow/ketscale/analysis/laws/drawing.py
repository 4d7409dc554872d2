"""Accepted laws beside the points of their studies."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ketscale.analysis.heavy import pd
from ketscale.analysis.laws.fits import common_size, grows, size_of
from ketscale.analysis.laws.known import AMDAHL, COST, GUSTAFSON, USL
from ketscale.analysis.verdicts import ACCEPTED

ALIKE = ["study", "workload", "model", "simulator", "protocol", "hardware"]
# The simplest first: one is drawn.
CURVES = (AMDAHL, USL, GUSTAFSON)


@dataclass(frozen=True)
class Accepted:
    """The law of a line of workers: its name with its parameters, and its curve, speedups by workers."""

    words: str
    workers: Sequence[float]
    speedups: Sequence[float]


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
