"""Strong and weak scaling: more workers at a fixed global batch, or at a fixed batch per worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ketscale.analysis import laws
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.drawing.workers import draw, way
from ketscale.analysis.heavy import Drawing, pd
from ketscale.analysis.kinds import gains
from ketscale.analysis.kinds.gains import Entry
from ketscale.analysis.kinds.speed import Speed, one_core
from ketscale.analysis.points import (
    HOLLOW,
    Group,
    Point,
    Row,
    point,
    serial,
    size_axes,
    variants,
    workers,
)
from ketscale.analysis.wording import device, digits, listed, samples
from ketscale.config import Config
from ketscale.grid import LAYOUT, Run, Study
from ketscale.words import duration


class Scaling(Speed):
    """The number of ranks or threads grows."""

    varies = "layout"

    def along(self, points: pd.DataFrame, config: Config) -> list[str]:
        """The columns besides the layout that grow along a line of a study."""
        return []

    def shares(self, speedup: float, count: int) -> Mapping[str, float | None]:
        """The efficiency."""
        return {"efficiency": speedup / count}

    def entries(self, study: str, inputs: Inputs) -> list[Entry]:
        """The points beside one worker, with the cost of 1,000 samples and the efficiency."""
        points = gains.points(study, inputs)

        def more(point: pd.Series) -> dict[str, str]:
            cells = {}
            if point["cost_s"] > 0:
                heading = f"{device(point['layout'])}-seconds for 1,000 {samples(points, inputs.config)}"
                cells[heading] = digits(point["cost_s"])
            if point["workers"] > 1 and point["efficiency"] > 0:
                cells["efficiency"] = f"{100 * point['efficiency']:.0f} %"
            return cells

        return gains.with_one(points, inputs, more, self.along(points, inputs.config))

    def notes(self, rows: Sequence[Entry], inputs: Inputs) -> Iterator[str]:
        """The law of each line, and the fastest quiet layout of each device if there are several."""
        timed = gains.points(rows[0].point["study"], inputs)
        grown = ("layout", *self.along(timed, inputs.config))
        lines = timed["layout"].map(way) + variants(timed, inputs.config, grown).map(
            lambda more: more and f", {more}"
        )
        for line, part in timed[timed["step_s"].notna()].groupby(lines):
            if part["workers"].max() > 1 and (found := laws.of_line(inputs.laws, part)):
                law, values = found
                fitted = [f"{name} {value:.2g}" for name, value in zip(law.parameters, values, strict=True)]
                yield f"{line}: {law.name}'s law with {listed(fitted)}."
        fastest: dict[str, str] = {}
        known = (each for each in rows if each.point["step_s"] > 0 and each.point["flag"] not in HOLLOW)
        for each in sorted(known, key=lambda each: each.point["step_s"]):
            told = f"{each.told.point} {duration(each.point['step_s'])}"
            fastest.setdefault(device(each.point["layout"]), told)
        if len(fastest) > 1:
            yield f"The fastest step of each device: {listed(fastest.values())}."

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
        """Times and speedups against the workers."""
        asked = inputs.asked(self.name)
        return draw(inputs, asked, self.axis, self.along(inputs.points(*asked), inputs.config))


class Strong(Scaling):
    """Strong scaling, at a fixed global batch."""

    name = "strong"
    axis = "speedup over one worker"
    title = "Strong scaling"
    caption = (
        "Strong scaling: the global batch is fixed while the number of ranks or threads grows. Ratios pair runs of "
        "the same seed on the same kind of host."
    )

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require one global batch, and a run on one core as the baseline."""
        of_size: dict[str, set[int]] = {}
        for run in study.runs:
            # If a larger batch needs a larger model, each size has its own.
            of_size.setdefault(run.size if config.family(run.workload).work else "", set()).add(run.batch)
        for batches in (sorted(found) for found in of_size.values() if len(found) > 1):
            yield f"strong scaling has one global batch, not {', '.join(map(str, batches))}; give one, or make it kind: weak"
        yield from one_core(study)

    def shares(self, speedup: float, count: int) -> Mapping[str, float | None]:
        """The efficiency and the serial fraction."""
        return {**super().shares(speedup, count), "karp_flatt": laws.karp_flatt(speedup, count)}


class Weak(Scaling):
    """Weak scaling, at a fixed batch per worker."""

    name = "weak"
    axis = "throughput over one worker"
    what = "the same work"
    title = "Weak scaling"
    caption = (
        "Weak scaling: the batch grows with the number of workers. Ideally a step takes the same time, so two "
        "workers have twice the throughput. Where a larger batch needs a larger model, the work of a sample grows "
        "too. Throughput then counts work instead of samples."
    )

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require a batch in proportion to the workers, and a run on one core as the baseline.

        In families whose batch is not free, the size may differ too.
        """
        series: dict[tuple[Any, ...], dict[float, Run]] = {}
        for run in study.runs:
            size = ("size",) if config.family(run.workload).work else ()
            shares = series.setdefault(run.without("batch", *LAYOUT, *size), {})
            shares.setdefault(run.batch / workers(run.layout), run)
            if len(shares) > 1:
                first, second = shares.values()
                yield (
                    "weak scaling keeps the batch per worker (batch / (ranks x threads), or batch / GPUs) the same, "
                    f"but batch {first.batch} on {first.layout} and {second.batch} on {second.layout} differ; "
                    "give each layout its batch in points"
                )
        yield from one_core(study)

    def reference(self, row: Row, asked: Sequence[Point], points: Mapping[Point, Group]) -> Group | None:
        """One worker with its share of the batch; if that needs another size, in the one that is the most alike."""
        share = row["batch"] // workers(row["layout"])
        wanted = {**row, "layout": serial(row["backend"]), "batch": share}
        if row["sample_work"] is None:
            return points.get(point(wanted))
        sizes = set(row["size"].split("-"))
        alike = [
            group
            for group in points.values()
            if point({**wanted, "size": group[0]["size"]}) == point(group[0])
        ]
        return max(alike, key=lambda group: len(sizes & set(group[0]["size"].split("-"))), default=None)

    def factor(self, row: Row, reference: Row) -> float:
        """The ratio t(1)/t(p) is the efficiency (Gustafson 1988); times the ratio of batches, that of throughput.

        Both are of samples; if the work of a sample differs, of work.
        """
        work = row["sample_work"] / reference["sample_work"] if row["sample_work"] is not None else 1
        return float(work * row["batch"] / reference["batch"])

    def along(self, points: pd.DataFrame, config: Config) -> list[str]:
        """The batch, and in families whose batch is not free the sizes that differ only between numbers of workers."""
        names = {name for name in points["family"] if config.families[name].work is not None}
        worked = points[points["family"].isin(names)]
        grown = [
            name
            for name in size_axes(config)
            if worked[name].min() < worked[name].max()
            and (worked.groupby("workers")[name].nunique() == 1).all()
        ]
        return ["batch", *grown]


STRONG, WEAK = Strong(), Weak()
