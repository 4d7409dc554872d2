"""Changes, one at a time: what each does to the time of a step and of a sample, and to the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ketscale.analysis.collected import Collected
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import pd
from ketscale.analysis.kinds import gains
from ketscale.analysis.kinds.gains import Entry
from ketscale.analysis.kinds.speed import Speed
from ketscale.analysis.points import Group, Point, Row, point_of, usable
from ketscale.config import TOLERANCE, Config
from ketscale.grid import POINT, Run, Study
from ketscale.measure import parity

BASELINE = "baseline"


class Changes(Speed):
    """The first point of a study is its baseline; each other point differs from it in one axis."""

    name = "changes"

    title = "One change at a time"
    caption = (
        "What one change at a time does to the time of a sample, and whether the first losses remain those of the "
        "baseline. A change of batch, workload or model is other work, whose losses say nothing."
    )
    what, axis = "a sample", "speed of a sample beside the baseline"
    empty = "the baseline has not finished"

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require a baseline, and points that differ from it in one axis and have a seed of it."""
        first = study.runs[0]
        seeds: dict[Point, list[Run]] = {}
        for run in study.runs:
            seeds.setdefault(point_of(run), []).append(run)
        if len(seeds) < 2:
            yield "a study of kind changes compares points with its first one, but has no other; give it more"
        for runs in seeds.values():
            axes = [name for name in POINT if getattr(runs[0], name) != getattr(first, name)]
            if len(axes) > 1:
                told = ", ".join(
                    f"{name} {getattr(first, name)} -> {getattr(runs[0], name)}" for name in axes
                )
                yield f"each point must differ from the first one in one axis, and one of them in {told}; make them points each"
            if not {run.seed for run in runs} & {run.seed for run in seeds[point_of(first)]}:
                yield f"{runs[0].name} has no seed in common with the first point, so there is no ratio; give it one"

    def reference(self, row: Row, asked: Sequence[Point], points: Mapping[Point, Group]) -> Group | None:
        """The study's first point."""
        return points.get(asked[0])

    def factor(self, row: Row, reference: Row) -> float:
        """How many times as many samples a step has, so that the speedup is that of a sample."""
        samples, others = (each["samples_per_s"] * each["step_s"] for each in (row, reference))
        return float(samples / others)

    def compared(self, study: Study, group: Group, collected: Collected) -> Mapping[str, Any]:
        """The change, and the largest relative difference of the first losses from the baseline's of the same seed."""
        base, records = study.runs[0], collected.records
        bases = {row["seed"]: Run.of(row) for row in usable(collected.points.get(point_of(base), ()))[0]}
        pairs = [(Run.of(row), bases[row["seed"]]) for row in usable(group)[0] if row["seed"] in bases]
        found = [parity.between((run, records[run]), (other, records[other])) for run, other in pairs]
        varied, value = change(collected.config, base, Run.of(group[0]))
        return {
            "varied": varied,
            "value": value,
            "difference": max((apart for apart in found if apart is not None), default=None),
        }

    def entries(self, study: str, inputs: Inputs) -> list[Entry]:
        """Every change beside the baseline, by the time of a sample, in the study's order; none without the baseline."""
        points = inputs.scaling[(inputs.scaling["study"] == study) & inputs.scaling["varied"].notna()]
        first = points["varied"] == BASELINE
        if not first.any():
            return []
        words = (points["varied"] + " " + points["value"]).str.replace("->", "→")
        points = points.assign(
            name=words.mask(first, BASELINE), beside=first.map({True: "", False: "the baseline"})
        )
        return gains.entries(points, gains.FASTER, lambda point: {"losses": _numbers(point)})


def change(config: Config, base: Run, run: Run) -> tuple[str, str]:
    """In what a run differs from the baseline's, and how, such as ('batch', '4 -> 1'). They differ in one axis at most.

    It is an axis, a size, or the one setting in which two blocks of the config differ; of the baseline, `BASELINE`.
    """
    axis = next((name for name in POINT if getattr(base, name) != getattr(run, name)), None)
    if axis is None:
        return BASELINE, base.simulator
    name, before, after = axis, getattr(base, axis), getattr(run, axis)
    one, other = (_content(config, each, axis) for each in (base, run))
    differing = [setting for setting in {**one, **other} if one.get(setting) != other.get(setting)]
    if len(differing) == 1:
        (name,) = differing
        before, after = one.get(name), other.get(name)
    return name, f"{_word(before)} -> {_word(after)}"


def _content(config: Config, run: Run, axis: str) -> dict[str, Any]:
    """The settings of the block that an axis of a run names, or its sizes. The tolerance follows from the others."""
    if axis == "size":
        return config.sizes(run)
    if axis == "simulator" and run.simulator in config.simulators:
        content = config.simulators[run.simulator].content()
        return {name: value for name, value in content.items() if name != TOLERANCE}
    if axis == "protocol":
        return config.protocols[run.protocol].content()
    if axis in ("workload", "model"):
        kind, block = (config.workloads if axis == "workload" else config.models)[getattr(run, axis)]
        content = block.content()
        # The settings of a model in a file are among its own.
        free = content.pop("settings", {})
        return {"kind": kind, **content, **free}
    return {}


def _word(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _numbers(row: pd.Series) -> str:
    """Whether the losses are those of the baseline."""
    if row["varied"] == BASELINE:
        return ""
    difference = row["difference"]
    if difference != difference:
        return "other work"
    if not difference:
        return "same numbers, bitwise"
    same = difference <= parity.ACROSS_SIMULATORS
    return f"same numbers (to {difference:.0e})" if same else f"losses differ by {difference:.1e}"


CHANGES = Changes()
