"""Figures of models: test results and learning curves, differences over data sets, adaptation, and random circuits."""

from __future__ import annotations

from collections.abc import Mapping

from ketscale.analysis import verdicts
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.style import Inputs
from ketscale.analysis.heavy import Axes, Drawing, pd
from ketscale.analysis.points import size_axes, variants
from ketscale.config import Config, Metric
from ketscale.grid import POINT

# By column of runs.csv: the label of its axis, and whether it is logarithmic.
MEASURES = {
    "gradient_square": ("mean squared gradient", True),
    "frame_1": ("frame potential / Haar's, t = 1", True),
    "frame_2": ("frame potential / Haar's, t = 2", True),
    "entanglement": ("entanglement Q", False),
}


def accuracy(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """Two panels for each data set: test results, and each seed's validation metric by epoch."""
    models = chosen(inputs)
    if models.empty:
        return None
    panels = list(style.parts(models, inputs, "line"))
    figure, grid = style.panels(2 * len(panels), least=3)
    shown = ["n", "value", "value_low", "value_high", "chance", "baseline", "baseline_value"]
    drawn = [models[["workload", "metric", "line", *shown]]]
    for (title, part), results, learning in zip(panels, grid[::2], grid[1::2], strict=True):
        metric = inputs.config.family(str(part["workload"].iloc[0])).headline
        ordered = part.sort_values(["value", "line"], ascending=[metric.better == "down", True])
        colours = style.colours(ordered["line"])
        _results(results, ordered, metric, colours)
        style.title(results, title)
        epochs = of_data(inputs.history, inputs.config).merge(
            ordered[[*POINT, "metric", "line"]], on=list(POINT)
        )
        epochs["validation"] = epochs.get(f"validation_{metric.name}", float("nan"))
        _learning(learning, epochs, metric, colours)
        drawn.append(epochs[["workload", "metric", "line", "seed", "epoch", "validation"]])
    style.footnote(figure, models, inputs)
    return figure, pd.concat(drawn)


def chosen(inputs: Inputs) -> pd.DataFrame:
    """The chosen configurations with a test result, with the name of each as `line`."""
    rows = inputs.quality[inputs.quality["value"].notna() & inputs.quality["row"].isna()]
    rows = rows[rows["chosen"].astype(bool)].reset_index(drop=True)
    names = [variants(part, inputs.config, ("workload",)) for _, part in rows.groupby("workload")]
    line = pd.concat(names) if names else pd.Series(dtype=str)
    return rows.assign(line=line.where(line != "", rows["model"]), hollow=rows["failed"] > 0)


def of_data(runs: pd.DataFrame, config: Config) -> pd.DataFrame:
    """Runs of several splits of the same data as runs of these data, each with a seed of its own name."""
    data = runs["workload"].map(config.data)
    seeds = runs["seed"].where(data == runs["workload"], runs["seed"].astype(str) + " of " + runs["workload"])
    return runs.assign(workload=data, seed=seeds)


def _results(axes: Axes, models: pd.DataFrame, metric: Metric, colours: Mapping[str, str]) -> None:
    """The test metric of each model with its interval; the best is at the top."""
    ends = {"low": models["value_low"], "high": models["value_high"]}
    words = models["value"].map("{:.3g}".format)
    style.rows(
        axes, models.assign(name=models["line"], words=words, colour=models["line"].map(colours), **ends)
    )
    marks = dict(zip(models["baseline"].dropna(), models["baseline_value"].dropna(), strict=True))
    marks |= {"guessing": models["chance"].mean()} if metric.is_share else {}
    label = f"test {metric.title}" + (f" ({metric.unit})" if metric.unit else "")
    for name, at in marks.items():
        # Far below all results it would hide their differences.
        if not metric.is_share or at > models["value_low"].min() - 0.1:
            axes.axvline(at, color=style.SOFT, lw=1, ls=":")
            label += f"\ndotted: {name}, {at:.3g}"
    style.log_metric(axes.xaxis, metric, models["value"])
    axes.set_xlabel(label)


def _learning(axes: Axes, epochs: pd.DataFrame, metric: Metric, colours: Mapping[str, str]) -> None:
    """The seeds' validation metric by epoch, as measured; a dot is the end of a seed's training."""
    epochs = epochs.dropna(subset="validation").sort_values(["line", "seed", "epoch"])
    for _, seed in epochs.groupby(["line", "seed"]):
        last = seed.iloc[-1]
        axes.plot(seed["epoch"], seed["validation"], lw=0.9, alpha=0.6, color=colours[last["line"]])
        axes.scatter(last["epoch"], last["validation"], 6, color=colours[last["line"]])
    style.log_metric(axes.yaxis, metric, epochs["validation"])
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="epoch", ylabel=f"validation {metric.title}")
    style.legend(axes, colours)


