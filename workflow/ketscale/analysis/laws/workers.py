"""Laws of strong and weak scaling along the series of a study: the ranks of a backend, or the threads of a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ketscale.analysis.collected import Collected
from ketscale.analysis.laws.known import AMDAHL, GUSTAFSON, USL
from ketscale.analysis.laws.law import Fit, Law
from ketscale.analysis.laws.series import Place, Series, grows, size_of
from ketscale.analysis.points import Group, Row, point, serial, workers
from ketscale.grid import BACKENDS, Study

# What the points of a series share.
SAME = ("workload", "model", "size", "simulator", "protocol")
# By the kind of study.
LAWS: dict[str, tuple[Law, ...]] = {"strong": (AMDAHL, USL), "weak": (GUSTAFSON,)}


def fits(study: Study, collected: Collected) -> Iterator[Fit]:
    """The laws of each series of a study that has at least two numbers of workers."""
    series: dict[tuple[Any, ...], dict[int, Group]] = {}
    for group in collected.groups(study):
        first = group[0]
        # Each row of weak scaling has a batch of its own.
        batch = None if study.kind == "weak" else first["batch"]
        alike = (*(first[name] for name in SAME), batch, grows(first["layout"]))
        series.setdefault(alike, {})[size_of(first["layout"])] = group
    for groups in series.values():
        of_one = _of_one(study, next(iter(groups.values()))[0], collected)
        if 1 not in groups and of_one:
            groups[1] = of_one
        if len(groups) > 1:
            yield from _fits(study, groups, collected)


def _of_one(study: Study, row: Row, collected: Collected) -> Group | None:
    """One process with one thread and its share of the batch, for a series without it; None for ranks of more threads."""
    if BACKENDS[row["backend"]].several_ranks and row["threads"] > 1:
        return None
    count = workers(row["layout"])
    share = row["batch"] // count if study.kind == "weak" else row["batch"]
    return collected.points.get(point({**row, "layout": serial(row["backend"]), "batch": share}))


def _fits(study: Study, groups: dict[int, Group], collected: Collected) -> Iterator[Fit]:
    largest = groups[max(groups)][0]
    what = "ranks" if largest["ranks"] > 1 else "threads"
    identity = {
        **{name: largest[name] for name in (*SAME, "hardware", "code")},
        "batch": None if study.kind == "weak" else largest["batch"],
        "series": grows(largest["layout"]),
    }
    series = Series.of(
        (Place(f"{p} {what}", (float(p),), rows) for p, rows in groups.items()), identity, own_cores=True
    )
    for law in LAWS[study.kind]:
        if law is GUSTAFSON and collected.config.family(largest["workload"]).work:
            why = "a larger batch needs a larger model here, and the law is of a fixed share of work"
            yield Fit("refused", why, law, identity)
        else:
            yield series.fit(law)
