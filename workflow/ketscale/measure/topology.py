"""The logical CPUs that are threads of one physical core, from Linux's /sys (Documentation/admin-guide/cputopology)."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

_SYS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Processors:
    """The processors of a host.

    sockets: processor packages. physical_cores: cores of all sockets. threads_per_core: the largest number of logical CPUs
    of a core. core_of: the core of each logical CPU; a core has the number of its lowest CPU.
    """

    sockets: int
    physical_cores: int
    threads_per_core: int
    core_of: Mapping[int, int]


@functools.cache
def read(folder: Path = _SYS) -> Processors | None:
    """The host's topology; None if /sys does not show it, as in some containers."""
    core_of, packages = {}, set()
    try:
        for of_cpu in folder.glob("cpu[0-9]*/topology"):
            # The kernel's list of a core's CPUs, such as 0,4 or 0-3, begins with the lowest.
            lowest = re.split("[,-]", (of_cpu / "thread_siblings_list").read_text())[0]
            core_of[int(of_cpu.parent.name.removeprefix("cpu"))] = int(lowest)
            packages.add((of_cpu / "physical_package_id").read_text().strip())
    except (OSError, ValueError):
        return None
    cores = Counter(core_of.values())
    return Processors(len(packages), len(cores), max(cores.values()), core_of) if cores else None


def choose(processors: Processors | None, cpus: Collection[int], threads: int) -> list[int]:
    """Choose `threads` of the CPUs, each on its own core if there are enough cores, in the order of the cores."""
    if not _covers(processors, cpus):
        return sorted(cpus)[:threads]
    of_core: dict[int, list[int]] = {}
    for cpu in sorted(cpus):
        of_core.setdefault(processors.core_of[cpu], []).append(cpu)
    # Take the first CPU of every core before the second of any; then sort the chosen ones by core.
    rounds = sorted((i, core, cpu) for core, own in of_core.items() for i, cpu in enumerate(own))
    return [cpu for _, cpu in sorted((core, cpu) for _, core, cpu in rounds[:threads])]


def shared_cores(
    processors: Processors | None, ranks: Sequence[Collection[int]], threads: int
) -> bool | None:
    """Whether some threads of a host's ranks must share a physical core; None if the topology is unknown.

    ranks: the CPUs that each rank of the host may use. threads: of each rank.
    """
    if not _covers(processors, set().union(*ranks)):
        return None
    cores = [{processors.core_of[cpu] for cpu in cpus} for cpus in ranks]
    return len(set().union(*cores)) < threads * len(ranks) or any(len(own) < threads for own in cores)


def full_cores(processors: Processors | None, cpus: Collection[int]) -> set[int]:
    """The CPUs and those that share their cores; only the CPUs themselves if the topology is unknown."""
    if not _covers(processors, cpus):
        return set(cpus)
    cores = {processors.core_of[cpu] for cpu in cpus}
    return {cpu for cpu, core in processors.core_of.items() if core in cores}


def _covers(processors: Processors | None, cpus: Collection[int]) -> TypeGuard[Processors]:
    return processors is not None and set(cpus) <= set(processors.core_of)
