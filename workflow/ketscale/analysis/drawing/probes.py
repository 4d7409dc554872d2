"""The figure of trainability: measures of random circuits against numbers of qubits and layers."""

from __future__ import annotations

from ketscale.analysis.drawing import plots, style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Axes, Drawing, pd
from ketscale.analysis.points import size_axes, variants

# By column of runs.csv: the label of its axis, and whether it is logarithmic.
MEASURES = {
    "gradient_square": ("mean squared gradient", True),
    "frame_1": ("frame potential / Haar's, t = 1", True),
    "frame_2": ("frame potential / Haar's, t = 2", True),
    "entanglement": ("entanglement Q", False),
}


def draw(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
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
        for title, part in plots.parts(of_axis[axis][of_axis[axis]["parameter"] == measure], inputs, "line")
    ]
    figure, grid = style.panels(len(panels), least=3.0)
    for axes, (axis, measure, title, part) in zip(grid, panels, strict=True):
        plots.curves(axes, part, axis, "effect", ("low", "high"))
        if axis == "qubits" or part["circuit_qubits"].nunique() == 1:
            _random(axes, axis, measure, part)
        style.title(axes, title)
        label, logarithmic = MEASURES[measure]
        axes.set(xlabel=size_axes(inputs.config)[axis].title, ylabel=label)
        style.values(axes, part[axis])
        if logarithmic:
            style.log_numbers(axes.yaxis)
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
