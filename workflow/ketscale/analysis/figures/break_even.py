"""From how much work a rank several ranks pay: speedup over the time that each rank would need alone."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ketscale.analysis.figures import style
from ketscale.analysis.figures.style import PALETTE, Tables
from ketscale.analysis.scaling import BUSY_RATIOS, POINT

WORK = [name for name in POINT if name != "place"]
NOTE = (
    "Work of a rank: the time of a step on one rank with one thread, over the number of workers. Median and range over "
    "seeds, ratios paired by seed; where the line crosses 1, more ranks begin to pay"
)


def break_even(tables: Tables) -> tuple[Figure, pd.DataFrame]:
    """Speedup of each place with several workers over work a rank, on a logarithmic axis, and where it crosses 1."""
    drawn = with_work(tables.points_of("break-even"))
    if drawn.empty:
        return style.empty(tables, tables.asked("break-even"))
    figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    shares = style.variants(drawn, but=("model", "qubits", "layers", "simulator"))
    drawn["line"] = drawn["place"] + shares.map(lambda words: f", {words}" if words else "")
    for number, (name, chosen) in enumerate(drawn.groupby("line", sort=True)):
        _draw(axes, chosen.sort_values("work_s"), str(name), PALETTE[number % len(PALETTE)])
    axes.axhline(1, ls="--", color=style.FRAME, lw=1)
    axes.set(xlabel="work of a rank in a step (log scale)", ylabel="speedup over one rank", xscale="log")
    style.log_seconds(axes.xaxis)
    axes.set_ylim(0, 1.15 * max(2.0, drawn["speedup_same_high"].max()))
    axes.legend(loc="upper left")
    style.caption(figure, drawn, tables, drawn["study"].unique(), NOTE)
    crossings = {name: crossing(chosen) for name, chosen in drawn.groupby("line")}
    return figure, drawn.assign(pays_from_s=drawn["line"].map(crossings))


def with_work(points: pd.DataFrame) -> pd.DataFrame:
    """The points on several workers that have a reference, each with `work_s`: one rank's step over the workers."""
    alone = points[points["workers"] == 1][["study", *WORK, "step_s"]].rename(columns={"step_s": "alone_s"})
    several = points[(points["workers"] > 1) & points["speedup_same"].notna()]
    drawn = several.merge(alone, on=["study", *WORK])
    return drawn.assign(work_s=drawn["alone_s"] / drawn["workers"])


def crossing(chosen: pd.DataFrame) -> float | None:
    """Work in seconds from which the speedup stays above 1, between points on logarithmic work; None if it never does.

    The smallest work measured where every point pays.
    """
    ordered = chosen.sort_values("work_s")
    work, speedup = ordered["work_s"].to_numpy(), ordered["speedup_same"].to_numpy()
    if speedup[-1] <= 1:
        return None
    below = np.flatnonzero(speedup <= 1)
    if len(below) == 0:
        return float(work[0])
    last = below[-1]
    share = (1 - speedup[last]) / (speedup[last + 1] - speedup[last])
    return float(np.exp(np.log(work[last]) + share * (np.log(work[last + 1]) - np.log(work[last]))))


def _draw(axes: Axes, chosen: pd.DataFrame, name: str, colour: object) -> None:
    pays = crossing(chosen)
    says = "never pays here" if pays is None else f"pays from {style.seconds(pays)}"
    axes.plot(chosen["work_s"], chosen["speedup_same"], color=colour, lw=1.5, alpha=0.6)
    axes.vlines(
        chosen["work_s"], chosen["speedup_same_low"], chosen["speedup_same_high"], color=colour, lw=1.5
    )
    for _, point in chosen.iterrows():
        hollow = point["flag"] in BUSY_RATIOS
        style.dot(axes, point["work_s"], point["speedup_same"], colour, hollow, ms=7, zorder=3)
    axes.plot([], [], "o-", color=colour, label=f"{name}: {says}")
