"""Compares the runs of a call with the cluster's partitions, before anything is submitted.

Unless its administrator has set EnforcePartLimits, sbatch takes a job that asks for more nodes or time than its partition
has, and the job waits for ever. What no node has it refuses, but perhaps only hours after the call began.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs.slurm.queue import ask, seconds
from ketscale.jobs.slurm.site import PATH, Site, cores_per_node


@dataclass(frozen=True)
class Room:
    """How far a first request may grow when a job is tried again: by a factor in time, and up to so much memory."""

    factor: float = 1
    memory_mb: float = 0

    def minutes(self, first: int, attempt: int) -> int:
        """The time limit of an attempt: a multiple of the first."""
        return int(first * min(attempt, self.factor))

    def memory(self, first: int, attempt: int) -> int:
        """The memory of an attempt: double that of the one before."""
        return max(first, int(min(first * 2 ** (attempt - 1), self.memory_mb)))


def check(site: Site, runs: Mapping[Run, str], features: bool) -> dict[Run | None, Room]:
    """Refuse what the cluster would never start.

    Args:
        runs: the runs of this call, each with its job group.
        features: whether this call prepares data.

    Returns:
        How far the request of each run may grow, and that for preparing data (under None).

    Raises:
        UserError: SLURM does not answer, or a request exceeds what its partition has.
    """
    minutes = Counter[str]()
    for member, pack in runs.items():
        minutes[pack] += site.minutes(member)
    requests: dict[Run | None, dict[str, int]] = {
        member: {
            "nodes": member.nodes,
            "cores per node": cores_per_node(member),
            "MB per node": site.memory_mb(member),
            "minutes": minutes[pack],
        }
        for member, pack in runs.items()
    }
    if features:
        asked = site.file.features
        requests[None] = {"MB per node": asked.memory_mb, "minutes": asked.minutes}
    sizes, rooms = partitions(), dict[Run | None, Room]()
    for run, request in requests.items():
        name = site.partition_of(run) if run else site.file.partition
        if name not in sizes:
            all_names = ", ".join(filter(None, sizes))
            raise UserError(f"{PATH}: no partition is {name or 'the default'}; the cluster has: {all_names}")
        for kind, number in request.items():
            if number > sizes[name][kind]:
                raise UserError(
                    f"{f'the job group of {run.path}' if run else 'features'} needs {number} {kind} by the layout and {PATH}, "
                    f"but partition {name or 'by default'} has {sizes[name][kind]:g}; change limits, pack or partition there, or the runs"
                )
        rooms[run] = Room(sizes[name]["minutes"] / request["minutes"], sizes[name]["MB per node"])
    return rooms


def partitions() -> dict[str | None, dict[str, float]]:
    """The most that a job can have in each partition, by the partition's name; the default one is under None too.

    Raises:
        UserError: SLURM does not answer.
    """
    sizes: dict[str | None, dict[str, float]] = {}
    for line in ask("sinfo", "-h", "-e", "-o", "%P|%D|%l|%c|%m").splitlines():
        name, nodes, limit, cores, memory = line.split("|")
        # A partition with different nodes has several lines.
        size = sizes.setdefault(name.rstrip("*"), defaultdict(float))
        size["nodes"] += int(nodes)
        size["minutes"] = seconds(limit) / 60
        size["cores per node"] = max(size["cores per node"], int(cores.rstrip("+")))
        size["MB per node"] = max(size["MB per node"], int(memory.rstrip("+")))
        if name.endswith("*"):
            sizes[None] = size
    return sizes
