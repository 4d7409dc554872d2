"""Trainability: how gradients, states and entanglement of random circuits change with the number of qubits and layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ketscale.analysis import comparability, metrics, verdicts
from ketscale.analysis.drawing import plots, style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Axes, Drawing, np, pd, special
from ketscale.analysis.intervals import FEWEST, LEVEL, Estimate, exceeded
from ketscale.analysis.kinds.kind import Answer, Kind, Told
from ketscale.analysis.points import counted, size_axes, variants
from ketscale.analysis.wording import SHORT, digits, fitting
from ketscale.config import Config
from ketscale.engines.circuits import haar
from ketscale.engines.circuits.settings import CIRCUIT_SIZES, CircuitSimulator
from ketscale.grid import POINT, Study

# A factor per qubit or layer that is nearer to 1 counts as none.
LEVELLED = 1 / verdicts.WORTH
# What sentences say of a verdict.
SAID = {
    verdicts.FALLS: "it falls",
    verdicts.FALLS_NOT: "it does not fall",
    verdicts.NO_FALL: "there is no clear fall",
    verdicts.FEW: verdicts.FEW,
}
# Columns of runs.csv, with the label of their axis, whether it is logarithmic, and what random unitaries and states of some
# qubits have.
MEASURES: Mapping[str, tuple[str, bool, Callable[[int], float]]] = {
    "gradient_square": ("mean squared gradient", True, haar.gradient),
    "frame_1": ("frame potential / Haar's, t = 1", True, lambda qubits: 1.0),
    "frame_2": ("frame potential / Haar's, t = 2", True, lambda qubits: 1.0),
    "entanglement": ("entanglement Q", False, haar.meyer_wallach),
}
# The measures that a row tells, by headings, with how they are written.
CELLS = {
    "squared gradient": ("gradient_square", ".2g"),
    "frame potential (t = 2)": ("frame_2", ".2g"),
    "entanglement": ("entanglement", ".2f"),
}


@dataclass(frozen=True)
class Decay:
    """How a line's mean squared gradient changes along an axis.

    line: in words. axis: a size. points: of the line. factor: with each further qubit or layer. p_value: of the F-test of lack of fit of one factor for the whole range; None where nothing can tell. why: what stands in the
    way of comparing its runs, so that there is no factor. verdict: what the interval says, all lines of the study together.
    """

    line: str
    axis: str
    points: pd.DataFrame
    factor: Estimate | None
    p_value: float | None
    why: str = ""
    verdict: str = ""

    @property
    def undecided(self) -> str:
        """Why no interval decides, as a verdict; '' if one may."""
        return verdicts.APART if self.factor is None else verdicts.FEW if self.factor.low is None else ""

    def decide(self, level: float) -> str | None:
        """The verdict of the factor's interval at a level; None of neither."""
        if self.factor is None:
            return None
        return verdicts.beyond(self.factor, level, LEVELLED, LEVELLED, verdicts.FALLS_NOT, verdicts.FALLS)

    @property
    def bent(self) -> bool:
        """Whether one factor does not describe the whole range."""
        return self.p_value is not None and self.p_value < 1 - LEVEL


