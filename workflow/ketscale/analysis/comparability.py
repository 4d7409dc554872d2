"""What runs must share before their times, or their accuracies, are compared or joined in a median.

Code and packages of two runs agree if what both used is the same: a simulator imports modules that another does not.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ketscale.jobs.provenance import NAME, SOURCE
from ketscale.measure.form import Host

Row = Mapping[str, Any]
# Names with their content, such as packages with their versions; '' names what is alone.
Versions = frozenset[tuple[str, str]]
# What runs must share, by its parts: code (the modules that were imported, with hashes), packages (those that compute, with
# versions), hosts (the class of host), cores (whether threads shared physical ones), data (hashes of the data and of the
# prepared data), splits (how they were split, with the number of test samples of each fold) and precision (of numbers). A
# name that a part has not is unknown, or is what is compared.
Key = tuple[tuple[str, Versions], ...]
# Snakemake starts runs and computes nothing.
_NOT_COMPUTING = "snakemake"
SHARED = ("a core for each thread", "threads that share cores")
# Hashes say nothing to a reader.
_HASHED = ("code", "data")
# Kernels and firmware keep some of a machine's memory, so it is rounded to steps of 2^(1/14), 5 %.
_STEPS = 14


def times(row: Row, varied: Collection[str] = ()) -> Key:
    """The key of a run's times.

    row: of runs.csv. varied: the axes, as `grid.POINT` names them, in which the runs differ that are compared, and
    'device'. The layout determines how cores are shared, the protocol the precision, the workload the data.
    """
    shared = "" if row["shared_cores"] is None else SHARED[bool(row["shared_cores"])]
    return (
        *_software(row),
        ("hosts", _versions({"": "device" not in varied and row["hardware"]})),
        ("cores", _versions({"": "layout" not in varied and shared})),
        ("data", frozenset() if "workload" in varied else _data(row)),
        ("precision", _versions({"": "protocol" not in varied and row["precision"]})),
    )


def quality(row: Row, of: str = "") -> Key:
    """The key of what a run has learned; the same data and the same split for all that is compared.

    of: the split that the run is of, where several of the same data are joined.
    """
    parts = (
        (part, frozenset((f"{name} of {of}".strip() if of else name, value) for name, value in versions))
        for part, versions in tested(row)
    )
    return (*_software(row), *parts)


def tested(row: Row) -> Key:
    """The key of what a run was trained and tested on."""
    samples = "samples" if row["fold"] is None else f"samples of fold {row['fold']}"
    split = {"": row["split"], "folds": row["folds"], samples: row["test_samples"]}
    return ("data", _data(row)), ("splits", _versions(split))


def mismatch(keys: Iterable[Key]) -> str:
    """Why runs of these keys can be neither compared nor joined, in words; '' if they can."""
    first: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for key in dict.fromkeys(keys):
        whys = []
        for part, versions in key:
            other = sorted((name, value) for name, value in versions if first[part].get(name, value) != value)
            words = ", ".join(f"{name} {first[part][name]} and {value}".strip() for name, value in other)
            if other:
                whys.append(f"other {part}" if part in _HASHED else f"other {part} ({words})")
            first[part].update(versions)
        if whys:
            return "; ".join(whys)
    return ""


def host_class(machine: Host) -> str:
    """The class of a record's host in words: the cluster's node type, else the host itself, with what is in it.

    Memory counts in steps of 5 %. A job sees only the GPUs that it was given, so their number says nothing of the host.
    """
    steps = round(_STEPS * math.log2(max(1, machine.memory_bytes) / 2**30))
    gpus = "; ".join(sorted({gpu.name for gpu in machine.gpus}))
    parts = (machine.cpu, f"{machine.cores} cores", f"{2 ** (steps / _STEPS):.3g} GiB", gpus)
    return f"{machine.node_type or machine.host}: {', '.join(filter(None, parts))}"


@functools.cache
def modules(imported: str) -> Versions:
    """The modules of `Code.imported`, in short, with their trees."""
    size = NAME + SOURCE
    parts = (imported[at : at + size] for at in range(0, len(imported), size))
    return frozenset((part[:NAME], part[NAME:]) for part in parts)


def _versions(values: Mapping[str, Any]) -> Versions:
    return frozenset((name, str(value)) for name, value in values.items() if value)


def _software(row: Row) -> Key:
    packages = _packages(row["packages"] or "", row["mpi_library"] or "")
    return ("code", modules(row["imported"] or "")), ("packages", packages)


def _data(row: Row) -> Versions:
    return _versions({"data": row["data_hash"], "features": row["features_hash"]})


@functools.cache
def _packages(packages: str, mpi: str) -> Versions:
    """From the text in runs.csv, such as 'numpy=2.3 torch=2.9'."""
    pairs = (part.partition("=")[::2] for part in packages.split())
    versions = {(name, version) for name, version in pairs if name != _NOT_COMPUTING}
    return frozenset(versions | {("MPI", mpi)} if mpi else versions)
