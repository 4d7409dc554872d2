"""Strategies of differentiating a circuit side by side: time of an epoch, of the training, accuracy."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from ketscale.analysis.figures import style
from ketscale.analysis.figures.style import PALETTE, Tables

WORK = ["workload", "model", "qubits", "layers"]
COLUMNS = [
    "strategy", "simulator", *WORK, "batch", "place", "step_s", "epoch_s", "n", "flag",
    "quality_simulator", "quality_batch", "epochs", "total_s", "accuracy", "accuracy_low", "accuracy_high", "hardware", "code",
]  # fmt: skip


def strategies(tables: Tables) -> tuple[Figure, pd.DataFrame]:
    """Time per epoch and in total on logarithmic axes, and the accuracy that all strategies share."""
    asked = tables.asked("simulator", "accuracy")
    drawn = table(tables)
    if drawn.empty:
        return style.empty(tables, asked)
    figure, axes = plt.subplots(
        1, 3, figsize=(9.5, 1.4 + 0.6 * len(drawn)), sharey=True, layout="constrained"
    )
    for height, (_, row) in enumerate(drawn.iterrows()):
        number = list(tables.config["simulators"]).index(row["simulator"])
        colour, hollow = PALETTE[number % len(PALETTE)], row["flag"] == "busy"
        for panel, column in zip(axes, ("epoch_s", "total_s"), strict=False):
            if pd.notna(row[column]):
                style.dot(panel, row[column], height, colour, hollow, ms=9)
                text = style.seconds(row[column])
                panel.annotate(
                    text, (row[column], height), (9, 0), textcoords="offset points", va="center", fontsize=9
                )
        if pd.notna(row["accuracy"]):
            axes[2].hlines(height, row["accuracy_low"], row["accuracy_high"], color=colour, lw=2)
            own = row["quality_simulator"] == row["simulator"]
            style.dot(axes[2], row["accuracy"], height, colour, not own, ms=8)
    for panel, column, title in zip(
        axes, ("epoch_s", "total_s"), ("an epoch", "the whole training"), strict=False
    ):
        values = drawn[column].dropna()
        if len(values):
            panel.set_xlim(values.min() / 2, values.max() * (values.max() / values.min()) ** 0.3 * 3)
            style.log_seconds(panel.xaxis)
        panel.set(title=title, xlabel="time (log scale)")
    axes[2].set(title="test accuracy", xlabel="share correct")
    axes[2].margins(x=0.25)
    axes[0].set_yticks(range(len(drawn)), drawn["strategy"].tolist())
    axes[0].set_ylim(len(drawn) - 0.5, -0.5)
    style.caption(figure, drawn, tables, asked, _note(drawn))
    return figure, drawn


def table(tables: Tables) -> pd.DataFrame:
    """One row a simulator. Epochs and accuracy are the quality runs': every simulator computes the same.

    Where there is a choice, the time is taken at the batch size of the quality runs.
    """
    times = tables.scaling[(tables.scaling["kind"] == "simulator") & tables.scaling["step_s"].notna()]
    quality = tables.accuracy[tables.accuracy["simulator"] != "none"].drop(
        columns=["place", "protocol", "loss", "n"]
    )
    quality = quality.rename(columns={"simulator": "quality_simulator", "batch": "quality_batch"})
    found = times.merge(quality.drop(columns="study"), on=WORK, how="left")
    if found.empty:
        return pd.DataFrame()
    found["other_batch"] = found["batch"] != found["quality_batch"]
    found["other_simulator"] = found["simulator"] != found["quality_simulator"]
    found = found.sort_values(["other_batch", "other_simulator"], kind="stable").drop_duplicates(
        [*WORK, "simulator", "place"]
    )
    found["total_s"] = found["epoch_s"] * found["epochs"]
    found["strategy"] = [_strategy(tables.config, name) for name in found["simulator"]]
    return found.sort_values("epoch_s")[COLUMNS]


def _strategy(config: dict[str, dict[str, dict[str, str]]], name: str) -> str:
    block = config["simulators"].get(name, {})
    how = {"loop": "sample by sample", "broadcast": "batched"}.get(block.get("batching", ""), "")
    return f"{name}\n{how}, {block.get('gradient', '')}"


def _note(drawn: pd.DataFrame) -> str:
    known = drawn.dropna(subset=["accuracy"])
    if known.empty:
        return "No quality run has finished, so neither totals nor accuracy are known"
    first = known.iloc[0]
    note = (
        f"Total = epoch x {first['epochs']:.3g} epochs of the quality runs ({first['quality_simulator']}, "
        f"batch {first['quality_batch']:.0f}); accuracy is theirs too "
        "(hollow where quoted: all simulators train the same numbers)"
    )
    other = known[known["batch"] != known["quality_batch"]]
    if len(other):
        batches = " and ".join(str(batch) for batch in sorted(other["batch"].unique()))
        note += f". Projected from times at batch {batches}: {', '.join(other['simulator'])}"
    return note
