"""What all kinds of studies of speed share: the rows of scaling.csv, one per point, with both speedups."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ketscale.analysis import parity, verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.comparison import Compared
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds.kind import Kind
from ketscale.analysis.points import (
    HOLLOW,
    MIXED,
    Group,
    Point,
    Row,
    failed,
    median,
    point,
    point_of,
    serial,
    size_axes,
    usable,
    workers,
)
from ketscale.grid import BACKENDS, POINT, Study

# The columns of an estimate, after its name.
PARTS = ("", "_low", "_high", "_n", "_outliers")
# The columns that are equal for points that do the same work.
WORK = tuple(name for name in POINT if name not in ("simulator", "layout", "protocol"))


@dataclass(frozen=True)
class Reference:
    """A point's baseline: all its runs, the median time of a step of those that count, and their flag."""

    group: Group
    step_s: float
    flag: str

    @classmethod
    def of(cls, group: Group | None) -> Reference | None:
        """The baseline that a point is; None without usable runs."""
        rows, flag = usable(group or ())
        return cls(group or (), statistics.median(row["step_s"] for row in rows), flag) if rows else None

    def name(self, row: Row) -> str:
        """Its layout, and those of its size, batch, simulator and protocol that differ from the point's."""
        first = self.group[0]
        others = [first["size"]] if first["size"] != row["size"] else []
        others += [f"b{first['batch']}"] if first["batch"] != row["batch"] else []
        others += [first[name] for name in ("simulator", "protocol") if first[name] != row[name]]
        return " ".join([first["layout"], *others])


# References by what `_work` says of them.
References = dict[tuple[Any, ...], list[Reference]]


@dataclass(frozen=True)
class Ratios:
    """A point's speedup over its baseline, with efficiency and serial fraction if its kind defines them."""

    speedup: Estimate | None
    efficiency: float | None = None
    karp_flatt: float | None = None