class Trainability(Kind):
    """Probes of several numbers of qubits or layers."""

    name = "trainability"
    title = "Gradients, states and entanglement over random weights"
    caption = (
        "The mean squared derivative of an expectation value by an angle that it depends on (with uniform weights its "
        "variance), frame potentials of the final states over those of Haar-random ones, and Meyer and Wallach's "
        "entanglement: means over seeds with 95 % intervals. Dotted: random unitaries and states."
    )

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require probes of circuits, and several sizes."""
        for run in study.runs:
            if config.protocols[run.protocol].probe is None:
                yield f"trainability needs a protocol with probe, and {run.protocol} trains; give it probe: {{weights: uniform}}"
            # A model in a file may make its circuit without one.
            simulator = config.simulators.get(run.simulator)
            if simulator is not None and not isinstance(simulator, CircuitSimulator):
                yield f"trainability is about circuits, and {run.model} with simulator {run.simulator} evaluates none; leave it out"
        if len({run.size for run in study.runs}) < 2:
            yield "a study of kind trainability compares several numbers of qubits or layers; give a list of them"

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """The line whose gradient falls fastest with each qubit, or with each layer if no line has several qubits."""
        points = _points(inputs, study.name)
        axes = () if points.empty else CIRCUIT_SIZES
        found = [each for axis in axes for each in _decays(points, axis.name, inputs)]
        if not found:
            text = "Nothing has been probed with one seed at several sizes yet."
            return Answer(text, verdicts.OPEN, short="Not probed yet")
        words = iter(verdicts.holm([each.decide for each in found if not each.undecided]))
        found = [replace(each, verdict=each.undecided or next(words) or verdicts.NO_FALL) for each in found]
        rows, notes = tuple(map(_told, found)), tuple(_notes(found))
        known = [(each.factor, each) for each in found if each.factor is not None]
        if not known:
            text = f"No probes can be compared: {found[0].why}."
            return Answer(text, verdicts.APART, short="Not comparable", rows=rows, notes=notes)
        first = known[0][1].axis
        factor, lead = min(
            (each for each in known if each[1].axis == first), key=lambda each: (each[0].value, each[1].line)
        )
        one, number = first.removesuffix("s"), digits(factor.value)
        ends = [digits(end) for end in (factor.low, factor.high) if end is not None]
        between = f" ({' to '.join(ends)})" if ends else ""
        probes = {inputs.config.protocols[name].probe for name in points["protocol"]}
        drawn = {probe.weights for probe in probes if probe}
        start = f"With {drawn.pop()} weights each {one}" if len(drawn) == 1 else f"Each {one}"
        among, said_of = f" of {lead.line}" if lead.line else "", SAID[lead.verdict]
        text = fitting(
            *(
                f"{start} leaves {number}{interval} of the squared gradient{of}: {said_of}."
                for interval, of in ((between, among), ("", among), (between, ""))
            )
        )
        short = fitting(
            *(f"Each {one} leaves {number} of the squared gradient{of}" for of in (among, "")), limits=SHORT
        )
        of = f"squared gradient with each {one} more{among}"
        return Answer(text, lead.verdict, of, factor, "times", short, rows, notes)

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
        """The gradient against each size that varies, and the other measures against the first of these."""
        points = _points(inputs, *inputs.asked(self.name))
        known = () if points.empty else CIRCUIT_SIZES
        named = {axis.name: points.assign(line=_lines(points, axis.name, inputs)) for axis in known}
        # Models may differ in a size that no line varies.
        axes = [
            axis
            for axis in known
            if named[axis.name].groupby(["workload", "line"])[axis.name].nunique().max() > 1
        ]
        if not axes:
            return None
        panels = [(axis, "gradient_square") for axis in axes] + [
            (axes[0], name) for name in MEASURES if name != "gradient_square"
        ]
        drawn = [
            (axis, measure, title, part)
            for axis, measure in panels
            for title, part in plots.parts(named[axis.name], inputs, "line")
        ]
        figure, grid = style.panels(len(drawn), least=3.0)
        for panel, (axis, measure, title, part) in zip(grid, drawn, strict=True):
            _panel(panel, axis.name, axis.title, measure, part)
            panel.set_title(title)
        note = "Intervals are over seeds (none below 3)"
        style.footnote(figure, points, inputs, inputs.asked(self.name), note)
        return figure, named[axes[0].name].drop(columns=["squares", "keys"])


TRAINABILITY = Trainability()


def _points(inputs: Inputs, *studies: str) -> pd.DataFrame:
    """The probed points of some studies, each with the means of its measures over seeds, and their seeds' squares."""
    rows = []
    for study in inputs.config.studies:
        for group in inputs.collected.groups(study) if study.name in studies else ():
            done = [row for row in group if row["gradient_square"] is not None]
            if not done:
                continue
            made = {
                name: done[0][name]
                for name in (*POINT, *size_axes(inputs.config), "hardware", "code", "circuit_qubits")
            }
            keys = {comparability.quality(row) for row in done}
            joined = [] if comparability.hindrance(keys) else done
            for name in MEASURES:
                values = [row[name] for row in joined]
                found = metrics.over_seeds(values, positive=False) if values else None
                ends = (None, None, None) if found is None else (found.value, found.low, found.high)
                made |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
            squares = {row["seed"]: row["gradient_square"] for row in done}
            rows.append(
                {**made, "n": len(done), "squares": squares, "keys": keys, "hollow": len(done) < len(group)}
            )
    numbers = {f"{name}{end}": float for name in MEASURES for end in ("", "_low", "_high")}
    return pd.DataFrame(rows).astype(numbers) if rows else pd.DataFrame()


def _lines(points: pd.DataFrame, axis: str, inputs: Inputs) -> pd.Series[str]:
    """What each point is beside its data and its value on an axis."""
    return variants(points, inputs.config, (axis, "workload", "batch", "layout"))


def _decays(points: pd.DataFrame, axis: str, inputs: Inputs) -> Iterator[Decay]:
    """The decay of each line that has several values on an axis."""
    named = points.assign(line=_lines(points, axis, inputs))
    several = points["workload"].nunique() > 1
    for (workload, line), group in named.groupby(["workload", "line"], sort=True):
        if group[axis].nunique() > 1:
            words = ", ".join(filter(None, (str(line), str(workload) if several else "")))
            if found := _decay(words, axis, group.sort_values(axis)):
                yield found


