"""Accepted laws beside the points of their studies."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ketscale.analysis.laws.known import amdahl, gustafson, usl
from ketscale.analysis.laws.series import common_size, grows, size_of

if TYPE_CHECKING:
    import pandas as pd

ALIKE = ("study", "workload", "model", "simulator", "protocol")
# The simplest first: one is drawn. Each with the parameters of its speedup, in its order.
CURVES: dict[str, tuple[Callable[..., float], Mapping[str, str]]] = {
    "Amdahl": (amdahl, {"serial fraction": "serial"}),
    "USL": (usl, {"contention": "contention", "coherency": "coherency"}),
    "Gustafson": (gustafson, {"serial fraction": "serial"}),
}


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
    first, last = points.iloc[0], points.iloc[-1]
    own = _alike(laws[(laws["verdict"] == "accepted") & (laws["series"] == grows(last["layout"]))], first)
    own = own[(own["size"] == last["size"]) & (own["batch"].isna() | (own["batch"] == last["batch"]))]
    law = next((law for law in CURVES if law in set(own["law"])), None)
    known = points[points["speedup_same"].notna() & points["flag"].fillna("").eq("")]
    if law is None or known.empty:
        return None
    speedup, named = CURVES[law]
    of_name = own[own["law"] == law].set_index("parameter")["estimate"]
    values = {argument: float(of_name[parameter]) for parameter, argument in named.items()}
    # The ratios are to a run that may be of another series, such as one process without MPI, so the law is scaled.
    sizes = [size_of(text) for text in known["layout"]]
    off = [
        math.log(ratio / speedup(size, **values))
        for ratio, size in zip(known["speedup_same"], sizes, strict=True)
    ]
    scale = math.exp(statistics.fmean(off))
    start, end = size_of(first["layout"]), size_of(last["layout"])
    steps = [end ** (i / 50) * start ** (1 - i / 50) for i in range(51)]
    words = ", ".join(f"{parameter} {of_name[parameter]:.2g}" for parameter in named)
    return Accepted(
        f"{law}'s law with {words}" if law != "USL" else f"USL with {words}",
        [last["workers"] / end * size for size in steps],
        [scale * speedup(size, **values) for size in steps],
    )


def regimes(laws: pd.DataFrame, points: pd.DataFrame) -> str:
    """The regimes of one line of a sweep, such as 'dispatch: 16 to 64; cache: 256'; '' where they are unknown.

    points: rows of scaling.csv. laws: the table laws.
    """
    first = points.iloc[0]
    own = laws[(laws["law"] == "cost") & (laws["series"] == first["layout"]) & laws["regimes"].notna()]
    own = _alike(own, first)
    own = own[own["size"] == common_size(points["size"])]
    own = own[own["batch"].isna() | (own["batch"] == first["batch"])]
    return str(own["regimes"].iloc[0]) if len(own) else ""


def _alike(laws: pd.DataFrame, point: pd.Series) -> pd.DataFrame:
    for name in ALIKE:
        laws = laws[laws[name] == point[name]]
    return laws
