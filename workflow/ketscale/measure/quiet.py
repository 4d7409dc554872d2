"""Whether a run was timed alone, from the kernel's accounting of its cores. Imports nothing heavy."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ketscale.measure import topology

# If others used more than this share of the run's cores, if the hypervisor gave more of them to other guests, or if a
# CPU quota stopped the run for more of its time, then the run was not timed alone.
QUIET_SHARE = 0.05
# There is no bound for a run that others can have cost more than this share of its time.
BOUNDED_SHARE = 0.2
# The kernel counts in ticks, which are known to one at either end of a window.
TICKS = 2
_STAT = Path("/proc/stat")
# What a counter of a control group's `cpu.stat` counts in a second, by its name in version 2 and in version 1 (cgroups(7)).
_UNITS = {"throttled_usec": 1e6, "throttled_time": 1e9}
_OWN, _ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


class Watch:
    """What else there was on the cores of a run since construction or `begin`, from the kernel's accounting.

    Args:
        cpus: the logical CPUs that the run may use on this host. CPUs that share their cores are watched too, since
            work there slows the run. If the kernel does not count each CPU, the whole host is watched.
        threads: those of all ranks of the run on this host.
    """

    def __init__(self, cpus: Collection[int], threads: int = 1) -> None:
        self._oversubscribed = threads > len(cpus)
        watched = topology.full_cores(topology.read(), cpus)
        self._cpus = sorted(watched) if watched <= set(_processor_seconds()) else None
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self._start_s = time.perf_counter()
        self._busy, self._steal = self._used()
        self._throttled = throttled_s()
        self._own = own_cpu_seconds()

    def usage(self) -> dict[str, Any]:
        """What one rank has seen.

        Returns:
            own_s: processor seconds of this process and its finished children. busy_s, steal_s: seconds of the watched
            CPUs that anybody used, and that the hypervisor gave to others. capacity_s: all that there were. cpus: the
            watched ones (None: the whole host). throttled_share: of the time, what a quota stopped this process; None if
            that is unknown. oversubscribed: whether there are more threads than CPUs.
        """
        busy, steal = self._used()
        seconds = time.perf_counter() - self._start_s
        throttled = longest_s(self._throttled, throttled_s())
        return {
            "own_s": own_cpu_seconds() - self._own,
            "busy_s": busy - self._busy,
            "steal_s": steal - self._steal,
            "capacity_s": seconds * ((os.cpu_count() or 1) if self._cpus is None else len(self._cpus)),
            "cpus": self._cpus,
            "throttled_share": None if throttled is None else throttled / seconds,
            "oversubscribed": self._oversubscribed,
        }

    def _used(self) -> tuple[float, float]:
        """Seconds since boot that the watched CPUs were busy, and that the hypervisor stole from them."""
        seconds = _processor_seconds()
        used = [seconds[cpu] for cpu in ([None] if self._cpus is None else self._cpus)]
        return sum(busy for busy, _ in used), sum(steal for _, steal in used)


def quietness(ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Whether a run had each of its hosts to itself: what its record says of that.

    Args:
        ranks: of each rank in rank order its `host`, and what it has `seen`.
    """
    hosts: dict[str, list[dict[str, Any]]] = {}
    for rank in ranks:
        hosts.setdefault(rank["host"], []).append(rank)
    throttled = [rank["seen"]["throttled_share"] for rank in ranks]
    shares = {
        "others_share": max(map(_others_share, hosts.values())),
        "steal_share": max(max(0.0, rank["seen"]["steal_s"]) / rank["seen"]["capacity_s"] for rank in ranks),
        "throttled_share": max((share for share in throttled if share is not None), default=None),
        "oversubscribed": any(rank["seen"]["oversubscribed"] for rank in ranks),
    }
    why = "; ".join(disturbances(**shares))
    spans = ranks[0]["seen"]
    cpus = spans["cpus"]
    watched_s = spans["capacity_s"] / (len(cpus) if cpus else os.cpu_count() or 1)
    return {"quiet": not why, "why": why, "cpus": cpus, "watched_s": watched_s, **shares}


