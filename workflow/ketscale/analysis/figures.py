"""The figures of a config: of each study that of its kind, and of several where the time of a step goes.

Imports nothing heavy: the Snakefile imports this.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ketscale.analysis.analysed import Analysed
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.style import Inputs
from ketscale.analysis.heavy import Drawing, pd, plt
from ketscale.analysis.kinds import Figure, kinds
from ketscale.analysis.points import size_axes, variants
from ketscale.config import Config
from ketscale.grid import POINT
from ketscale.words import duration

# A figure NAME is NAME with each of these endings in this folder of the results; csv: the data drawn.
FOLDER, ENDINGS = "figures", ("svg", "png", "csv")
# Bars that one figure has.
MOST = 20
# In the order of a step; other spans are drawn after them.
SPANS = (
    "data", "features", "transfer", "classical.forward", "circuit.forward", "circuit.backward",
    "dynamics.creation", "dynamics.forward", "dynamics.backward", "pulses.hamiltonian", "pulses.eigenstates", "pulses.gates",
    "pulses.forward", "pulses.backward", "classical.backward", "communication.sums", "communication.wait", "communication",
    "optimiser",
)  # fmt: skip
OTHER = "outside any span"


def figures_of(config: Config) -> tuple[Figure, ...]:
    """The figures of the config's studies: of each study that of its kind, by the study's name, and then the overviews."""
    families = kinds(config.families)
    own = (
        replace(figure, name=study.name, studies=(study.name,))
        for study in config.studies
        if (figure := families[study.kind].figure)
    )
    of_several = (
        replace(figure, studies=tuple(study.name for study in config.studies if study.kind in figure.kinds))
        for figure in OVERVIEWS
    )
    return (*own, *(figure for figure in of_several if figure.studies))


def drawings(analysed: Analysed) -> dict[str, dict[str, bytes]]:
    """The files of each figure that has something to show, by its name and their endings."""
    style.theme()
    tables = {name: frame for name, frame in analysed.tables.items() if name != "answers"}
    inputs = Inputs(analysed.config, **tables)
    every = {
        each.name: style.files(each.draw, inputs.only(each.studies)) for each in figures_of(analysed.config)
    }
    return {name: files for name, files in every.items() if files}


def spans(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """The share of each part in a sampled step, a bar for each point, with the time of the whole step above it."""
    from matplotlib.ticker import PercentFormatter

    runs = inputs.runs
    runs = runs[(runs["status"] == "completed") & (runs["timed"] == True) & runs["sampled_step_s"].notna()]  # noqa: E712
    columns = [name for name in map(str, runs) if name.startswith("span_") and not name.endswith(".total_s")]
    if runs.empty or not columns:
        return None
    bar = [*POINT, "features", "hardware"]
    some_quiet = runs.groupby(bar)["quiet"].transform("any").astype(bool)
    runs = runs[runs["quiet"].astype(bool) | ~some_quiet]
    sizes = list(size_axes(inputs.config))
    how: dict[str, Any] = {**dict.fromkeys([*columns, "sampled_step_s"], "median"), "quiet": "all"}
    how |= {"seed": "nunique", **dict.fromkeys(["code", *sizes], "first")}
    every = runs.groupby(bar, as_index=False).agg(how).rename(columns={"seed": "n"})
    order = ["workload", "model", *sizes, "batch", "sampled_step_s"]
    steps = every.sort_values(order, ignore_index=True).head(MOST)
    parts = steps[columns].fillna(0.0).rename(columns=lambda name: name[5:-2])
    parts[OTHER] = (steps["sampled_step_s"] - parts.sum(axis=1)).clip(lower=0)
    names = [name for name in SPANS if name in parts] + sorted({*parts} - {*SPANS, OTHER}) + [OTHER]
    names = [name for name in names if parts[name].any()]
    shares = parts[names].div(parts[names].sum(axis=1), axis=0)
    height = 0.9 + 0.34 * len(steps) + 0.06 * len(names)
    figure, axes = plt.subplots(figsize=(style.WIDTH, height), layout="constrained")
    colours = style.colours([name for name in names if name != OTHER]) | {OTHER: style.PALE}
    bars = shares.rename(columns=lambda name: name.replace(".", " "))
    bars.plot.barh(stacked=True, color=[*colours.values()], width=0.42, lw=0, legend=False, ax=axes)
    words = variants(steps, inputs.config).where(lambda words: words != "", steps["simulator"])
    times = steps["sampled_step_s"].map(duration) + steps["quiet"].map({True: "", False: " (busy)"})
    style.name_rows(axes, words, times)
    axes.set(xlim=(0, 1), xlabel="share of a sampled step")
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    figure.legend(loc="outside upper left", ncols=5)
    note = f"Exclusive medians{style.omission(len(every), MOST, 'point')}"
    style.footnote(figure, steps, inputs, note)
    return figure, pd.concat([steps[[*bar, "n", "sampled_step_s", "quiet"]], shares], axis=1)


OVERVIEWS = (
    Figure(
        "spans", "Where the time of a step goes",
        "Exclusive time of each part of a few sampled steps, which are measured with the device synchronised; above each bar, "
        "the time of the whole step. All other steps run undisturbed.", spans, ("simulator", "strong", "weak", "features")),
)  # fmt: skip
