"""Strong and weak scaling: more workers at a fixed global batch, or at a fixed batch per worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ketscale.analysis import laws
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds import gains
from ketscale.analysis.kinds.kind import Answer, Figure
from ketscale.analysis.kinds.speed import Ratios, Reference, Speed, one_core
from ketscale.analysis.laws.drawing import draw_law
from ketscale.analysis.points import (
    HOLLOW,
    HOLLOW_RATIOS,
    Group,
    Point,
    Row,
    counted,
    point,
    serial,
    size_axes,
    variants,
    workers,
)
from ketscale.analysis.wording import digits
from ketscale.config import Config
from ketscale.grid import BACKENDS, LAYOUT, Run, Study, layout

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

# From this number of workers on, the axes are logarithmic to base 2.
DOUBLING = 8


class Scaling(Speed):
    """The number of ranks or threads grows.

    ratio: what `speedup_same` is called on the axis.
    """

    varies = "layout"
    ratio: str
    titles: str
    caption: str

    def __init__(self) -> None:
        self.figure = Figure(self.name, self.titles, self.caption, (self.name,), self.draw)

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame]:
        """The ratio to one worker with the ideal line, efficiency, and step time; one row of panels per study."""
        import matplotlib.pyplot as plt
        import pandas as pd

        studies = inputs.of(self.name)
        if not studies:
            return style.empty(inputs, inputs.asked(self.name))
        figure, grid = plt.subplots(
            len(studies), 3, figsize=(11.5, 3.3 * len(studies)), squeeze=False, layout="constrained"
        )
        for panels, (name, points) in zip(grid, studies, strict=True):
            self._study(tuple(panels), points, name, inputs)
        drawn = pd.concat([points for _, points in studies])
        note = (
            "Ratios: mean of pairs of the same seed with its 95 % interval (none below 3 seeds); times: median and range "
            "over seeds; diamonds, a little to the right: ratio to the best serial run on the same cores"
        )
        style.footnote(figure, drawn, inputs, [name for name, _ in studies], note)
        return figure, drawn

    def grows(self, points: pd.DataFrame, config: Config) -> dict[str, str]:
        """The sizes that grow along a line of a study, each with its range in words."""
        return {}

    def _study(
        self, panels: tuple[Axes, Axes, Axes], points: pd.DataFrame, name: str, inputs: Inputs
    ) -> None:
        counts = sorted(int(count) for count in points["workers"].unique())
        doubling = counts[-1] >= DOUBLING
        panels[0].plot(counts, counts, ls="--", color=style.FRAME, lw=1, label="ideal")
        panels[1].axhline(1, ls="--", color=style.FRAME, lw=1)
        grown = points["layout"].map(_grown)
        grown_sizes = self.grows(points, inputs.config)
        others = variants(points, inputs.config, but=("layout", "batch", *grown_sizes))
        curves = sorted(set(zip(grown, others, strict=True)))
        for number, (growing, other) in enumerate(curves):
            chosen = points[(grown == growing) & (others == other)].sort_values("workers")
            kind, variant = sorted(set(grown)).index(growing), sorted(set(others)).index(other)
            look = {
                "color": style.colour(kind),
                "ls": style.LINES[variant // len(style.MARKERS) % len(style.LINES)],
            }
            away = min(0.05, 0.24 / len(curves)) * (number - (len(curves) - 1) / 2)
            _curve(
                panels,
                chosen,
                _beside(chosen["workers"], away, counts, doubling),
                _beside(chosen["workers"], away + min(0.025, 0.12 / len(curves)), counts, doubling),
                ", ".join(filter(None, (growing, other))),
                look,
                style.MARKERS[variant % len(style.MARKERS)],
            )
            draw_law(panels[0], inputs.laws, chosen, look)
        panels[0].plot(
            [], [], ls="", marker="D", ms=5, mfc="white", mec=style.FRAME, label="over the best serial run"
        )
        labels = (f"{self.ratio} over one worker", "parallel efficiency (1 is ideal)", "time per step")
        for axes, label in zip(panels, labels, strict=True):
            axes.set(xlabel="workers (ranks x threads, or GPUs)", ylabel=label)
            if doubling:
                axes.set_xscale("log", base=2)
                axes.minorticks_off()
            axes.set_xticks(counts, [str(count) for count in counts])
            axes.margins(x=0.2)
            axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
        if doubling:
            panels[0].set_yscale("log", base=2)
            panels[0].set_ylim(
                points[["speedup_same", "speedup_best_serial"]].min().min() / 1.3, 1.3 * counts[-1]
            )
            panels[0].yaxis.set_major_formatter("{x:g}")
        panels[0].set_title(", ".join([name, *grown_sizes.values()]))
        panels[2].yaxis.set_major_formatter(style.seconds_or_zero)
        panels[2].legend(
            *panels[0].get_legend_handles_labels(), loc="center left", bbox_to_anchor=(1.02, 0.5)
        )


class Strong(Scaling):
    """Strong scaling, at a fixed global batch."""

    name = "strong"
    ratio = "speedup"
    titles = "Strong scaling"
    caption = (
        "Strong scaling: the global batch is fixed while the number of ranks or threads grows. Ratios pair runs of "
        "the same seed on the same kind of host. Diamonds compare with the fastest single process on the same cores."
    )

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require one global batch, and a run on one core as the baseline."""
        of_size: dict[str, set[int]] = {}
        for run in study.runs:
            # Where a larger batch needs a larger model, each size has its own.
            of_size.setdefault(run.size if config.family(run.workload).work else "", set()).add(run.batch)
        for batches in (sorted(found) for found in of_size.values() if len(found) > 1):
            yield f"strong scaling has one global batch, not {', '.join(map(str, batches))}; give one, or make it kind: weak"
        yield from one_core(study)

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """The best layout on each device, and the fastest of each."""
        found = super().answer(study, inputs)
        return replace(found, text=found.text + gains.devices(inputs.points(study.name), inputs))

    def ratios(self, ratio: Estimate, row: Row, reference: Reference) -> Ratios:
        """The speedup with its efficiency and serial fraction."""
        count = workers(row["backend"], row["ranks"], row["threads"])
        return Ratios(ratio, ratio.value / count, laws.karp_flatt(ratio.value, count))


