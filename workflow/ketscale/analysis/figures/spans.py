"""Where a step's time goes: the exclusive spans of the sampled steps, stacked."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from ketscale.analysis.figures import style
from ketscale.analysis.figures.style import PALETTE, Tables

# In the order of a step. Other spans are drawn after them; *.total runs beside others and is no part.
ORDER = (
    "data", "features", "transfer", "classical.forward", "circuit.forward", "circuit.backward",
    "classical.backward", "communication.sums", "communication.wait", "communication", "optimiser",
)  # fmt: skip
KINDS = ("simulator", "strong", "weak", "features")
SIZE = ["workload", "model", "qubits", "layers"]
POINT = [*SIZE, "batch", "simulator", "place", "features"]
OTHER = "outside any span"


def spans(tables: Tables) -> tuple[Figure, pd.DataFrame]:
    """The share of each span in a step, a bar a point, with the absolute time beside it."""
    asked = set(tables.asked(*KINDS))
    drawn = table(tables, asked)
    if drawn.empty:
        return style.empty(tables, asked)
    steps = drawn.drop_duplicates(POINT).reset_index(drop=True)
    names = [n for n in ORDER if n in set(drawn["span"])] + sorted(set(drawn["span"]) - {*ORDER, OTHER})
    names += [OTHER] * (OTHER in set(drawn["span"]))
    figure, axes = plt.subplots(figsize=(9.5, 1.6 + 0.42 * len(steps)), layout="constrained")
    left = [0.0] * len(steps)
    wide = drawn.pivot_table(index=POINT, columns="span", values="share", fill_value=0.0)
    for number, name in enumerate(names):
        widths = [float(wide.loc[tuple(step[POINT]), name]) for _, step in steps.iterrows()]
        colour = "#d0d3d6" if name == OTHER else PALETTE[number % len(PALETTE)]
        hatch = "//" if number >= len(PALETTE) and name != OTHER else None
        label = name.replace(".", " ")
        axes.barh(
            range(len(steps)), widths, left=left, color=colour, hatch=hatch, label=label, height=0.72, lw=0
        )
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(steps)), [_label(step, steps) for _, step in steps.iterrows()])
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="share of a sampled step")
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(False, axis="y")
    whole = [
        style.seconds(s) + ("" if quiet else " (busy)")
        for s, quiet in zip(steps["sampled_step_s"], steps["quiet"], strict=True)
    ]
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(steps)), whole)
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)
    figure.legend(loc="outside upper center", ncols=5)
    counts = tables.scaling[tables.scaling["study"].isin(asked)]
    note = (
        "Median over seeds of the steps that were sampled with the device synchronised; right: the whole step"
    )
    style.caption(figure, counts[counts["n"] > 0].drop(columns="flag"), tables, asked, note)
    return figure, drawn


def table(tables: Tables, studies: set[str]) -> pd.DataFrame:
    """One row a point and span: seconds (median over seeds) and share of the step, uncovered time too."""
    rows = tables.spans.merge(tables.runs[[*POINT, "protocol", "seed", "resumed"]].drop_duplicates())
    asked = rows["studies"].fillna("").map(lambda text: bool(studies & set(text.split())))
    rows = rows[asked & (rows["status"] == "completed") & rows["timed"].astype(bool) & (rows["resumed"] == 0)]
    rows = rows[~rows["span"].str.endswith(".total")]
    if rows.empty:
        return pd.DataFrame()
    some_quiet = rows.groupby(POINT)["quiet"].transform("any")
    rows = rows[rows["quiet"].astype(bool) | ~some_quiet.astype(bool)]
    grouped = rows.groupby([*POINT, "span"], as_index=False)
    found = grouped.agg(
        median_s=("median_s", "median"),
        sampled_step_s=("sampled_step_s", "median"),
        quiet=("quiet", "all"),
        n=("seed", "nunique"),
    )
    covered = found.groupby(POINT, as_index=False).agg(
        covered_s=("median_s", "sum"),
        sampled_step_s=("sampled_step_s", "max"),
        quiet=("quiet", "all"),
        n=("n", "max"),
    )
    covered["median_s"] = (covered["sampled_step_s"] - covered["covered_s"]).clip(lower=0)
    found = pd.concat([found, covered.drop(columns="covered_s").assign(span=OTHER)])
    total = found.groupby(POINT)["median_s"].transform("sum")
    return found.assign(share=found["median_s"] / total).sort_values([*POINT, "span"], ignore_index=True)


def _label(step: pd.Series, steps: pd.DataFrame) -> str:
    """Simulator, place, batch, and what else differs between the bars."""
    differs = [f"{name} {step[name]}" for name in SIZE if steps[name].nunique() > 1]
    inline = ["inline features"] if step["features"] == "inline" else []
    return ", ".join([step["simulator"], step["place"], f"batch {step['batch']}", *differs, *inline])
