"""Where a step's time goes: the exclusive spans of the sampled steps, stacked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds import Figure
from ketscale.analysis.points import size_axes, variants
from ketscale.grid import POINT
from ketscale.words import duration

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing

# In the order of a step. Other spans are drawn after them, except *.total, which overlap with other spans.
ORDER = (
    "data", "features", "transfer", "classical.forward", "circuit.forward", "circuit.backward",
    "dynamics.creation", "dynamics.forward", "dynamics.backward", "pulses.hamiltonian", "pulses.eigenstates", "pulses.gates",
    "pulses.forward", "pulses.backward", "classical.backward", "communication.sums", "communication.wait", "communication",
    "optimiser",
)  # fmt: skip
KINDS = ("simulator", "strong", "weak", "features")
BAR = [*POINT, "features"]
OTHER = "outside any span"


def draw(inputs: Inputs) -> tuple[Drawing, pd.DataFrame]:
    """The share of each span in a step, one bar per point, with the time of the whole step beside it."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import PercentFormatter

    asked = set(inputs.asked(*KINDS))
    drawn = table(inputs, asked)
    if drawn.empty:
        return style.empty(inputs, asked)
    steps = drawn.drop_duplicates(BAR)
    steps = steps.sort_values(["workload", "model", "size", "batch", "sampled_step_s"], ignore_index=True)
    names = [n for n in ORDER if n in set(drawn["span"])] + sorted(set(drawn["span"]) - {*ORDER, OTHER})
    names += [OTHER] * (OTHER in set(drawn["span"]))
    figure, axes = plt.subplots(figsize=(9.5, 1.6 + 0.42 * len(steps)), layout="constrained")
    left = [0.0] * len(steps)
    wide = drawn.pivot_table(index=BAR, columns="span", values="share", fill_value=0.0)
    for number, name in enumerate(names):
        widths = [float(wide.loc[tuple(step[BAR]), name]) for _, step in steps.iterrows()]
        colour = "#d0d3d6" if name == OTHER else style.colour(number)
        hatch = "//" if number >= len(style.PALETTE) and name != OTHER else None
        label = name.replace(".", " ")
        axes.barh(
            range(len(steps)), widths, left=left, color=colour, hatch=hatch, label=label, height=0.72, lw=0
        )
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(steps)), _labels(steps, inputs))
    axes.set_ylim(len(steps) - 0.4, -0.6)
    axes.set(xlim=(0, 1), xlabel="share of a sampled step (%)")
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(False, axis="y")
    whole = [
        duration(s) + ("" if quiet else " (busy)")
        for s, quiet in zip(steps["sampled_step_s"], steps["quiet"], strict=True)
    ]
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(steps)), whole)
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)
    figure.legend(loc="outside upper center", ncols=5)
    note = "Median over seeds of steps that were sampled with the device synchronised; right: the whole step"
    counts = steps.merge(inputs.runs[[*POINT, "hardware", "code"]].drop_duplicates(list(POINT)))
    style.footnote(figure, counts, inputs, asked, note)
    return figure, drawn


def table(inputs: Inputs, studies: set[str]) -> pd.DataFrame:
    """One row per point and span: seconds (median over seeds) and share of the step; also the time outside spans."""
    import pandas as pd

    runs = inputs.runs[[*BAR, "seed"]].drop_duplicates()
    rows = inputs.spans.merge(runs, on=[*POINT, "seed"])
    if rows.empty:
        return pd.DataFrame()
    asked = rows["studies"].fillna("").map(lambda text: bool(studies & set(text.split())))
    rows = rows[asked & (rows["status"] == "completed") & rows["timed"].astype(bool)]
    rows = rows[~rows["span"].str.endswith(".total")]
    if rows.empty:
        return pd.DataFrame()
    some_quiet = rows.groupby(BAR)["quiet"].transform("any")
    rows = rows[rows["quiet"].astype(bool) | ~some_quiet.astype(bool)]
    sizes = {name: (name, "first") for name in size_axes(inputs.config)}
    found = rows.groupby([*BAR, "span"], as_index=False).agg(
        median_s=("median_s", "median"),
        sampled_step_s=("sampled_step_s", "median"),
        quiet=("quiet", "all"),
        n=("seed", "nunique"),
        **sizes,
    )
    covered = found.groupby(BAR, as_index=False).agg(
        covered_s=("median_s", "sum"),
        sampled_step_s=("sampled_step_s", "max"),
        quiet=("quiet", "all"),
        n=("n", "max"),
        **sizes,
    )
    covered["median_s"] = (covered["sampled_step_s"] - covered["covered_s"]).clip(lower=0)
    found = pd.concat([found, covered.drop(columns="covered_s").assign(span=OTHER)])
    total = found.groupby(BAR)["median_s"].transform("sum")
    return found.assign(share=found["median_s"] / total).sort_values([*BAR, "span"], ignore_index=True)


def _labels(steps: pd.DataFrame, inputs: Inputs) -> list[str]:
    """Simulator, layout, batch, and whatever else differs between the bars."""
    # If protocols differ only in their features, the label names the features instead.
    plain = steps.groupby("features")["protocol"].nunique().max() == 1
    others = variants(
        steps, inputs.config, but=("simulator", "layout", "batch", *(["protocol"] if plain else []))
    )
    return [
        ", ".join(
            [step["simulator"], step["layout"], f"batch {step['batch']}", *filter(None, [other])]
            + (["inline features"] if step["features"] == "inline" else [])
        )
        for (_, step), other in zip(steps.iterrows(), others, strict=True)
    ]


SPANS = Figure(
    "spans",
    "Where the time of a step goes",
    "Exclusive time of each span in a few sampled steps, which are measured with the device synchronised. All other "
    "steps run undisturbed. On the right is the time of the whole step.",
    KINDS,
    draw,
)
