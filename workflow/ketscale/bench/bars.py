"""The figure of `ketscale bench models`: time and memory of a training step, a bar for each simulator."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from ketscale.analysis.drawing import style
from ketscale.bench.output import duration, hardware
from ketscale.bench.training import ARMS, LIKELIHOODS

ORDER = tuple(dict.fromkeys((*ARMS, *LIKELIHOODS, "none")))
NAMES = {
    "fused": "reduced circuits, fused",
    "literal-fused": "published circuits, fused",
    "default.qubit": "reduced circuits, default.qubit",
    "literal": "published circuits, default.qubit (sentences: Qiskit)",
    "closed-form": "closed form, backprop",
    "closed-form-shift": "closed form, parameter-shift",
    "literal-bound": "published circuits, built once",
    "none": "classical",
}


def draw(result: Mapping[str, Any]) -> Figure:
    """Step time above, peak memory below, on logarithmic axes; what was not measured has no bar."""
    style.theme()
    rows = pd.DataFrame(result["rows"])
    rows["size"] = [
        f"{model}\n{qubits} qubits" if qubits else model
        for model, qubits in zip(rows["model"], rows["qubits"], strict=True)
    ]
    rows["arm"] = rows["simulator"].map(NAMES)
    rows["memory"] = rows["peak_bytes"] / 2**20
    sizes = list(dict.fromkeys(rows["size"]))
    names = [NAMES[arm] for arm in ORDER if (rows["simulator"] == arm).any()]
    figure, axes = plt.subplots(
        2, 1, figsize=(max(6, 1 + 1.1 * len(sizes)), 7), sharex=True, layout="constrained"
    )
    for panel, column in zip(axes, ("median_s", "memory"), strict=True):
        sns.barplot(
            rows, x="size", y=column, hue="arm", order=sizes, hue_order=names, palette=style.PALETTE[: len(names)], ax=panel,
            errorbar=None,
        )  # fmt: skip
        panel.set_yscale("log")
        panel.set_xlabel("")
        panel.tick_params(axis="x", labelsize=7)
    axes[0].set_ylabel("training step")
    axes[0].yaxis.set_major_formatter(lambda value, _: duration(value))
    axes[1].set_ylabel("peak memory of a step in MiB")
    axes[1].get_legend().remove()
    axes[0].legend(
        title=None, fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(4, len(names))
    )
    batches = ", ".join(map(str, sorted(set(rows["batch"]))))
    text = f"Batch {batches} (trials of 249 steps and 64 channels, or sentences); median times. {hardware(result['machine'])}."
    wrapped = textwrap.fill(text, int(figure.get_size_inches()[0] * 15))
    figure.text(0.01, -0.02, wrapped, ha="left", va="top", fontsize=8, color="#5f6368", linespacing=1.5)
    return figure
