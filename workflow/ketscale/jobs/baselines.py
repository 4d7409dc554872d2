"""The baselines of a workload, `grid.BASELINES`: fitted to its prepared data, and whether those have changed since.

The file has the hash of what determines it: the features hash, the versions of the packages that compute, and that of the
methods. Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ketscale import grid
from ketscale.config import Config, Family
from ketscale.errors import UserError, short
from ketscale.files import clear, read_bytes, write_atomic
from ketscale.jobs import prepared
from ketscale.jobs.provenance import versions
from ketscale.problems.baselines import Baseline

VERSION = 1  # increase it whenever a method computes something else
PACKAGES = ("numpy", "scipy", "scikit-learn", "mne")


class Baselines(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file.

    hash: SHA-256 of `version`, of the methods, `features`, the features hash of the data, and `packages`, with the versions
    of those that are installed. digest: SHA-256 of the results.
    """

    version: int
    features: str
    packages: dict[str, str]
    hash: str
    results: tuple[Baseline, ...]
    digest: str


def path(config: Config, results: Path, workload: str) -> Path | None:
    """The file of a workload's baselines; None if its family has none."""
    return results / grid.BASELINES.format(workload=workload) if config.family(workload).baselines else None


def fit(where: str, family: Family, manifest: Path, out: Path) -> Sequence[Baseline]:
    """Fit the baselines of a workload to what `manifest` points to, write them, and return them.

    On one thread: the order of sums, and so the last bits, must not depend on the machine's cores.

    where: the workload's block in the config, for errors.

    Raises:
        UserError: the family has no baselines, or the data are missing or damaged.
    """
    if family.baselines is None:
        raise UserError(f"{where}: the family {family.name} has no baselines; leave it out")
    from threadpoolctl import threadpool_limits

    features = prepared.features_hash(manifest) or ""
    with threadpool_limits(1):
        found = tuple(family.baselines(manifest))
    write(out, features, found)
    return found


def write(file: Path, features: str, results: Sequence[Baseline]) -> None:
    """Write the baselines of the data with this features hash."""
    about: dict[str, Any] = {"version": VERSION, "features": features, "packages": versions(PACKAGES)}
    made = Baselines(**about, hash=grid.config_hash(about), results=tuple(results), digest=_digest(results))
    clear(file.parent)
    write_atomic(file, msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")


def read(file: Path) -> Baselines | None:
    """The baselines in a file; None if there is none.

    Raises:
        UserError: it is damaged, or of another version.
    """
    try:
        found = msgspec.json.decode(read_bytes(file), type=Baselines)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise UserError(f"{file}: cannot be read ({short(error)}); {_REMEDY}") from None
    about = {"version": found.version, "features": found.features, "packages": found.packages}
    if (found.version, found.hash, found.digest) != (
        VERSION,
        grid.config_hash(about),
        _digest(found.results),
    ):
        raise UserError(f"{file}: damaged, edited, or of another version; {_REMEDY}")
    return found


def of(config: Config, results: Path) -> dict[str, Baselines]:
    """The baselines that there are of each studied workload.

    Raises:
        UserError: as for `read`.
    """
    files = {name: path(config, results, name) for name in config.studied}
    found = {name: read(file) for name, file in files.items() if file}
    return {name: each for name, each in found.items() if each}


def outdated(config: Config, results: Path, workload: str) -> bool:
    """Whether the baselines that are there must be fitted again.

    They must for other data, and for other packages if one was missing: the upgrade of a package is no reason by itself.
    """
    file = path(config, results, workload)
    try:
        found = read(file) if file else None
    except UserError:
        return True
    if found is None:
        return False
    failed = any(each.why for each in found.results) and found.packages != versions(PACKAGES)
    features = prepared.features_hash(prepared.manifest(config, results, workload))
    return failed or features not in (None, found.features)


_REMEDY = "delete it, and run the rule baseline again"


def _digest(found: Sequence[Baseline]) -> str:
    return grid.config_hash({"results": msgspec.to_builtins(found)})
