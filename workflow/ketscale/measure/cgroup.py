"""How long a CPU quota has stopped this process, from the counters of its control groups. Imports nothing heavy.

A container or a batch system gives a process a part of a CPU by a quota: when it is used up, the process stands still
until the next period. The quota may be that of any group around the process's own (cgroups(7), both versions).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

# What a counter of `cpu.stat` counts in a second, by its name in version 2 and in version 1.
_UNITS = {"throttled_usec": 1e6, "throttled_time": 1e9}
_PROC = Path("/proc/self")


def throttled_s() -> dict[str, float] | None:
    """Seconds that each of this process's groups was stopped so far, of all its CPUs together; None if none is seen.

    A group without a counter has no quota.
    """
    found = {str(folder): _stopped(folder) for folder in _groups()}
    return {name: seconds for name, seconds in found.items() if seconds is not None} or None


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


def _groups() -> Iterator[Path]:
    """The folders of the groups that this process is in, from its own up to the last that it sees."""
    try:
        own = dict(_own((_PROC / "cgroup").read_text()))
        mounts = (_PROC / "mountinfo").read_text().splitlines()
    except OSError:
        return
    for line in mounts:
        # proc(5): the file system's type is the first field after a lone dash, and the options of the hierarchy the
        # last of all.
        fields, _, others = line.partition(" - ")
        kind, *_, options = others.split()
        controller = {"cgroup2": "", "cgroup": "cpu"}.get(kind)
        if controller is None or controller not in own or controller not in ("", *options.split(",")):
            continue
        root, top = (Path(_plain(field)) for field in fields.split()[3:5])
        group = Path(own[controller])
        # What is mounted may be a part of the hierarchy, without the process's group.
        if ".." in group.parts or not group.is_relative_to(root):
            continue
        folder = top / group.relative_to(root)
        yield from (each for each in (folder, *folder.parents) if each.is_relative_to(top))


def _own(text: str) -> Iterator[tuple[str, str]]:
    """The process's group in each hierarchy, by controller; '' is version 2."""
    for line in text.splitlines():
        _, controllers, group = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, group


def _plain(field: str) -> str:
    """A path of mountinfo, in which blanks and backslashes are octal."""
    for plain in " \t\n\\":
        field = field.replace(f"\\{ord(plain):03o}", plain)
    return field
