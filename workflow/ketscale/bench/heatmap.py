"""The figure of a benchmark: how much faster `fused` is than its fastest peer, a map for each ansatz."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from ketscale.analysis.drawing import style
from ketscale.bench.output import hardware
from ketscale.bench.summary import Factors, factors
from ketscale.errors import UserError
from ketscale.files import write_atomic

FORMATS = tuple(style.DATELESS)


def check(path: Path) -> None:
    """Raise UserError unless the file's ending names a format of figures."""
    if path.suffix[1:] not in FORMATS:
        raise UserError(f"--figure: {path} must end in one of .{', .'.join(FORMATS)}")


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the file's ending, atomically."""
    check(path)
    kind = path.suffix[1:]
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata=style.DATELESS[kind], bbox_inches="tight", dpi=160)
    plt.close(figure)
    write_atomic(path, buffer.getvalue())


def draw(result: Mapping[str, Any]) -> Figure:
    """Qubits x batch, the colour a logarithm centred on 1; a cell that was not timed stays blank."""
    style.theme()
    found = factors(result["rows"])
    ansaetze = list(dict.fromkeys(row["ansatz"] for row in result["rows"]))
    limit = max([2.0, *(max(f.speedup, 1 / f.speedup) for f in found)])
    figure, axes = plt.subplots(
        1, len(ansaetze), figsize=(1 + 4.6 * len(ansaetze), 4), squeeze=False, layout="constrained"
    )
    for panel, ansatz in zip(axes[0], ansaetze, strict=True):
        of_ansatz = [row for row in result["rows"] if row["ansatz"] == ansatz]
        qubits = sorted({row["qubits"] for row in of_ansatz})
        batches = sorted({row["batch"] for row in of_ansatz})
        image = _panel(panel, [f for f in found if f.cell.ansatz == ansatz], qubits, batches, limit)
        panel.set(title=ansatz.replace("_", " "), xlabel="batch")
    axes[0][0].set_ylabel("qubits")
    figure.colorbar(image, ax=list(axes[0]), label="speedup of fused over its fastest peer", format="{x:g}x")
    text = f"Value and gradient of one loss in single precision; median times. {hardware(result['machine'])}."
    wrapped = textwrap.fill(text, int(figure.get_size_inches()[0] * 15))
    figure.text(0.01, -0.02, wrapped, ha="left", va="top", fontsize=8, color="#5f6368", linespacing=1.5)
    return figure


def _panel(panel: Any, found: list[Factors], qubits: list[int], batches: list[int], limit: float) -> Any:
    values = np.full((len(qubits), len(batches)), np.nan)
    for f in found:
        at = qubits.index(f.cell.qubits), batches.index(f.cell.batch)
        values[at] = f.speedup
        # White on the dark ends of the map.
        ink = "white" if abs(np.log(f.speedup)) > 0.6 * np.log(limit) else style.FRAME
        name = f.peer.replace(".", ".\n") if len(f.peer) > 13 else f.peer
        panel.text(
            at[1], at[0], f"{f.speedup:.3g}x\n{name}", ha="center", va="center", fontsize=6.5, color=ink
        )
    image = panel.imshow(values, cmap="RdBu", norm=LogNorm(1 / limit, limit), aspect="auto", origin="lower")
    panel.set_xticks(range(len(batches)), [str(b) for b in batches])
    panel.set_yticks(range(len(qubits)), [str(q) for q in qubits])
    panel.grid(False)
    return image
