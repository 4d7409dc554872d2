"""The figures of benchmarks: a map of circuits, and bars of training steps."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from benchmarks.circuits import KNOWN
from benchmarks.factors import CircuitCase, Factors
from benchmarks.output import hardware
from benchmarks.runner import case_of
from benchmarks.steps import ALL_ARMS, CHANNELS, CLASSICAL, FEATURES, JAX, STEPS
from ketscale.analysis.drawing import style
from ketscale.errors import UserError
from ketscale.files import write_atomic
from ketscale.words import duration


def check(path: Path) -> None:
    """Raise UserError unless the file's ending names a format of figures."""
    if path.suffix[1:] not in style.DATELESS:
        raise UserError(f"--figure: {path} must end in one of .{', .'.join(style.DATELESS)}")


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the file's ending, atomically."""
    check(path)
    kind = path.suffix[1:]
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata=style.DATELESS[kind], bbox_inches="tight", dpi=160)
    plt.close(figure)
    write_atomic(path, buffer.getvalue())


def heatmap(result: Mapping[str, Any], found: Sequence[Factors]) -> Figure:
    """How much faster `fused` is than its fastest peer, a map of qubits x batch for each circuit.

    The colour is a logarithm centred on 1; a case that was not timed stays blank.
    """
    style.theme()
    ansaetze = list(dict.fromkeys(row["ansatz"] for row in result["rows"]))
    limit = max([2.0, *(max(f.speedup, 1 / f.speedup) for f in found)])
    size = (1 + 4.6 * len(ansaetze), 4)
    figure, axes = plt.subplots(1, len(ansaetze), figsize=size, squeeze=False, layout="constrained")
    for panel, ansatz in zip(axes[0], ansaetze, strict=True):
        rows = [row for row in result["rows"] if row["ansatz"] == ansatz]
        qubits, batches = (sorted({row[name] for row in rows}) for name in ("qubits", "batch"))
        image = _panel(panel, [f for f in found if f.case.ansatz == ansatz], qubits, batches, limit)
        panel.set(title=ansatz.replace("_", " "), xlabel="batch")
    axes[0][0].set_ylabel("qubits")
    figure.colorbar(image, ax=list(axes[0]), label="speedup of fused over its fastest peer", format="{x:g}x")
    _footnote(figure, result, "Value and gradient of one loss in single precision")
    return figure


def _panel(panel: Any, found: list[Factors], qubits: list[int], batches: list[int], limit: float) -> Any:
    values = np.full((len(qubits), len(batches)), np.nan)
    for f in found:
        at = qubits.index(f.case.qubits), batches.index(f.case.batch)
        values[at] = f.speedup
        # White on the dark ends of the map.
        ink = "white" if abs(np.log(f.speedup)) > 0.6 * np.log(limit) else style.FRAME
        name = f.peer.replace(".", ".\n") if len(f.peer) > 13 else f.peer
        label = f"{f.speedup:.3g}x\n{name}"
        panel.text(at[1], at[0], label, ha="center", va="center", fontsize=6.5, color=ink)
    image = panel.imshow(values, cmap="RdBu", norm=LogNorm(1 / limit, limit), aspect="auto", origin="lower")
    panel.set_xticks(range(len(batches)), [str(b) for b in batches])
    panel.set_yticks(range(len(qubits)), [str(q) for q in qubits])
    panel.grid(False)
    return image


def dots(result: Mapping[str, Any], titles: Callable[[CircuitCase], str]) -> Figure:
    """Seconds of every simulator in every case, on a logarithmic axis; the first call is a small mark."""
    style.theme()
    rows = [row for row in result["rows"] if row["median_s"] is not None]
    cases = list(dict.fromkeys(case_of(CircuitCase, row) for row in rows))
    names = [name for name in KNOWN if any(row["simulator"] == name for row in rows)]
    figure, axis = plt.subplots(figsize=(9, 1.5 + 0.5 * len(cases)), layout="constrained")
    for number, name in enumerate(names):
        own = [row for row in rows if row["simulator"] == name]
        heights = [cases.index(case_of(CircuitCase, row)) + 0.5 * number / len(names) for row in own]
        mark, colour = MARKERS[number % len(MARKERS)], style.PALETTE[number % len(style.PALETTE)]
        label = f"{name} ({KNOWN[name].mode})"
        axis.scatter([row["median_s"] for row in own], heights, 26, colour, marker=mark, label=label)
        axis.scatter([row["first_s"] for row in own], heights, 8, colour, marker=mark, alpha=0.35)
    axis.set_yticks(
        [at + 0.25 for at in range(len(cases))], [titles(case).replace(", ", "\n") for case in cases]
    )
    axis.invert_yaxis()
    axis.set_xlabel("a call; small marks: the first one")
    style.logarithmic(axis.xaxis, duration)
    figure.legend(fontsize=7, loc="outside upper center", ncols=2)
    _footnote(figure, result, "Value and gradient of one loss in single precision (shots: the value)")
    return figure


# Fewer than colours, so that each pair of both comes once.
MARKERS = "osD^v<>"
NAMES = {
    "fused": "fused",
    "default.qubit": "default.qubit",
    "literal": "published circuits, Qiskit",
    "closed-form": "closed form, backprop",
    "closed-form-shift": "closed form, parameter-shift",
    "literal-bound": "published circuits, built once",
    JAX: "the whole step in one jax.jit, default.qubit",
    CLASSICAL: "classical",
}


def bars(result: Mapping[str, Any]) -> Figure:
    """Step time above, peak memory below, on logarithmic axes; what was not measured has no bar."""
    style.theme()
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in result["rows"]:
        name = textwrap.fill(row["model"].replace("_", " "), 15)
        qubits = f"\n{row['qubits']} qubits" if row["qubits"] else ""
        groups.setdefault(name + qubits, []).append(row)
    size = (max(6, 1 + 1.1 * len(groups)), 7)
    figure, (times, memory) = plt.subplots(2, 1, figsize=size, sharex=True, layout="constrained")
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
                if row[column]:
                    x, colour = at + (place - (len(rows) - 1) / 2) * width, colours[row["simulator"]]
                    panel.bar(x, row[column] / unit, width, color=colour, edgecolor="white")
        panel.grid(False, axis="x")
    style.logarithmic(times.yaxis, duration)
    style.logarithmic(memory.yaxis, "{:.3g} MiB".format)
    times.set_ylabel("training step")
    memory.set_ylabel("peak memory of a step")
    memory.set_xticks(range(len(groups)), list(groups), fontsize=7)
    patches, labels = [Patch(color=colours[arm]) for arm in arms], [NAMES[arm] for arm in arms]
    figure.legend(patches, labels, fontsize=7, loc="outside upper center", ncols=min(3, len(arms)))
    batches = ", ".join(map(str, sorted({row["batch"] for row in result["rows"]})))
    trials = f"trials of {STEPS} steps and {CHANNELS} channels or {FEATURES} features in single precision"
    _footnote(figure, result, f"Batch {batches} ({trials}, sentences in double)")
    return figure


def _footnote(figure: Figure, result: Mapping[str, Any], text: str) -> None:
    message = f"{text}; median times. {hardware(result['machine'])}."
    wrapped = textwrap.fill(message, int(figure.get_size_inches()[0] * 15))
    figure.text(0.01, -0.02, wrapped, ha="left", va="top", fontsize=8, color=style.SOFT, linespacing=1.5)
