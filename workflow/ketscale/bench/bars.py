"""The figure of `ketscale bench models`: time and memory of a training step, a bar for each simulator."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ketscale.analysis.drawing import style, ticks
from ketscale.bench.output import hardware
from ketscale.bench.steps import ALL_ARMS, CHANNELS, CLASSICAL, FEATURES, STEPS

NAMES = {
    "fused": "reduced circuits, fused",
    "literal-fused": "published circuits, fused",
    "default.qubit": "reduced circuits, default.qubit",
    "literal": "published circuits, default.qubit (sentences: Qiskit)",
    "closed-form": "closed form, backprop",
    "closed-form-shift": "closed form, parameter-shift",
    "literal-bound": "published circuits, built once",
    CLASSICAL: "classical",
}


def draw(result: Mapping[str, Any]) -> Figure:
    """Step time above, peak memory below, on logarithmic axes; what was not measured has no bar."""
    style.theme()
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in result["rows"]:
        name = textwrap.fill(row["model"].replace("_", " "), 15)
        qubits = f"\n{row['qubits']} qubits" if row["qubits"] else ""
        groups.setdefault(name + qubits, []).append(row)
    figure, (times, memory) = plt.subplots(
        2, 1, figsize=(max(6, 1 + 1.1 * len(groups)), 7), sharex=True, layout="constrained"
    )
    width = 0.8 / max(map(len, groups.values()))
    arms = [arm for arm in ALL_ARMS if any(row["simulator"] == arm for row in result["rows"])]
    colours = dict(zip(arms, style.PALETTE, strict=False))
    for panel, column, unit in ((times, "median_s", 1), (memory, "peak_bytes", 2**20)):
        values = [row[column] / unit for row in result["rows"] if row[column]]
        if values:
            # Bars start at a decade at most half of the smallest, so that none looks like nothing beside the others.
            panel.set_ylim(10 ** math.floor(math.log10(min(values) / 2)), 1.5 * max(values))
        for at, rows in enumerate(groups.values()):
            for place, row in enumerate(rows):
                x = at + (place - (len(rows) - 1) / 2) * width
                if row[column]:
                    panel.bar(
                        x, row[column] / unit, width, color=colours[row["simulator"]], edgecolor="white"
                    )
    style.log_seconds(times.yaxis)
    ticks.show(memory.yaxis, ticks.DECADES, lambda value: f"{value:g} MiB")
    times.set_ylabel("training step")
    memory.set_ylabel("peak memory of a step")
    memory.set_xticks(range(len(groups)), list(groups), fontsize=7)
    for panel in (times, memory):
        panel.grid(False, axis="x")
    figure.legend(
        [Patch(color=colours[arm]) for arm in arms],
        [NAMES[arm] for arm in arms],
        fontsize=7,
        loc="outside upper center",
        ncols=min(3, len(arms)),
    )
    batches = ", ".join(map(str, sorted({row["batch"] for row in result["rows"]})))
    text = (
        f"Batch {batches} (trials of {STEPS} steps and {CHANNELS} channels or {FEATURES} features in single precision, sentences in double); "
        f"median times. {hardware(result['machine'])}."
    )
    wrapped = textwrap.fill(text, int(figure.get_size_inches()[0] * 15))
    figure.text(0.01, -0.02, wrapped, ha="left", va="top", fontsize=8, color="#5f6368", linespacing=1.5)
    return figure