class Speed(Kind):
    """A kind of study that compares step times."""

    table = "scaling"

    def judge(self, found: Sequence[Compared]) -> list[str]:
        """The verdicts on the speedups of one study."""
        return verdicts.gains(found)

    def reference(self, row: Row, asked: Sequence[Point], points: Mapping[Point, Group]) -> Reference | None:
        """A point's baseline: the same simulator on one rank and one thread, or on one GPU."""
        return Reference.of(points.get(point({**row, "layout": serial(row["backend"])})))

    def ratios(self, ratio: Estimate, row: Row, reference: Reference) -> Ratios:
        """What the ratio t_baseline / t says about a point."""
        return Ratios(ratio)

    def compared(self, study: Study, group: Group, collected: Collected) -> Mapping[str, Any]:
        """What is compared, `varied`, and the point's `value` of it; and columns of this kind alone."""
        return {"varied": self.varies, "value": group[0][self.varies]}

    def rows(self, study: Study, collected: Collected) -> Iterator[Mapping[str, Any]]:
        """Every point of the study that has a record, with verdicts that hold for all of them together.

        Each class of hosts has rows of its own, `on`, if some point was measured on several.
        """
        for host in collected.hosts(study):
            yield from (
                {**row, "on": host} for row in self._measured(study, collected.on(host), collected.points)
            )

    def _measured(
        self, study: Study, collected: Collected, everywhere: Mapping[Point, Group]
    ) -> Iterator[Mapping[str, Any]]:
        seeds: dict[Point, set[int]] = {}
        for run in study.runs:
            seeds.setdefault(point_of(run), set()).add(run.seed)
        # What was measured elsewhere is not absent.
        for key, group in everywhere.items():
            if key in seeds:
                here = {row["seed"] for row in collected.points.get(key, ())}
                seeds[key] -= {row["seed"] for row in group} - here
        references = _serial_references(collected.points)
        found = [
            self._row(study, list(seeds), collected.points[key], references, collected, asked)
            for key, asked in seeds.items()
            if key in collected.points
        ]
        judged = iter(self.judge([compared for _, compared in found if compared]))
        yield from ({**row, "verdict": next(judged) if compared else ""} for row, compared in found)

    def _row(
        self,
        study: Study,
        asked: Sequence[Point],
        group: Group,
        references: References,
        collected: Collected,
        seeds: set[int],
    ) -> tuple[dict[str, Any], Compared | None]:
        """The row without its verdict, and the comparison that has one; None if the point is its own baseline."""
        group = sorted(group, key=lambda row: row["seed"])
        (used, flag), first, count = usable(group), group[0], workers(group[0]["layout"])
        typical = collected.times.typical(group)
        # No median of runs that are not comparable.
        alike = [] if typical.why else used
        time = median(row["step_s"] for row in alike)
        same = self.reference(first, asked, collected.points)
        compared, to_best, best = Compared(None), Compared(None), None
        if same:
            compared = collected.times.speedup(group, same.group)
        for best in _serial(first, references):
            to_best = collected.times.speedup(group, best.group)
            if not to_best.why:
                break
        else:
            best = None
        ratios = self.ratios(compared.ratio, used[0], same) if compared.ratio and same else Ratios(None)
        flags = [MIXED if typical.why else "", flag]
        flags += [f"{found.flag} reference" for found in (same, best) if found and found.flag]
        row = {
            "study": study.name,
            "kind": study.kind,
            **{name: first[name] for name in (*POINT, "family", *size_axes(collected.config), "features")},
            "workers": count,
            "step_s": time,
            "step_low_s": typical.ratio and typical.ratio.low,
            "step_high_s": typical.ratio and typical.ratio.high,
            "circuit_s": median(row["circuit_s"] for row in alike),
            "epoch_s": median(row["epoch_s"] for row in alike),
            "epoch_estimated": any(row["epoch_estimated"] for row in alike),
            "samples_per_s": time and used[0]["samples_per_s"] * used[0]["step_s"] / time,
            # Core-seconds, or GPU-seconds, of 1,000 samples.
            "cost_s": time and 1000 * count * time / first["batch"],
            "n": len(used),
            "timed_steps": min((row["step_count"] for row in used), default=0),
            "busy": sum(not row["quiet"] for row in group),
            "timed_out": sum(row["status"] == "timed_out" for row in group),
            "failed": sum(map(failed, group)),
            "absent": len(seeds - {row["seed"] for row in group}),
            "flag": next((text for text in flags if text), ""),
            "why": typical.why or compared.why,
            **_estimate("speedup_same", ratios.speedup),
            "same_reference": same.name(first) if same else "",
            **_estimate("speedup_best_serial", to_best.ratio),
            "best_serial_reference": best.name(first) if best else "",
            "efficiency": ratios.efficiency,
            "karp_flatt": ratios.karp_flatt,
            **self.compared(study, group, collected),
            "parity": collected.held.get(parity.subject(first), "not run"),
            "hardware": "; ".join(typical.hosts) or first["hardware"],
            "code": first["code"],
        }  # fmt: skip
        own = same is None or point(same.group[0]) == point(first)
        return row, None if own else replace(compared, ratio=ratios.speedup)


def _work(row: Row) -> tuple[Any, ...]:
    """What is equal for points that do the same work on the same hardware and kind of device.

    The same work means the same workload, model, size, global batch and precision. Cached and inline features are the
    same work, since they give the same numbers.
    """
    return (*(row[name] for name in (*WORK, "precision", "hardware")), serial(row["backend"]))


def _serial_references(points: Mapping[Point, Group]) -> References:
    """The timed single-process runs, with any simulator, by their work: looked for once, not by each point."""
    found: References = {}
    for group in points.values():
        first, reference = group[0], Reference.of(group)
        if reference and first["timed"] and not BACKENDS[first["backend"]].several_ranks:
            found.setdefault(_work(first), []).append(reference)
    return found


def _serial(row: Row, references: References) -> list[Reference]:
    """The single-process runs that do the same work on at most as many cores, the fastest first."""
    found = [
        reference
        for reference in references.get(_work(row), [])
        if workers(reference.group[0]["layout"]) <= workers(row["layout"])
    ]
    return sorted(found, key=lambda each: (each.flag in HOLLOW, each.step_s, point(each.group[0])))


def _estimate(name: str, found: Estimate | None) -> dict[str, Any]:
    values = (
        (found.value, found.low, found.high, found.n, found.outliers) if found else (None, None, None, 0, 0)
    )
    return {f"{name}{part}": value for part, value in zip(PARTS, values, strict=True)}


def one_core(study: Study) -> Iterator[str]:
    """Require a run on one core, the baseline."""
    if not any(run.ranks * run.threads == 1 for run in study.runs):
        yield f"a study of kind {study.kind} needs a run on one core to compare with; add backend: {serial(study.runs[0].backend)}"
