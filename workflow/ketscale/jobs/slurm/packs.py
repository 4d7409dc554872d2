"""Packs: runs that share an allocation, one after another, so that runs of seconds do not each cost a job.

A pack is one of Snakemake's groups. Timed runs of one model, size, protocol and seed on the same number of nodes, in
whatever layout, simulator and batch, form a block that is never split: a ratio of them then pairs runs on the same host.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ketscale.grid import LAYOUT, Run
from ketscale.jobs.slurm.site import Site, cores_per_node, gpus_per_node


class _Shape(NamedTuple):
    """What the runs of a pack have in common; an allocation asks for its largest run's cores and memory."""

    kind: str
    nodes: int
    gpus: int
    cores: int

    def __str__(self) -> str:
        gpus = f"g{self.gpus}" if self.gpus else ""
        cores = f"c{self.cores}" if self.cores else ""
        return f"{self.kind}-n{self.nodes}{gpus}{cores}"


def packs(runs: Iterable[Run], timed: Callable[[Run], bool], site: Site) -> dict[Run, str]:
    """The name of each run's pack.

    Args:
        runs: all runs of a study in scheduling order; a pack's name depends on all of them, so that it stays the
            same when some are done.
        timed: whether a run has its nodes to itself. Such packs hold their nodes alone, so runs of unequal width
            cost nothing; other packs hold runs of equal width only.
    """
    blocks: dict[_Shape, dict[tuple[object, ...], list[Run]]] = {}
    for run in runs:
        alone = timed(run)
        shape = _Shape(
            "timed" if alone else "shared", run.nodes, gpus_per_node(run), 0 if alone else cores_per_node(run)
        )
        key = run.without("batch", "simulator", *LAYOUT) if alone else (run,)
        blocks.setdefault(shape, {}).setdefault(key, []).append(run)
    names: dict[Run, str] = {}
    for shape, of_shape in blocks.items():
        number = minutes = size = 0
        for block in of_shape.values():
            more = sum(site.minutes(run) for run in block)
            if size and (minutes + more > site.file.pack.minutes or size + len(block) > site.file.pack.runs):
                number, minutes, size = number + 1, 0, 0
            minutes, size = minutes + more, size + len(block)
            names |= dict.fromkeys(block, f"{shape}-{number}")
    return names


def name_alone(run: Run) -> str:
    """The pack of a run that no study asks for."""
    return f"single-{hashlib.sha256(run.path.encode()).hexdigest()[:10]}"