class Weak(Scaling):
    """Weak scaling, at a fixed batch per worker."""

    name = "weak"
    ratio = "throughput"
    titles = "Weak scaling"
    caption = (
        "Weak scaling: the batch grows with the number of workers. Ideally a step takes the same time, so two "
        "workers have twice the throughput. Where a larger batch needs a larger model, the work of a sample grows "
        "too. Throughput and efficiency then count work instead of samples, and the step time is shown as measured."
    )

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require a batch in proportion to the workers, and a run on one core as the baseline.

        In families whose batch is not free, the size may differ too.
        """
        series: dict[tuple[Any, ...], dict[float, Run]] = {}
        for run in study.runs:
            size = ("size",) if config.family(run.workload).work else ()
            shares = series.setdefault(run.without("batch", *LAYOUT, *size), {})
            shares.setdefault(run.batch / workers(run.backend, run.ranks, run.threads), run)
            if len(shares) > 1:
                first, second = shares.values()
                yield (
                    "weak scaling keeps the batch per worker (batch / (ranks x threads), or batch / GPUs) the same, "
                    f"but batch {first.batch} on {first.layout} and {second.batch} on {second.layout} differ; "
                    "give each layout its batch in points"
                )
        yield from one_core(study)

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """The layout with the largest throughput, with its efficiency."""
        points = inputs.points(study.name)
        grown = self.grows(points, inputs.config) if len(points) else ()

        def cost(point: pd.Series) -> str:
            unit = f"{gains.device(point['layout'])}-seconds"
            efficiency = point["efficiency"]
            share = f"at an efficiency of {100 * efficiency:.0f} %"
            return f"{share}, so the same work costs {digits(1 / efficiency)} times the {unit}"

        says = "do {factor} times the work of {one} in the same time"
        return gains.answer(points, inputs, ("layout", "batch", *grown), says, cost)

    def reference(self, row: Row, asked: Sequence[Point], points: Mapping[Point, Group]) -> Reference | None:
        """One worker with its share of the batch; if that needs another size, in the one that is the most alike."""
        share = row["batch"] // workers(row["backend"], row["ranks"], row["threads"])
        wanted = {**row, "layout": serial(row["backend"]), "batch": share}
        if row["sample_work"] is None:
            return Reference.of(points.get(point(wanted)))
        sizes = set(row["size"].split("-"))
        alike = [
            group
            for group in points.values()
            if point({**wanted, "size": group[0]["size"]}) == point(group[0])
        ]
        return Reference.of(
            max(alike, key=lambda group: len(sizes & set(group[0]["size"].split("-"))), default=None)
        )

    def ratios(self, ratio: Estimate, row: Row, reference: Reference) -> Ratios:
        """The ratio t(1)/t(p) is the efficiency (Gustafson 1988); times the ratio of batches, that of throughput.

        Both are of samples; if the work of a sample differs, of work.
        """
        first = reference.group[0]
        work = row["sample_work"] / first["sample_work"] if row["sample_work"] is not None else 1
        factor = work * row["batch"] / first["batch"]
        throughput = ratio.times(factor)
        return Ratios(throughput, ratio.value * work)

    def grows(self, points: pd.DataFrame, config: Config) -> dict[str, str]:
        """In families whose batch is not free, the sizes that differ only between numbers of workers."""
        worked = points[[config.families[name].work is not None for name in points["family"]]]
        found = {}
        for name, axis in size_axes(config).items():
            low, high = worked[name].min(), worked[name].max()
            if low < high and (worked.groupby("workers")[name].nunique() == 1).all():
                found[name] = f"{low:.0f} to {counted(high, axis)}"
        return found


def _grown(text: str) -> str:
    """What grows along a line: the threads of one process, or the ranks of a backend (with their threads)."""
    where = layout(text)
    backend = BACKENDS[where["backend"]]
    if not backend.several_ranks:
        return f"{backend.title}, threads" if backend.device == "cpu" else backend.title
    extra = f", {where['threads']} threads each" if where["threads"] > 1 else ""
    # Ranks on one node and ranks on two nodes are two lines.
    nodes = f" on {where['nodes']} nodes" if where["nodes"] > 1 else ""
    return f"{backend.title}, ranks{nodes}{extra}"


def _beside(
    counts: pd.Series[int], away: float, all_counts: Sequence[int], doubling: bool
) -> pd.Series[float]:
    """Positions a little beside the counts of workers, so that equal points do not hide one another."""
    if doubling:
        return counts * 2.0 ** (2 * away)
    return counts + away * max(1, all_counts[-1] - all_counts[0])


def _curve(
    panels: tuple[Axes, Axes, Axes],
    points: pd.DataFrame,
    x: pd.Series[float],
    x_best: pd.Series[float],
    label: str,
    look: dict[str, Any],
    marker: str,
) -> None:
    """Draw one line in the three panels. Markers are hollow for busy or timed-out times, and their ratios."""
    hollow, ratio_hollow = points["flag"].isin(HOLLOW), points["flag"].isin(HOLLOW_RATIOS)
    colour = look["color"]
    for axes, column, low, high in (
        (panels[0], "speedup_same", "speedup_same_low", "speedup_same_high"),
        (panels[1], "efficiency", None, None),
        (panels[2], "step_s", "step_low_s", "step_high_s"),
    ):
        axes.plot(x, points[column], lw=1.5, alpha=0.6, **look)
        if low and high:
            axes.vlines(x, points[low], points[high], color=colour, lw=1.5)
        hollows = hollow if column == "step_s" else ratio_hollow
        for position, value, empty in zip(x, points[column], hollows, strict=True):
            style.dot(axes, position, value, colour, empty, marker=marker, ms=7, zorder=3)
    for position, value, empty in zip(x_best, points["speedup_best_serial"], ratio_hollow, strict=True):
        style.dot(
            panels[0], position, value, colour, empty, marker="D", ms=5, mec=style.FRAME, mew=0.8, zorder=4
        )
    panels[0].plot([], [], marker=marker, label=label, **look)


STRONG, WEAK = Strong(), Weak()
