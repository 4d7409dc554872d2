"""How long a CPU quota has stopped this process, from the counters of its control groups. Imports nothing heavy.

A container or a batch system gives a process a part of a CPU by a quota: when it is used up, the process stands still
until the next period. The quota may be that of any group around the process's own (cgroups(7), both versions).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# What a counter of `cpu.stat` counts in a second, by its name in version 2 and in version 1.
_UNITS = {"throttled_usec": 1e6, "throttled_time": 1e9}
_OWN, _ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def throttled_s() -> dict[str, float] | None:
    """Seconds that each of this process's groups was stopped so far, of all its CPUs together; None if none is seen.

    A group without a counter has no quota.
    """
    try:
        lines = _OWN.read_text().splitlines()
    except OSError:
        return None
    found: dict[str, float | None] = {}
    for line in lines:
        _, controllers, group = line.split(":", 2)
        # Version 2 has one hierarchy, version 1 one of its own for the CPU.
        top = {"": _ROOT}.get(controllers, _ROOT / "cpu" if "cpu" in controllers.split(",") else None)
        if top is not None and ".." not in group:
            # A container may see its own part of the hierarchy alone, without the groups around it.
            folder = top / group.lstrip("/")
            around = [each for each in (folder, *folder.parents) if each.is_relative_to(top)]
            found |= {str(each): _stopped(each) for each in around}
    return {name: seconds for name, seconds in found.items() if seconds is not None} or None


def longest_s(before: Mapping[str, float] | None, after: Mapping[str, float] | None) -> float | None:
    """The seconds that the group that was stopped longest was stopped in between; None if none was seen."""
    known = (before or {}).keys() & (after or {}).keys()
    return max((after[name] - before[name] for name in known), default=None)  # type: ignore[index]


def _stopped(folder: Path) -> float | None:
    try:
        counters = dict(line.split(maxsplit=1) for line in (folder / "cpu.stat").read_text().splitlines())
        return sum(int(counters[name]) / unit for name, unit in _UNITS.items() if name in counters)
    except (OSError, ValueError):
        return None
