"""What runs must share before their times, or their accuracies, are compared or joined in a median.

A key says what a run's numbers depend on besides what is compared. Keys of two runs are compared part by part: code and
packages agree if whatever both runs used is the same, since a simulator imports modules that another does not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from ketscale.jobs.provenance import NAME, TREE
from ketscale.measure.form import Host, Record

Row = Mapping[str, Any]
# Names with their content, such as packages with their versions.
Versions = frozenset[tuple[str, str]]
# Snakemake starts runs and computes nothing.
_NOT_COMPUTING = "snakemake"
# Memory is told apart from this ratio on: kernels and firmware keep some of it.
_MEMORY_STEP = 1.05


@dataclass(frozen=True)
class Key:
    """What runs must share. Empty or None: unknown, or what is compared, which is no part of the key.

    code: the modules that were imported, with hashes. packages: those that compute, with versions. host: the class of
    host. binding: whether threads shared physical cores. data: hashes of the data and of the prepared data. split: how
    they were split. precision: of numbers.
    """

    code: Versions = frozenset()
    packages: Versions = frozenset()
    host: str = ""
    binding: bool | None = None
    data: tuple[str, str] | None = None
    split: tuple[str, str] | None = None
    precision: str = ""

    def against(self, other: Self) -> str:
        """What stands in the way of comparing runs of these two keys, in words; '' if nothing does."""
        return "; ".join(filter(None, (_apart(name, self, other) for name in _WORDS)))

    def joined(self, other: Self) -> Self:
        """The key of both together; they must agree."""
        both = {}
        for field in fields(self):
            ours, theirs = getattr(self, field.name), getattr(other, field.name)
            both[field.name] = (
                ours | theirs if isinstance(ours, frozenset) else theirs if _unknown(ours) else ours
            )
        return type(self)(**both)


# Parts of a key with their names in sentences.
_WORDS = {
    "host": "other hosts",
    "code": "other code",
    "packages": "other packages",
    "binding": "threads that share cores beside others that do not",
    "data": "other data",
    "split": "other splits",
    "precision": "other precision",
}


def times(row: Row, varied: Collection[str] = ()) -> Key:
    """The key of a run's times.

    row: of runs.csv. varied: the axes, as `grid.POINT` names them, in which the runs differ that are compared. A layout
    decides the binding and the device, a protocol the precision, a workload the data.
    """
    return Key(
        modules(row["imported"]),
        _packages(row["packages"], row["mpi_library"] or ""),
        "" if "device" in varied else row["hardware"],
        None if "layout" in varied else row["shared_cores"],
        None if "workload" in varied else _data(row),
        precision="" if "protocol" in varied else row["precision"],
    )


def quality(row: Row) -> Key:
    """The key of what a run has learned; the same data and the same split for all that is compared."""
    return Key(
        modules(row["imported"]),
        _packages(row["packages"], row["mpi_library"] or ""),
        data=_data(row),
        split=(str(row["split"]), str(row["folds"])),
    )


def software(record: Record) -> Key:
    """The code and the packages of a record."""
    packages = " ".join(f"{name}={version}" for name, version in sorted(record.packages.items()))
    return Key(modules(record.code.imported), _packages(packages, record.mpi_library or ""))


def hindrance(keys: Iterable[Key]) -> str:
    """Why runs of these keys can be neither compared nor joined, in words; '' if they can."""
    known: Key | None = None
    for key in keys:
        if known is not None and (why := known.against(key)):
            return why
        known = key if known is None else known.joined(key)
    return ""


def host_class(machine: Host) -> str:
    """The class of a record's host in words: the cluster's node type, else the host itself, with what is in it.

    Memory counts in steps of 5 %.
    """
    steps = round(math.log(machine.memory_bytes / 2**30, _MEMORY_STEP)) if machine.memory_bytes else 0
    parts = [
        machine.cpu,
        f"{machine.cores} cores",
        f"{_MEMORY_STEP**steps:.3g} GiB",
        "; ".join(sorted(gpu.name for gpu in machine.gpus)),
    ]
    return f"{machine.node_type or machine.host}: {', '.join(filter(None, parts))}"


def _apart(name: str, one: Key, two: Key) -> str:
    ours, theirs = getattr(one, name), getattr(two, name)
    if _unknown(ours) or _unknown(theirs) or ours == theirs:
        return ""
    if not isinstance(ours, frozenset):
        return _WORDS[name] + (f" ({ours} and {theirs})" if name in ("host", "precision") else "")
    first, second = dict(ours), dict(theirs)
    differing = sorted(part for part in first.keys() & second.keys() if first[part] != second[part])
    if name == "code":
        return _WORDS[name] if differing else ""
    told = ", ".join(f"{part} {first[part]} and {second[part]}" for part in differing)
    return f"{_WORDS[name]} ({told})" if told else ""


def _unknown(part: Any) -> bool:
    return part is None or part == "" or part == frozenset()


def _data(row: Row) -> tuple[str, str] | None:
    found = (str(row["data_hash"] or ""), str(row["features_hash"] or ""))
    return found if any(found) else None


@functools.cache
def modules(imported: str) -> Versions:
    """The modules of `Code.imported`, in short, with their trees."""
    size = NAME + TREE
    parts = (imported[at : at + size] for at in range(0, len(imported), size))
    return frozenset((part[:NAME], part[NAME:]) for part in parts)


@functools.cache
def _packages(packages: str, mpi: str) -> Versions:
    """From the text in runs.csv, such as 'numpy=2.3 torch=2.9'."""
    named = (part.partition("=")[::2] for part in packages.split())
    found = {(name, version) for name, version in named if name != _NOT_COMPUTING}
    return frozenset(found | {("MPI", mpi)} if mpi else found)
