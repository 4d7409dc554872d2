"""What a step's time is spent on: the exclusive spans of the sampled steps, stacked."""

from __future__ import annotations

import textwrap
from collections.abc import Collection
from typing import Any

from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs, of_studies
from ketscale.analysis.heavy import Drawing, pd, plt
from ketscale.analysis.kinds import Figure
from ketscale.analysis.points import size_axes, variants
from ketscale.analysis.wording import where
from ketscale.grid import POINT
from ketscale.words import duration

# In the order of a step. Other spans are drawn after them, except *.total, which overlap with other spans.
ORDER = (
    "data", "features", "transfer", "classical.forward", "circuit.forward", "circuit.backward",
    "dynamics.creation", "dynamics.forward", "dynamics.backward", "pulses.hamiltonian", "pulses.eigenstates", "pulses.gates",
    "pulses.forward", "pulses.backward", "classical.backward", "communication.sums", "communication.wait", "communication",
    "optimiser",
)  # fmt: skip
KINDS = ("simulator", "strong", "weak", "features")
BAR = [*POINT, "features", "hardware"]
OTHER = "outside any span"
# Bars of a figure.
MOST = 20


def draw(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """The share of each span in a step, one bar per point, with the time of the whole step above it."""
    from matplotlib.ticker import PercentFormatter

    asked = inputs.asked(*KINDS)
    drawn = table(inputs, asked)
    if drawn.empty:
        return None
    steps = drawn.drop_duplicates(BAR)
    order = ["workload", "model", *size_axes(inputs.config), "size", "batch", "sampled_step_s"]
    steps = steps.sort_values(order, ignore_index=True)
    labels, steps = _labels(steps, inputs)[:MOST], steps.head(MOST)
    names = [n for n in ORDER if n in set(drawn["span"])] + sorted(set(drawn["span"]) - {*ORDER, OTHER})
    names += [OTHER] * (OTHER in set(drawn["span"]))
    height = 0.9 + 0.34 * len(steps) + 0.2 * len(names) / style.width() * 2
    figure, axes = plt.subplots(figsize=(style.width(), height), layout="constrained")
    shares = drawn.pivot_table(index=BAR, columns="span", values="share", fill_value=0.0)
    shares = shares.loc[pd.MultiIndex.from_frame(steps[BAR])]
    left = 0 * shares.iloc[:, 0].to_numpy()
    for number, name in enumerate(names):
        colour = "#d0d3d6" if name == OTHER else style.colour(number)
        hatch = "//" if number >= len(style.PALETTE) and name != OTHER else None
        bar: dict[str, Any] = {
            "color": colour,
            "hatch": hatch,
            "label": name.replace(".", " "),
            "height": 0.42,
            "lw": 0,
        }
        axes.barh(range(len(steps)), shares[name], left=left, **bar)
        left = left + shares[name].to_numpy()
    for at, (label, (_, step)) in enumerate(zip(labels, steps.iterrows(), strict=True)):
        time = duration(step["sampled_step_s"]) + ("" if step["quiet"] else " (busy)")
        room = int(style.width() * 17) - len(time)
        words = f"{textwrap.shorten(label, room, placeholder=' …')}: {time}"
        axes.text(0, at - 0.25, words, va="bottom", fontsize=6.5, in_layout=False)
    axes.set_yticks([])
    axes.set_ylim(len(steps) - 0.6, -0.8)
    axes.set(xlim=(0, 1), xlabel="share of a sampled step")
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(False, axis="y")
    figure.legend(loc="outside upper left", ncols=5 if style.width() > 5 else 2)
    count = len(drawn.drop_duplicates(BAR))
    note = "Median over seeds of steps that were sampled with the device synchronised"
    note += f". {MOST} of {count} points; the CSV file has all" if count > MOST else ""
    codes = inputs.runs[[*POINT, "hardware", "code"]].drop_duplicates([*POINT, "hardware"])
    style.footnote(figure, steps.merge(codes), inputs, asked, note)
    return figure, drawn


def table(inputs: Inputs, studies: Collection[str]) -> pd.DataFrame:
    """One row per point and span: seconds (median over seeds) and share of the step; also the time outside spans."""
    runs = inputs.runs[[*BAR, "seed"]].drop_duplicates()
    rows = inputs.spans.merge(runs, on=[*POINT, "seed"])
    if rows.empty:
        return pd.DataFrame()
    rows = of_studies(rows, studies)
    rows = rows[(rows["status"] == "completed") & rows["timed"].astype(bool)]
    rows = rows[~rows["span"].str.endswith(".total")]
    if rows.empty:
        return pd.DataFrame()
    some_quiet = rows.groupby(BAR)["quiet"].transform("any")
    rows = rows[rows["quiet"].astype(bool) | ~some_quiet.astype(bool)]
    sizes = list(size_axes(inputs.config))
    of_step = {"sampled_step_s": "median", "quiet": "all", "seed": "nunique", **dict.fromkeys(sizes, "first")}
    steps = rows.groupby(BAR, as_index=False).agg(of_step).rename(columns={"seed": "n"})
    parts = rows.groupby([*BAR, "span"], as_index=False)["median_s"].median()
    covered = steps[BAR].merge(parts.groupby(BAR, as_index=False)["median_s"].sum(), on=BAR)["median_s"]
    rest = steps[BAR].assign(span=OTHER, median_s=(steps["sampled_step_s"] - covered).clip(lower=0))
    found = pd.concat([parts, rest]).merge(steps, on=BAR)
    found["share"] = found["median_s"] / found.groupby(BAR)["median_s"].transform("sum")
    return found.sort_values([*BAR, "span"], ignore_index=True)


def _labels(steps: pd.DataFrame, inputs: Inputs) -> list[str]:
    """Simulator, layout, batch and whatever else differs between the bars, in words."""
    # If protocols differ only in their features, the label names the features instead.
    plain = steps.groupby("features")["protocol"].nunique().max() == 1
    others = variants(
        steps, inputs.config, but=("simulator", "layout", "batch", *(["protocol"] if plain else []))
    )
    labels = []
    for (_, step), other in zip(steps.iterrows(), others, strict=True):
        parts = [step["simulator"], where(step["layout"]), f"batch {step['batch']}", *filter(None, [other])]
        parts += ["inline features"] if step["features"] == "inline" else []
        # A class of hosts begins with its name.
        parts += [step["hardware"].split(":")[0]] if steps["hardware"].nunique() > 1 else []
        labels.append(", ".join(parts))
    return labels


SPANS = Figure(
    "spans",
    "Where the time of a step goes",
    "Exclusive time of each part of a few sampled steps, which are measured with the device synchronised; above each bar, "
    "the time of the whole step. All other steps run undisturbed.",
    KINDS,
    draw,
)