def disturbance(others_share: float, steal_share: float, throttled_share: float | None, cpus: int) -> float:
    """The share of a run's time that others can have cost it, at most: the processors that they used, and a quota."""
    return (others_share + steal_share) * cpus + (throttled_share or 0.0)


def disturbances(
    others_share: float,
    steal_share: float,
    throttled_share: float | None,
    oversubscribed: bool,
) -> Iterator[str]:
    """Why a run was not timed alone, in words; nothing if it was."""
    if others_share > QUIET_SHARE:
        yield f"other processes used {others_share:.0%} of its cores"
    if steal_share > QUIET_SHARE:
        yield f"the hypervisor gave {steal_share:.0%} of its cores to other guests"
    if (throttled_share or 0) > QUIET_SHARE:
        yield f"a CPU quota stopped it for {throttled_share:.0%} of its time"
    if oversubscribed:
        yield "its threads are more than its CPUs"


def _others_share(ranks: Sequence[dict[str, Any]]) -> float:
    """The share of a host's watched CPUs that others than its ranks used; each of its ranks has watched the same."""
    spans, own_s = ranks[0]["seen"], sum(rank["seen"]["own_s"] for rank in ranks)
    return max(0.0, spans["busy_s"] - own_s - TICKS / os.sysconf("SC_CLK_TCK")) / float(spans["capacity_s"])


def _processor_seconds() -> dict[int | None, tuple[float, float]]:
    """Busy and stolen seconds since boot of each logical CPU, and of all under None (proc(5), /proc/stat)."""
    hertz = os.sysconf("SC_CLK_TCK")
    seconds: dict[int | None, tuple[float, float]] = {}
    for line in _STAT.read_text().splitlines():
        if line.startswith("cpu"):
            name, *ticks = line.split()
            user, nice, system, _, _, irq, softirq, steal = map(int, ticks[:8])
            number = name.removeprefix("cpu")
            busy = (user + nice + system + irq + softirq) / hertz
            seconds[int(number) if number else None] = (busy, steal / hertz)
    return seconds


def own_cpu_seconds() -> float:
    """Processor seconds of this process and its finished children."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


def throttled_s() -> dict[str, float] | None:
    """Seconds that each control group around this process was stopped so far, of all its CPUs together; None if none is seen.

    Any of them may have the quota; one without a counter has none.
    """
    try:
        lines = _OWN.read_text().splitlines()
    except OSError:
        return None
    by_group: dict[str, float | None] = {}
    for line in lines:
        _, controllers, group = line.split(":", 2)
        # Version 2 has one hierarchy, version 1 one of its own for the CPU.
        top = {"": _ROOT}.get(controllers, _ROOT / "cpu" if "cpu" in controllers.split(",") else None)
        if top is not None and ".." not in group:
            # A container may see its own part of the hierarchy alone, without the groups around it.
            folder = top / group.lstrip("/")
            around = [each for each in (folder, *folder.parents) if each.is_relative_to(top)]
            by_group |= {str(each): _stopped(each) for each in around}
    return {name: seconds for name, seconds in by_group.items() if seconds is not None} or None


def longest_s(before: Mapping[str, float] | None, after: Mapping[str, float] | None) -> float | None:
    """The seconds that the group that was stopped longest was stopped in between; None if none was seen."""
    if before is None or after is None:
        return None
    return max((after[name] - before[name] for name in before.keys() & after.keys()), default=None)


def _stopped(folder: Path) -> float | None:
    try:
        counters = dict(line.split(maxsplit=1) for line in (folder / "cpu.stat").read_text().splitlines())
        return sum(int(counters[name]) / unit for name, unit in _UNITS.items() if name in counters)
    except (OSError, ValueError):
        return None