def comparison(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """The differences of the data sets with what is typical of them."""
    rows = inputs.quality[inputs.quality["effect"].notna() & inputs.quality["verdict"].notna()]
    if (rows["row"].isna()).sum() == 1:
        # One data set alone is the whole.
        rows = rows[rows["row"].isna()]
    if rows.empty or len(rows) > 60:
        return None
    rows = rows.sort_values(["row", "workload", "size"], na_position="first")
    colours = {verdicts.BETTER: style.PALETTE[0], verdicts.WORSE: style.PALETTE[1]}
    drawn = rows.assign(
        value=rows["effect"],
        hollow=False,
        colour=rows["verdict"].map(colours).fillna(style.SOFT),
        name=rows["point"],
        words=style.effects(rows),
    )
    figure, (axes,) = style.panels(1, height=style.ROW * len(rows) + 0.7)
    style.rows(axes, drawn)
    ratio = (rows["unit"] == "times").all()
    axes.axvline(1 if ratio else 0, ls="--", color=style.FRAME, lw=1, zorder=0)
    if ratio:
        style.logarithmic(axes.xaxis, "{:.3g}x".format)
    metric = inputs.config.family(inputs.config.studies[0].runs[0].workload).headline
    over = "over control" if ratio else "less control (points)"
    axes.set(title="Difference by data set", xlabel=f"test {metric.title} of model {over}")
    style.footnote(
        figure, rows[rows["row"].isna()], inputs, "Intervals of differences hold together with 95 %"
    )
    return figure, rows


def probes(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """The gradient against each size that varies, and the other measures against the first of these."""
    points = inputs.fits[inputs.fits["law"] == "probe"]
    if points.empty:
        return None
    points = points.assign(hollow=points["failed"] > 0)
    of_axis = {}
    for name in ("qubits", "layers"):
        named = points.assign(line=variants(points, inputs.config, (name, "workload", "batch", "layout")))
        # Models may differ in a size that no line varies.
        if name in points and named.groupby(["workload", "line"])[name].nunique().max() > 1:
            of_axis[name] = named
    if not of_axis:
        return None
    first, *others = of_axis
    asked = [*((first, measure) for measure in MEASURES), *((axis, "gradient_square") for axis in others)]
    panels = [
        (axis, measure, title, part)
        for axis, measure in asked
        for title, part in style.parts(of_axis[axis][of_axis[axis]["parameter"] == measure], inputs, "line")
    ]
    figure, grid = style.panels(len(panels), least=3.0)
    for axes, (axis, measure, title, part) in zip(grid, panels, strict=True):
        style.curves(axes, part, axis, "effect", ("low", "high"))
        if axis == "qubits" or part["circuit_qubits"].nunique() == 1:
            _random(axes, axis, measure, part)
        style.title(axes, title)
        label, logarithmic = MEASURES[measure]
        axes.set(xlabel=size_axes(inputs.config)[axis].title, ylabel=label)
        style.values(axes, part[axis])
        if logarithmic:
            style.logarithmic(axes.yaxis)
        else:
            axes.set_ylim(-0.03, 1.03)
    style.footnote(figure, points, inputs, "Intervals are over seeds (none below 3)")
    return figure, of_axis[first]


def _random(axes: Axes, axis: str, measure: str, points: pd.DataFrame) -> None:
    """A dotted line of what random unitaries and states have."""
    from ketscale.engines.circuits import haar

    of = {"gradient_square": haar.gradient, "entanglement": haar.meyer_wallach}.get(
        measure, lambda qubits: 1.0
    )
    known = points.drop_duplicates(axis).sort_values(axis)
    heights = [of(int(qubits)) for qubits in known["circuit_qubits"]]
    axes.plot(known[axis], heights, color=style.SOFT, lw=1, ls=":", zorder=1)
