"""Whether a run was timed alone, from the kernel's accounting of its cores. Imports nothing heavy."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ketscale.measure import topology

# If others used more than this share of the run's cores, the run was not timed alone.
QUIET_SHARE = 0.05
_STAT = Path("/proc/stat")


class Quiet:
    """How much other processes have used the cores of a run since construction, from the kernel's accounting.

    Args:
        cpus: the logical CPUs that the run may use on this host. CPUs that share their cores are watched too, since
            work there slows the run. If the kernel does not count each CPU, the whole host is watched.
        threads: those of all ranks of the run on this host.
    """

    def __init__(self, cpus: Collection[int], threads: int = 1) -> None:
        self._oversubscribed = threads > len(cpus)
        watched = topology.whole_cores(topology.read(), cpus)
        self._cpus = sorted(watched) if watched <= set(_processor_seconds()) else None
        self._start_s = time.perf_counter()
        self._busy, self._steal = self._used()
        self._own = own_cpu_seconds()

    def own_s(self) -> float:
        """Processor seconds of this process and its finished children since construction."""
        return own_cpu_seconds() - self._own

    def report(self, ranks_own_s: float) -> dict[str, Any]:
        """The shares of the watched CPUs' time that other processes used and that the hypervisor stole.

        Args:
            ranks_own_s: processor seconds of the run's ranks on this host since construction.

        Returns:
            Both shares, the watched CPUs (None: the whole host), whether there are more threads than CPUs, and
            whether the run was alone: the first share at most QUIET_SHARE, and no more threads than CPUs.
        """
        busy, steal = self._used()
        count = (os.cpu_count() or 1) if self._cpus is None else len(self._cpus)
        capacity = (time.perf_counter() - self._start_s) * count
        others = max(0.0, (busy - self._busy) - ranks_own_s) / capacity
        return {
            "quiet": others <= QUIET_SHARE and not self._oversubscribed,
            "others_share": others,
            "steal_share": max(0.0, steal - self._steal) / capacity,
            "cpus": self._cpus,
            "oversubscribed": self._oversubscribed,
        }

    def _used(self) -> tuple[float, float]:
        """Seconds since boot that the watched CPUs were busy, and that the hypervisor stole from them."""
        seconds = _processor_seconds()
        used = [seconds[cpu] for cpu in ([None] if self._cpus is None else self._cpus)]
        return sum(busy for busy, _ in used), sum(steal for _, steal in used)


def _processor_seconds() -> dict[int | None, tuple[float, float]]:
    """Busy and stolen seconds since boot of each logical CPU, and of all under None (proc(5), /proc/stat)."""
    hertz = os.sysconf("SC_CLK_TCK")
    found: dict[int | None, tuple[float, float]] = {}
    for line in _STAT.read_text().splitlines():
        if line.startswith("cpu"):
            name, *ticks = line.split()
            user, nice, system, _, _, irq, softirq, steal = map(int, ticks[:8])
            number = name.removeprefix("cpu")
            busy = (user + nice + system + irq + softirq) / hertz
            found[int(number) if number else None] = (busy, steal / hertz)
    return found


def own_cpu_seconds() -> float:
    """Processor seconds of this process and its finished children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
