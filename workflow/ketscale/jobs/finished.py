"""A run that this call of Snakemake has finished is not trained again when its job starts, or its job group is retried.

Before a retry Snakemake deletes the outputs of the whole job group, also those of finished runs; and before a job its
outputs, also where another job has trained the run. So a copy is kept in the run's folder. It counts only for the call
that made it, and for the same settings, features and code. Imports next to nothing: `ketscale launch` asks here first.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketscale import grid, process
from ketscale.files import copy_atomic

if TYPE_CHECKING:
    from ketscale.config import Settings

PACKAGE = Path(__file__).resolve().parents[1]
# Code that reads, draws or times runs from outside changes none of their numbers.
_NOT_TRAINING = (
    "analysis",
    "cli.py",
    "jobs/slurm",
    "jobs/status",
    "jobs/doctor.py",
    "jobs/recover.py",
    "jobs/records.py",
    "measure/parity.py",
)
# The record comes last, since it is refused without the files that it names.
_FILES = (grid.HISTORY, grid.CURVES, grid.RECORD)
# The copy's folder, beside the checkpoints.
KEPT = "finished"


def begin_call() -> None:
    """Name this call of Snakemake. Its jobs, also on other machines, inherit the name with their environment."""
    os.environ["KETSCALE_CALL"] = uuid.uuid4().hex


def call() -> str | None:
    """The call of Snakemake that this process belongs to; None if the run was started by hand."""
    return os.environ.get("KETSCALE_CALL")


@functools.cache
def code_hash() -> str:
    """SHA-256 of the package's sources that affect a run's numbers and timing, as they are at the first call."""
    return sources_hash()


def sources_hash() -> str:
    """The same as they are now."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(_NOT_TRAINING):
            digest.update(str(name).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def copies(folder: Path, together: bool) -> list[Path]:
    """The folders in which a run that finishes in this call leaves a copy of its record and of the tables beside it.

    Snakemake deletes record and history when the run's own job starts, and when a job group is retried, since one of
    its runs failed.

    together: whether the run was trained by another run's job, or with it.
    """
    wanted = call() is not None and (together or process.slurm_job() is not None)
    return [_kept(folder)] if wanted else []


def has_copy(folder: Path) -> bool:
    """Whether there is a copy to `restore`."""
    return (_kept(folder) / grid.RECORD).exists()


def restore(folder: Path, settings: Settings, features_hash: str | None) -> bool:
    """Whether this call has already finished the run; if so, its record and history are restored.

    A copy from another call, or of other settings, features or code, is deleted.
    """
    kept = _kept(folder)
    mine = call()
    record = of_this_code(kept / grid.RECORD, settings, features_hash) if mine is not None else None
    if record is not None and record["call"] == mine:
        for name in _FILES:
            if name == grid.RECORD or name in record["files"]:
                copy_atomic(kept / name, folder / name)
        return True
    forget(folder)
    return False


def in_this_call(folder: Path, settings: Settings, features_hash: str | None) -> bool:
    """Whether this call has already finished the run."""
    mine = call()
    found = (of_this_code(place / grid.RECORD, settings, features_hash) for place in (folder, _kept(folder)))
    return mine is not None and any(record is not None and record["call"] == mine for record in found)


def forget(folder: Path) -> None:
    """Delete the copy, at the end of the call."""
    shutil.rmtree(_kept(folder), ignore_errors=True)


def of_this_code(path: Path, settings: Settings, features_hash: str | None) -> dict[str, Any] | None:
    """The record at `path` if it belongs to these settings and features and to this code, else None."""
    from ketscale.measure.record import check

    found = check(path, settings, features_hash).record
    return found if found is not None and found["code"]["hash"] == code_hash() else None


def _kept(folder: Path) -> Path:
    return folder / "checkpoint" / KEPT
