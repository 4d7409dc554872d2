"""What runs must share before their times, or their accuracies, are compared or joined in a median.

Code and packages of two runs agree if whatever both used is the same, since one simulator imports modules that another
does not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from ketscale.jobs.provenance import NAME, TREE
from ketscale.measure.form import Host

Row = Mapping[str, Any]
# Names with their content, such as packages with their versions.
Versions = frozenset[tuple[str, str]]
# Snakemake starts runs and computes nothing.
_NOT_COMPUTING = "snakemake"
# Hashes say nothing to a reader.
_HASHED = ("other code", "other data", "other features")
SHARED = ("a core for each thread", "threads that share cores")
# Kernels and firmware keep some of a machine's memory, so it is told in steps of 2^(1/14), 5 %.
_STEPS = 14


@dataclass(frozen=True)
class Key:
    """What runs must share. Empty: unknown, or what is compared, which is no part of the key.

    code: the modules that were imported, with hashes. packages: those that compute, with versions. hosts: the class of
    host. cores: whether threads shared physical cores. data, features: hashes of the data and of the prepared data.
    splits: how they were split. tests: the number of test samples of each fold. precision: of numbers.
    """

    code: Versions = frozenset()
    packages: Versions = frozenset()
    hosts: str = ""
    cores: str = ""
    data: str = ""
    features: str = ""
    splits: str = ""
    tests: Versions = frozenset()
    precision: str = ""

    def against(self, other: Self) -> str:
        """What stands in the way of comparing runs of these two keys, in words such as 'other code'; '' if nothing does."""
        pairs = ((name, ours, getattr(other, name)) for name, ours in vars(self).items())
        told = (_apart(f"other {name}", ours, theirs) for name, ours, theirs in pairs)
        return "; ".join(filter(None, told))

    def joined(self, other: Self) -> Self:
        """The key of both together; they must agree."""
        pairs = ((name, ours, getattr(other, name)) for name, ours in vars(self).items())
        return type(self)(
            **{name: one | two if isinstance(one, frozenset) else one or two for name, one, two in pairs}
        )


def times(row: Row, varied: Collection[str] = ()) -> Key:
    """The key of a run's times.

    row: of runs.csv. varied: the axes, as `grid.POINT` names them, in which the runs differ that are compared, and
    'device'. A layout decides how cores are shared, a protocol the precision, a workload the data.
    """
    return Key(
        *_software(row),
        hosts="" if "device" in varied else row["hardware"],
        cores="" if "layout" in varied or row["shared_cores"] is None else SHARED[bool(row["shared_cores"])],
        **{} if "workload" in varied else _data(row),
        precision="" if "protocol" in varied else row["precision"],
    )


def quality(row: Row) -> Key:
    """The key of what a run has learned; the same data and the same split for all that is compared."""
    code, packages = _software(row)
    return replace(tested(row), code=code, packages=packages)


def tested(row: Row) -> Key:
    """The key of what a run was trained and tested on."""
    splits = " in ".join(filter(None, (row["split"], row["folds"] and f"{row['folds']} folds")))
    fold = "samples" if row["fold"] is None else f"samples of fold {row['fold']}"
    tests = {(fold, str(row["test_samples"]))} if row["test_samples"] else ()
    return Key(**_data(row), splits=splits, tests=frozenset(tests))


def hindrance(keys: Iterable[Key]) -> str:
    """Why runs of these keys can be neither compared nor joined, in words; '' if they can."""
    known = Key()
    for key in dict.fromkeys(keys):
        if why := known.against(key):
            return why
        known = known.joined(key)
    return ""


def host_class(machine: Host) -> str:
    """The class of a record's host in words: the cluster's node type, else the host itself, with what is in it.

    Memory counts in steps of 5 %.
    """
    steps = round(_STEPS * math.log2(max(1, machine.memory_bytes) / 2**30))
    gpus = "; ".join(sorted(gpu.name for gpu in machine.gpus))
    parts = (machine.cpu, f"{machine.cores} cores", f"{2 ** (steps / _STEPS):.3g} GiB", gpus)
    return f"{machine.node_type or machine.host}: {', '.join(filter(None, parts))}"


@functools.cache
def modules(imported: str) -> Versions:
    """The modules of `Code.imported`, in short, with their trees."""
    size = NAME + TREE
    parts = (imported[at : at + size] for at in range(0, len(imported), size))
    return frozenset((part[:NAME], part[NAME:]) for part in parts)


def _apart(what: str, one: Any, two: Any) -> str:
    """That two parts of a key differ, and how if that is short; '' if they agree or one is unknown."""
    if not one or not two or one == two:
        return ""
    if isinstance(one, str):
        return what if what in _HASHED else f"{what} ({one} and {two})"
    first, second = dict(one), dict(two)
    differing = sorted(part for part in first.keys() & second.keys() if first[part] != second[part])
    told = ", ".join(f"{part} {first[part]} and {second[part]}" for part in differing)
    return "" if not differing else what if what in _HASHED else f"{what} ({told})"


def _software(row: Row) -> tuple[Versions, Versions]:
    return modules(row["imported"] or ""), _packages(row["packages"] or "", row["mpi_library"] or "")


def _data(row: Row) -> dict[str, Any]:
    return {"data": row["data_hash"] or "", "features": row["features_hash"] or ""}


@functools.cache
def _packages(packages: str, mpi: str) -> Versions:
    """From the text in runs.csv, such as 'numpy=2.3 torch=2.9'."""
    named = (part.partition("=")[::2] for part in packages.split())
    found = {(name, version) for name, version in named if name != _NOT_COMPUTING}
    return frozenset(found | {("MPI", mpi)} if mpi else found)
