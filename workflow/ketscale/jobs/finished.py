"""A run that was finished in this call of Snakemake is not trained again when its pack, or its job, is tried again.

Snakemake deletes a job's outputs before it tries the job again, those of a pack's finished runs too. So a copy lies
beside them, which counts for the call that made it and for the same settings, features and code. Light on purpose:
`ketscale launch` asks here before anything heavy is imported.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ketscale import grid
from ketscale.errors import UserError
from ketscale.jobs.slurm import site
from ketscale.measure.records import read, write_atomic

PACKAGE = Path(__file__).resolve().parents[1]
# What is read, drawn or timed from outside a run changes none of its numbers.
_NOT_TRAINING = ("analysis", "bench", "slurm", "cli.py", "doctor.py", "recover.py", "status")
_FILES = ("history.csv", grid.RECORD)


def begin_call() -> None:
    """Name this call of Snakemake; its jobs, on other machines too, inherit the name with their environment."""
    os.environ["KETSCALE_CALL"] = uuid.uuid4().hex


def call() -> str | None:
    """The call of Snakemake that this process belongs to; None where a run was started by hand."""
    return os.environ.get("KETSCALE_CALL")


@functools.cache
def code_hash() -> str:
    """SHA-256 of the package's sources that decide a run's numbers and timing."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE)
        if name.parts[0] not in _NOT_TRAINING:
            digest.update(str(name).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def keep(folder: Path) -> None:
    """Copy the record and history of a run that has just been finished, in an allocation: only there a pack of runs is
    tried again for one that failed, and Snakemake deletes the others' outputs first.
    """
    if call() is not None and site.here() is not None:
        for name in _FILES:
            write_atomic(_kept(folder) / name, (folder / name).read_bytes())


def restore(folder: Path, settings: Mapping[str, Any], features_hash: str | None) -> bool:
    """Whether this call has finished the run before: then its record and history are there (again).

    A copy of another call, or of other settings, features or code, is deleted.
    """
    kept = _kept(folder)
    if call() is not None and _matches(kept / grid.RECORD, settings, features_hash, call()):
        for name in _FILES:
            write_atomic(folder / name, (kept / name).read_bytes())
        return True
    forget(folder)
    return False


def forget(folder: Path) -> None:
    """Delete the copy, at the end of the call."""
    shutil.rmtree(_kept(folder), ignore_errors=True)


def is_finished(folder: Path, settings: Mapping[str, Any], features_hash: str | None) -> bool:
    """Whether the run's record is there, of these settings and features and of this code."""
    return _matches(folder / grid.RECORD, settings, features_hash, None)


def features_hash(manifest: Path) -> str | None:
    """The hash of the features that a manifest names; None where there is none to be read."""
    try:
        return str(json.loads(manifest.read_text())["hash"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def features_hashes(root: Path, runs: Iterable[grid.Run]) -> dict[str, str | None]:
    """The hash of the features in use below `root` for each workload of the runs."""
    folder = root / "results/features"
    return {name: features_hash(folder / name / "features.json") for name in {run.workload for run in runs}}


def _matches(path: Path, settings: Mapping[str, Any], features_hash: str | None, call: str | None) -> bool:
    try:
        record = read(path)
    except UserError:
        return False
    return (
        record["config_hash"] == grid.config_hash(settings)
        and record["features_hash"] == features_hash
        and record["code"]["hash"] == code_hash()
        and (call is None or record["call"] == call)
    )


def _kept(folder: Path) -> Path:
    return folder / "checkpoint" / "finished"
