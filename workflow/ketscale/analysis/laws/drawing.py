"""Accepted laws in the figures of their studies."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ketscale.analysis.laws.known import amdahl, gustafson, usl
from ketscale.analysis.laws.series import common_size, grows, size_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

ALIKE = ("study", "workload", "model", "simulator", "protocol")
# The simplest first: one is drawn. Each with the parameters of its speedup, in its order.
CURVES: dict[str, tuple[Callable[..., float], Mapping[str, str]]] = {
    "Amdahl": (amdahl, {"serial fraction": "serial"}),
    "USL": (usl, {"contention": "contention", "coherency": "coherency"}),
    "Gustafson": (gustafson, {"serial fraction": "serial"}),
}


def draw_law(axes: Axes, laws: pd.DataFrame, points: pd.DataFrame, look: Mapping[str, Any]) -> None:
    """Draw the accepted law of a line of workers through its ratios to one worker; nothing without one.

    laws: the table laws. points: the line's rows of scaling.csv, in the order of their workers.
    """
    if points.empty:
        return
    first, last = points.iloc[0], points.iloc[-1]
    own = laws[(laws["verdict"] == "accepted") & (laws["series"] == grows(last["layout"]))]
    for name in ALIKE:
        own = own[own[name] == first[name]]
    own = own[(own["size"] == last["size"]) & (own["batch"].isna() | (own["batch"] == last["batch"]))]
    law = next((law for law in CURVES if law in set(own["law"])), None)
    known = points[points["speedup_same"].notna() & points["flag"].fillna("").eq("")]
    if law is None or known.empty:
        return
    speedup, named = CURVES[law]
    of_name = own[own["law"] == law].set_index("parameter")["estimate"]
    values = {argument: float(of_name[parameter]) for parameter, argument in named.items()}
    # The ratios are to a run that may be of another series, such as one process without MPI, so the law is scaled.
    own_sizes = [size_of(text) for text in known["layout"]]
    off = [
        math.log(ratio / speedup(size, **values))
        for ratio, size in zip(known["speedup_same"], own_sizes, strict=True)
    ]
    scale = math.exp(statistics.fmean(off))
    sizes, workers = [size_of(text) for text in points["layout"]], points["workers"].tolist()
    steps = [size_of(last["layout"]) ** (i / 50) * sizes[0] ** (1 - i / 50) for i in range(51)]
    each = workers[-1] / sizes[-1]
    words = ", ".join(f"{parameter} {of_name[parameter]:.2g}" for parameter in named)
    axes.plot(
        [each * size for size in steps],
        [scale * speedup(size, **values) for size in steps],
        color=look["color"],
        ls=(0, (1, 1)),
        lw=1.2,
        label=f"{law}: {words}",
    )


def with_regimes(points: pd.DataFrame, laws: pd.DataFrame) -> pd.DataFrame:
    """The points of a sweep with a column `regimes`, those of their line in words; '' where they are unknown.

    points: rows of scaling.csv with the `line` of each. laws: the table laws.
    """
    words = {line: _regimes(laws, group) for line, group in points.groupby("line")}
    return points.assign(regimes=points["line"].map(words))


def _regimes(laws: pd.DataFrame, points: pd.DataFrame) -> str:
    """The regimes of one line, such as 'dispatch: 16 to 64; cache: 256'."""
    first = points.iloc[0]
    own = laws[(laws["law"] == "cost") & (laws["series"] == first["layout"]) & laws["regimes"].notna()]
    for name in ALIKE:
        own = own[own[name] == first[name]]
    own = own[own["size"] == common_size(points["size"])]
    own = own[own["batch"].isna() | (own["batch"] == first["batch"])]
    return str(own["regimes"].iloc[0]) if len(own) else ""
