"""Simulators side by side: time per epoch, time of the whole training, quality."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds import Figure
from ketscale.analysis.points import HOLLOW, size_axes, variants
from ketscale.config import Config
from ketscale.words import duration

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing

WORK = ["workload", "model", "size"]


def draw(inputs: Inputs) -> tuple[Drawing, pd.DataFrame]:
    """Time per epoch and of the whole training on logarithmic axes, and the quality, which all simulators share."""
    import matplotlib.pyplot as plt
    import pandas as pd

    asked = inputs.asked("simulator", "accuracy")
    drawn = table(inputs)
    if drawn.empty:
        return style.empty(inputs, asked)
    figure, axes = plt.subplots(1, 3, figsize=(11, 1.4 + 0.6 * len(drawn)), sharey=True, layout="constrained")
    names = [*inputs.config.simulators, "none"]
    for height, (_, row) in enumerate(drawn.iterrows()):
        colour = style.colour(names.index(row["simulator"]))
        for panel, column in zip(axes, ("epoch_s", "total_s"), strict=False):
            if pd.notna(row[column]):
                style.dot(panel, row[column], height, colour, row["flag"] in HOLLOW, ms=9)
                text = f"{'about ' if row['epoch_estimated'] else ''}{duration(row[column])}"
                panel.annotate(
                    text, (row[column], height), (9, 0), textcoords="offset points", va="center", fontsize=9
                )
        if pd.notna(row["value"]):
            axes[2].hlines(height, row["value_low"], row["value_high"], color=colour, lw=2)
            own = row["quality_simulator"] == row["simulator"]
            style.dot(axes[2], row["value"], height, colour, not own, ms=8)
    for panel, column, title in zip(
        axes, ("epoch_s", "total_s"), ("an epoch", "the whole training"), strict=False
    ):
        values = drawn[column].dropna()
        if len(values):
            panel.set_xlim(values.min() / 2, values.max() * (values.max() / values.min()) ** 0.3 * 3)
            style.log_seconds(panel.xaxis)
        panel.set(title=title, xlabel="time (log scale)")
        panel.grid(False, axis="y")
    tested = drawn.dropna(subset=["value"])["workload"]
    shown = {style.label(inputs.config.family(str(name)).headline) for name in tested}
    axes[2].set(title="on test data", xlabel=" or ".join(sorted(shown)) or "not known yet")
    axes[2].grid(False, axis="y")
    if style.wide(drawn["value"]):
        axes[2].set_xscale("log")
    else:
        axes[2].locator_params(axis="x", nbins=5)
    axes[2].margins(x=0.25)
    axes[0].set_yticks(range(len(drawn)), drawn["strategy"].tolist())
    axes[0].set_ylim(len(drawn) - 0.5, -0.5)
    style.footnote(figure, drawn, inputs, asked, _note(drawn))
    return figure, drawn


def table(inputs: Inputs) -> pd.DataFrame:
    """One row per simulator and work. Epochs and quality come from accuracy runs, since all simulators train alike.

    If several batches were timed, the batch of the accuracy runs is preferred.
    """
    import pandas as pd

    times = inputs.scaling[(inputs.scaling["kind"] == "simulator") & inputs.scaling["step_s"].notna()]
    known = ["epochs", "metric", "value", "value_low", "value_high"]
    quality = inputs.quality[[*WORK, "simulator", "batch", *known]]
    quality = quality.rename(columns={"simulator": "quality_simulator", "batch": "quality_batch"})
    found = times.drop(columns="value").merge(quality, on=WORK, how="left")
    if found.empty:
        return pd.DataFrame()
    found["other_batch"] = found["batch"] != found["quality_batch"]
    found["other_simulator"] = found["simulator"] != found["quality_simulator"]
    found = found.sort_values(["other_batch", "other_simulator"], kind="stable").drop_duplicates(
        [*WORK, "simulator", "layout"]
    )
    found["total_s"] = found["epoch_s"] * found["epochs"]
    others = variants(found, inputs.config, but=("simulator", "batch", "protocol"))
    found["strategy"] = [
        "\n".join(filter(None, [name, other, _how(inputs.config, name)]))
        for name, other in zip(found["simulator"], others, strict=True)
    ]
    return found.sort_values("epoch_s")[
        [
            "strategy", "simulator", *WORK, *size_axes(inputs.config), "batch", "layout", "step_s", "epoch_s", "epoch_estimated", "n", "flag",
            "quality_simulator", "quality_batch", "total_s", *known, "hardware", "code",
        ]
    ]  # fmt: skip


def _how(config: Config, name: str) -> str:
    """How a simulator batches and differentiates, if its settings say so."""
    simulator = config.simulators.get(name)
    settings = simulator.content() if simulator else {}
    batching = {"loop": "sample by sample", "broadcast": "batched"}.get(settings.get("batching", ""), "")
    return ", ".join(filter(None, (batching, settings.get("gradient", ""))))


def _note(drawn: pd.DataFrame) -> str:
    about = ". About: no whole epoch was timed, so it is estimated by the mean step"
    return _of_totals(drawn) + (about if drawn["epoch_estimated"].any() else "")


def _of_totals(drawn: pd.DataFrame) -> str:
    known = drawn.dropna(subset=["value"])
    if known.empty:
        return "No accuracy run has finished, so neither totals nor quality are known"
    first = known.iloc[0]
    note = (
        f"Total = time per epoch x {first['epochs']:.3g} epochs of the accuracy runs ({first['quality_simulator']}, "
        f"batch {first['quality_batch']:.0f}), which also give the test result "
        "(hollow for other simulators, since all train the same numbers)"
    )
    other = known[known["batch"] != known["quality_batch"]]
    if len(other):
        batches = " and ".join(str(batch) for batch in sorted(other["batch"].unique()))
        note += f". Projected from times at batch {batches}: {', '.join(other['simulator'])}"
    return note


STRATEGIES = Figure(
    "strategies",
    "Epoch, training and result under each simulator",
    "Simulators side by side: time per epoch, time of the whole training, and the result on test data. All "
    "simulators train the same numbers, so the result is that of the accuracy runs. If times were taken at a batch "
    "other than that of the accuracy runs, totals are projections, and the figure says so.",
    ("simulator",),
    draw,
)