def _decay(line: str, axis: str, points: pd.DataFrame) -> Decay | None:
    """The decay of a line, if its points have a seed in common; without a factor, if some have no gradient at all.

    The factor of each seed is that of the least squares of the logarithms; the estimate is their geometric mean.
    Its interval is Student's over seeds, or that of the line through their means where this is wider: seeds that have a
    sample in common with all sizes say nothing of how far the points are from a line. The test of lack of fit compares the
    residuals of the means with the pure error (Draper & Smith, Applied Regression Analysis, 1998, 2.1; seeds are blocks).
    """
    if why := comparability.hindrance(key for keys in points["keys"] for key in keys):
        return Decay(line, axis, points, None, None, why)
    seeds = sorted(set.intersection(*map(set, points["squares"])))
    table = np.array([[squares[seed] for seed in seeds] for squares in points["squares"]], dtype=float).T
    if not seeds:
        return None
    if (table <= 0).any():
        return Decay(line, axis, points, None, None, "of some size no observable depends on any angle")
    logs, at = np.log(table), points[axis].to_numpy(float)
    apart = at - at.mean()
    slopes = logs @ apart / (apart @ apart)
    (n, m), slope = logs.shape, float(slopes.mean())
    if n < FEWEST:
        return Decay(line, axis, points, Estimate(math.exp(slope), None, None, n), None)
    tail, p_value = (1 - LEVEL) / 2, None
    half = exceeded(tail, n - 1) * float(slopes.std(ddof=1)) / math.sqrt(n)
    if m > 2:
        centre = logs.mean(0)
        missed = float(((centre - centre.mean() - slope * apart) ** 2).sum()) / (m - 2)
        half = max(half, exceeded(tail, m - 2) * math.sqrt(missed / float(apart @ apart)))
        pure = logs - centre - logs.mean(1, keepdims=True) + logs.mean()
        variance = float((pure**2).sum()) / ((m - 1) * (n - 1))
        p_value = (
            float(special.fdtrc(m - 2, (m - 1) * (n - 1), n * missed / variance)) if variance > 0 else None
        )
    ends = math.exp(slope - half), math.exp(slope + half)
    return Decay(line, axis, points, Estimate(math.exp(slope), *ends, n), p_value)


def _told(found: Decay) -> Told:
    """A line's row: the decay, and the measures at its ends."""
    first, last = found.points.iloc[0], found.points.iloc[-1]
    axis = next(axis for axis in CIRCUIT_SIZES if axis.name == found.axis)
    more = {"from": counted(first[found.axis], axis), "to": counted(last[found.axis], axis)}
    for heading, (measure, form) in CELLS.items():
        ends = first[measure], last[measure]
        # Runs that are not comparable have no mean.
        if not any(map(math.isnan, ends)):
            more[heading] = " to ".join(f"{end:{form}}" for end in ends)
    name = f"{found.line or last['model']}, with each {found.axis.removesuffix('s')}"
    return Told(name, "", found.factor, "times", found.verdict, more)


def _notes(found: Sequence[Decay]) -> Iterator[str]:
    """What cannot be compared, and what one factor does not describe."""
    for each in found:
        name = each.line or each.points["model"].iloc[0]
        if each.why:
            yield f"{name}, {each.axis}: its runs cannot be compared ({each.why})."
        if each.bent:
            yield (
                f"{name}, {each.axis}: one factor does not describe the whole range "
                f"(F-test of lack of fit, p = {each.p_value:.2g}), so that it says nothing of what is beyond."
            )
    yield "No number here says how well a model trains: see what each does not mean in the documentation."


def _panel(axes: Axes, axis: str, title: str, measure: str, part: pd.DataFrame) -> None:
    """One measure against one size, with what random unitaries have."""
    label, logarithmic, random = MEASURES[measure]
    ends = plots.curves(axes, part, axis, measure, (f"{measure}_low", f"{measure}_high"))
    reference = part.drop_duplicates(axis).sort_values(axis)
    if axis == "qubits" or part["circuit_qubits"].nunique() == 1:
        heights = [random(int(qubits)) for qubits in reference["circuit_qubits"]]
        axes.plot(reference[axis], heights, color=style.SOFT, lw=1, ls=(0, (1, 2)), zorder=1)
    axes.set(xlabel=title, ylabel=label, xticks=sorted(set(part[axis])))
    axes.xaxis.set_major_formatter("{x:g}")
    if logarithmic:
        style.log_numbers(axes.yaxis)
    else:
        axes.set_ylim(-0.03, 1.03)
    style.name_lines(axes, ends)
