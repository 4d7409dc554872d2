"""How a slowdown arises: one mistake at a time, and honest runs with the wrong time or divisor."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ketscale.analysis.figures import style
from ketscale.analysis.figures.style import PALETTE, Tables

# Columns of runs.csv by what the time of a step was taken from.
ACCOUNTS = {
    "step_s": "steady steps",
    "step_with_first_s": "first step included",
    "step_with_start_s": "start and data included",
}
ONE = "cpu-n1r1t1"
NOTE = (
    "Left: time of a step at one global batch over that of one rank with one thread (same seeds; 1 is no gain, "
    "below 1 faster). Right: the same runs by three ways of accounting"
)


def mistakes(tables: Tables) -> tuple[Figure, pd.DataFrame]:
    """Step times relative to one fair rank, and what wrong accounting makes of the fair runs."""
    studies = tables.of("mistakes")
    if not studies:
        return style.empty(
            tables, [name for name, s in tables.config["studies"].items() if s["kind"] == "mistakes"]
        )
    drawn = pd.concat([points for _, points in studies]).reset_index(drop=True)
    drawn["arm"] = [_arm(tables, row) for _, row in drawn.iterrows()]
    drawn = drawn.merge(_slowdowns(tables, drawn), on="arm", how="left")
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9.5, 1.6 + 0.42 * len(drawn)), width_ratios=(3, 2), layout="constrained"
    )
    _draw_slowdowns(left, drawn)
    accounts = _accounts(tables, drawn)
    _draw_accounts(right, accounts)
    style.caption(figure, drawn, tables, [name for name, _ in studies], NOTE)
    return figure, drawn.merge(accounts, on="arm", how="left", suffixes=("", "_accounted"))


def _arm(tables: Tables, row: pd.Series) -> str:
    parts = [row["place"]]
    if isinstance(row["value"], str) and row["value"]:
        parts.append(row["value"])
    if tables.config["simulators"].get(row["simulator"], {}).get("batching") == "loop":
        parts.append("sample by sample")
    return ", ".join(parts)


def _slowdowns(tables: Tables, drawn: pd.DataFrame) -> pd.DataFrame:
    """Each arm's step over the one fair rank's, seed by seed: median and range."""
    runs = tables.seeds(drawn).merge(drawn[["place", "simulator", "protocol", "arm"]])
    one = runs[runs["arm"] == ONE].set_index("seed")["step_s"]
    runs["slowdown"] = runs["step_s"] / runs["seed"].map(one)
    found = runs.groupby("arm")["slowdown"].agg(["median", "min", "max"]).reset_index()
    return found.set_axis(["arm", "slowdown", "slowdown_low", "slowdown_high"], axis=1)


def _draw_slowdowns(axes: Axes, drawn: pd.DataFrame) -> None:
    for height, (_, row) in enumerate(drawn.iterrows()):
        wrong = row["arm"] != row["place"]
        colour = PALETTE[3] if wrong else PALETTE[0]
        axes.hlines(height, row["slowdown_low"], row["slowdown_high"], color=colour, lw=2)
        style.dot(axes, row["slowdown"], height, colour, row["flag"] == "busy", ms=8)
        axes.annotate(
            f"{row['slowdown']:.3g}x",
            (row["slowdown"], height),
            (9, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    axes.axvline(1, ls="--", color=style.FRAME, lw=1)
    axes.set(title="one mistake at a time", xlabel="time of a step, over one fair rank", xscale="log")
    axes.set_yticks(range(len(drawn)), drawn["arm"].tolist())
    axes.set_ylim(len(drawn) - 0.5, -0.5)
    axes.margins(x=0.25)


def _accounts(tables: Tables, drawn: pd.DataFrame) -> pd.DataFrame:
    """Median over seeds of each account of the fair arms' step."""
    fair = drawn[drawn["arm"] == drawn["place"]]
    axes = ["workload", "model", "qubits", "layers", "batch", "simulator", "place", "protocol"]
    runs = tables.runs[(tables.runs["status"] == "completed") & (tables.runs["resumed"] == 0)]
    chosen = runs[[*axes, *ACCOUNTS]].merge(fair[[*axes, "arm"]], on=axes)
    return chosen.groupby("arm", sort=False)[list(ACCOUNTS)].median().reset_index()


def _draw_accounts(axes: Axes, accounts: pd.DataFrame) -> None:
    for number, (column, label) in enumerate(ACCOUNTS.items()):
        axes.plot(accounts[column], range(len(accounts)), "o", color=PALETTE[number], ms=7, label=label)
    values = accounts[list(ACCOUNTS)].to_numpy()
    axes.set(title="one run, three accounts", xlabel="time of a step (log scale)")
    axes.set_xlim(values.min() / 1.5, values.max() * 1.5)
    style.log_seconds(axes.xaxis)
    axes.set_yticks(range(len(accounts)), accounts["arm"].tolist())
    axes.set_ylim(len(accounts) - 0.5, -0.5)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=1)
