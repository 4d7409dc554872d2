"""Job groups ("packs"): runs that share an allocation, one after another, so that short runs do not each cost a job.

A pack is one of Snakemake's job groups. Timed runs that differ only in layout (with the same number of nodes),
simulator and batch form a block that is never split, so the two runs of a ratio are on the same host.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from ketscale.grid import LAYOUT, Run
from ketscale.jobs.slurm.site import Site, cores_per_node, gpus_per_node


def packs(
    runs: Iterable[Run],
    timed: Callable[[Run], bool],
    site: Site,
    is_trial: Callable[[Run], bool],
) -> dict[Run, str]:
    """The name of each run's job group, which depends on all runs of a config, so that it stays when some are done.

    is_timed: whether a run has its nodes to itself. is_trial: whether it is a trial of a search, for which others wait.
    """
    # By what the runs of a job group share; the allocation asks for the cores and memory of its largest run. Timed runs have
    # their nodes alone, so theirs may differ in cores. No run that waits for a trial is in the trial's job group.
    blocks: dict[str, dict[tuple[object, ...], list[Run]]] = {}
    for run in runs:
        exclusive = timed(run)
        kind = "timed" if exclusive else "trials" if is_trial(run) else "shared"
        gpus = f"g{gpus_per_node(run)}" if gpus_per_node(run) else ""
        cores = "" if exclusive else f"c{cores_per_node(run)}"
        allocation = f"{kind}-n{run.nodes}{gpus}{cores}"
        key = run.without("batch", "simulator", *LAYOUT) if exclusive else (run,)
        blocks.setdefault(allocation, {}).setdefault(key, []).append(run)
    names: dict[Run, str] = {}
    for allocation, of_allocation in blocks.items():
        number = minutes = size = 0
        for block in of_allocation.values():
            more = sum(site.minutes(run) for run in block)
            if size and (minutes + more > site.file.pack.minutes or size + len(block) > site.file.pack.runs):
                number, minutes, size = number + 1, 0, 0
            minutes, size = minutes + more, size + len(block)
            names |= dict.fromkeys(block, f"{allocation}-{number}")
    return names


def name_of_single(run: Run) -> str:
    """The job group of a run that is in no study."""
    return f"single-{hashlib.sha256(run.path.encode()).hexdigest()[:10]}"
