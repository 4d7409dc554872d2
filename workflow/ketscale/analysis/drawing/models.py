"""Figures of models: test results, and differences over data sets."""

from __future__ import annotations

from ketscale.analysis import verdicts
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.style import Inputs
from ketscale.analysis.heavy import Axes, Drawing, pd
from ketscale.analysis.points import variants
from ketscale.config import Metric


def accuracy(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """The test results of the models with their intervals, a panel for each data set; the best is at the top."""
    models = selection(inputs)
    if models.empty:
        return None
    of = {name: inputs.config.family(str(name)).headline for name in models["workload"].unique()}
    better = models["workload"].map(lambda name: -1 if of[name].better == "up" else 1)
    effects = models.assign(
        name=models["line"],
        words=models["value"].map("{:.3g}".format),
        low=models["value_low"],
        high=models["value_high"],
        colour=style.PALETTE[0],
        rank=better * models["value"],
    ).sort_values(["rank", "line"])
    parts = [*style.parts(effects, inputs, "line")]
    if drawing := style.forest(parts, inputs):
        for axes, (_, part) in zip(drawing[0].axes, parts, strict=True):
            _marks(axes, part, of[part["workload"].iloc[0]])
    return drawing


def selection(inputs: Inputs) -> pd.DataFrame:
    """The chosen configurations with a test result, with the name of each as `line`."""
    rows = inputs.quality[inputs.quality["value"].notna() & inputs.quality["row"].isna()]
    rows = rows[rows["chosen"].astype(bool)].reset_index(drop=True)
    names = [variants(part, inputs.config, ("workload",)) for _, part in rows.groupby("workload")]
    line = pd.concat(names) if names else pd.Series(dtype=str)
    return rows.assign(line=line.where(line != "", rows["model"]), hollow=rows["failed"] > 0)


def _marks(axes: Axes, models: pd.DataFrame, metric: Metric) -> None:
    """Guessing as a dotted line, and the metric; errors are on a logarithmic axis."""
    label = f"test {metric.title}" + (f" ({metric.unit})" if metric.unit else "")
    at = models["chance"].mean()
    # Far below all results it would hide their differences.
    if metric.is_share and at > models["value_low"].min() - 0.1:
        axes.axvline(at, color=style.SOFT, lw=1, ls=":")
        label += f"\ndotted: guessing, {at:.3g}"
    if not metric.is_share and models["value"].min() > 0:
        style.logarithmic(axes.xaxis)
    axes.set_xlabel(label)


def comparison(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """The differences of the data sets with what is typical of them."""
    rows = inputs.quality[inputs.quality["effect"].notna() & inputs.quality["verdict"].notna()]
    if (rows["row"].isna()).sum() == 1:
        # One data set alone is the whole.
        rows = rows[rows["row"].isna()]
    if rows.empty:
        return None
    rows = rows.sort_values(["row", "workload", "size"], na_position="first")
    colours = {verdicts.BETTER: style.PALETTE[0], verdicts.WORSE: style.PALETTE[1]}
    effects = style.effects(rows).assign(hollow=False, colour=rows["verdict"].map(colours).fillna(style.SOFT))
    metric = inputs.config.family(inputs.config.studies[0].runs[0].workload).headline
    ratio = (rows["unit"] == "times").all()
    label = f"test {metric.title} of model {'over control' if ratio else 'less control (points)'}"
    part = ("Difference by data set", effects)
    note, words = "Intervals of differences hold together with 95 %", style.FACTOR if ratio else None
    return style.forest([part], inputs, note, label, words, none=1 if ratio else 0)
