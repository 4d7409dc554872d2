"""How a slowdown arises: one mistake at a time, and honest runs with the wrong time or divisor."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ketscale.analysis.figures import style
from ketscale.analysis.figures.style import PALETTE, Tables
from ketscale.analysis.scaling import BUSY_RATIOS, POINT

# Columns of runs.csv by what the time of a step was taken from.
ACCOUNTS = {
    "step_s": "steady steps",
    "step_with_first_s": "first step included",
    "step_with_start_s": "start and data included",
}
NOTE = (
    "Left: time of a step at one global batch over that of one rank with one thread (same seeds; 1 is no gain, "
    "below 1 faster). Right: the same runs by three ways of accounting"
)


def mistakes(tables: Tables) -> tuple[Figure, pd.DataFrame]:
    """Step times relative to one fair rank, and what wrong accounting makes of the fair runs."""
    points = tables.points_of("mistakes")
    drawn = points[points["speedup_same"].notna()].reset_index(drop=True)
    if drawn.empty:
        return style.empty(tables, tables.asked("mistakes"))
    drawn["arm"] = [_arm(tables, row) for _, row in drawn.iterrows()]
    if drawn["study"].nunique() > 1:
        drawn["arm"] = drawn["study"] + ": " + drawn["arm"]
    # How many times as long, where the table says how many times as fast.
    for column, of in (("slowdown", ""), ("slowdown_low", "_high"), ("slowdown_high", "_low")):
        drawn[column] = 1 / drawn[f"speedup_same{of}"]
    drawn["fair"] = [not _wrongs(tables, row) for _, row in drawn.iterrows()]
    drawn = drawn.merge(_accounts(tables, drawn), on=["study", *POINT], how="left")
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9.5, 1.6 + 0.42 * len(drawn)), width_ratios=(4, 3), layout="constrained"
    )
    _draw_slowdowns(left, drawn)
    _draw_accounts(right, drawn[drawn["fair"]])
    style.caption(figure, drawn, tables, drawn["study"].unique(), NOTE)
    return figure, drawn


def _wrongs(tables: Tables, row: pd.Series) -> list[str]:
    """What is wrong with an arm, in words."""
    found = [row["value"]] if isinstance(row["value"], str) and row["value"] else []
    if tables.config["simulators"].get(row["simulator"], {}).get("batching") == "loop":
        found.append("sample by sample")
    return found


def _arm(tables: Tables, row: pd.Series) -> str:
    return ", ".join([row["place"], *_wrongs(tables, row)])


def _accounts(tables: Tables, drawn: pd.DataFrame) -> pd.DataFrame:
    """Median over the seeds that the point's own time is taken from, by each account."""
    runs = tables.seeds(drawn)
    counted = runs[runs["quiet"] | (runs["flag"] == "busy")]
    renamed = {column: f"account_{column}" for column in ACCOUNTS}
    return counted.groupby(["study", *POINT])[list(ACCOUNTS)].median().rename(columns=renamed).reset_index()


def _draw_slowdowns(axes: Axes, drawn: pd.DataFrame) -> None:
    for height, (_, row) in enumerate(drawn.iterrows()):
        colour = PALETTE[0] if row["fair"] else PALETTE[3]
        axes.hlines(height, row["slowdown_low"], row["slowdown_high"], color=colour, lw=2)
        style.dot(axes, row["slowdown"], height, colour, row["flag"] in BUSY_RATIOS, ms=8)
        axes.annotate(
            f"{row['slowdown']:.3g}x",
            (row["slowdown_high"], height),
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


def _draw_accounts(axes: Axes, fair: pd.DataFrame) -> None:
    columns = [f"account_{column}" for column in ACCOUNTS]
    for number, (column, label) in enumerate(zip(columns, ACCOUNTS.values(), strict=True)):
        axes.plot(fair[column], range(len(fair)), "o", color=PALETTE[number], ms=7, label=label)
    values = fair[columns].to_numpy()
    axes.set(title="one run, three accounts", xlabel="time of a step (log scale)")
    if len(fair):
        axes.set_xlim(values.min() / 1.5, values.max() * 1.5)
    style.log_seconds(axes.xaxis)
    axes.set_yticks(range(len(fair)), fair["arm"].tolist())
    axes.set_ylim(len(fair) - 0.5, -0.5)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=1)
