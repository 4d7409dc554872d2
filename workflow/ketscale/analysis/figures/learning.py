"""Learning curves with their spread over seeds, and the test accuracy beside the control's."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from ketscale.analysis.figures import style
from ketscale.analysis.figures.style import PALETTE, Tables

CURVES = {"validation_loss": "validation loss", "validation_accuracy": "validation accuracy"}


def learning(tables: Tables) -> tuple[Figure, pd.DataFrame]:
    """Validation loss and accuracy by epoch (mean and range over seeds), and every seed's test accuracy."""
    asked = tables.asked("accuracy")
    if tables.accuracy.empty or tables.history.empty:
        return style.empty(tables, asked)
    tests = tables.runs[tables.runs["test_accuracy"].notna() & (tables.runs["status"] == "completed")]
    several = tests["protocol"].nunique() > 1
    history = tables.history.assign(curve=_name(tables.history, several))
    tests = tests.assign(curve=_name(tests, several))
    names = sorted(history["curve"].unique())
    colours = {name: PALETTE[number % len(PALETTE)] for number, name in enumerate(names)}
    figure, axes = plt.subplots(1, 3, figsize=(9.5, 3.3), layout="constrained", width_ratios=(3, 3, 2))
    for panel, (column, label) in zip(axes, CURVES.items(), strict=False):
        if column in history:
            sns.lineplot(
                history, x="epoch", y=column, hue="curve", hue_order=names, palette=colours, ax=panel,
                errorbar=("pi", 100), legend=panel is axes[0],
            )  # fmt: skip
        panel.set(
            title=label,
            xlabel="epoch",
            ylabel="loss (nats)" if "loss" in column else "share correct",
        )
    legend = axes[0].get_legend()
    if legend is not None:
        legend.remove()
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=2)
    for number, name in enumerate(names):
        values = tests[tests["curve"] == name]["test_accuracy"]
        for value in values:
            style.dot(axes[2], number, value, colours[name], False, ms=7, alpha=0.8)
        if len(values):
            axes[2].plot([number - 0.25, number + 0.25], [values.mean()] * 2, color=colours[name], lw=2.5)
    axes[2].set(title="test accuracy", ylabel="share correct", xlim=(-0.6, len(names) - 0.4))
    words = [name.replace(", ", "\n").replace(" (", "\n(") for name in names]
    axes[2].set_xticks(
        range(len(names)), words if len(names) < 3 else [""] * len(names)
    )  # else the legend says
    axes[2].grid(False, axis="x")
    points = tables.accuracy.merge(
        tables.runs[
            ["workload", "model", "simulator", "place", "batch", "protocol", "hardware", "code"]
        ].drop_duplicates()
    )
    style.caption(
        figure,
        points,
        tables,
        asked,
        "Lines: mean; bands: range over seeds; test: best weights on unseen data",
    )
    columns = ["curve", "seed", "epoch", "step", *(column for column in CURVES if column in history)]
    test = tests[["curve", "seed", "test_accuracy"]].assign(epoch=float("nan"))
    return figure, pd.concat([history[columns], test]).sort_values(["curve", "seed", "epoch"])


def _name(rows: pd.DataFrame, protocols: bool) -> pd.Series:
    """Workload, model, the circuit's size, the batch size, and the simulator and protocol where there are several."""
    size = " (" + rows["qubits"].astype(str) + " qubits, " + rows["layers"].astype(str) + " layers)"
    named = rows["workload"] + " " + rows["model"] + size.where(rows["simulator"] != "none", "")
    several = rows[rows["simulator"] != "none"]["simulator"].nunique() > 1
    named += ", batch " + rows["batch"].astype(str) + (", " + rows["simulator"] if several else "")
    return named + (", " + rows["protocol"] if protocols else "")
