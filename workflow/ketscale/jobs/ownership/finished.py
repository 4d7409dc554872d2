"""A run that this call of Snakemake has finished is not trained again when its job starts, or its job group is retried.

Before a retry Snakemake deletes the outputs of the whole job group, also those of finished runs; and before a job its
outputs, also where another job has trained the run. So a copy is kept in the run's folder. It counts only for the call
that made it, and for the same settings, features and code. Imports next to nothing: `ketscale launch` asks here first.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ketscale import grid, process
from ketscale.files import copy_atomic

if TYPE_CHECKING:
    from ketscale.config import Settings
    from ketscale.measure.form import Record
    from ketscale.measure.record import Checked

# The record comes last, since it is refused without the files that it names.
_FILES = (grid.HISTORY, grid.CURVES, grid.RECORD)
# The copy's folder, beside the checkpoints.
KEPT = "finished"


def begin_call() -> None:
    """Name this call of Snakemake. Its jobs, also on other machines, inherit the name with their environment."""
    os.environ["KETSCALE_CALL"] = os.urandom(16).hex()


def call() -> str | None:
    """The call of Snakemake that this process belongs to; None if the run was started by hand."""
    return os.environ.get("KETSCALE_CALL")


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


def copied(folder: Path, settings: Settings) -> Checked:
    """What is found of the copy, whatever call has made it."""
    from ketscale.measure.record import check

    return check(_kept(folder) / grid.RECORD, settings, None)


def restore(folder: Path, settings: Settings, features_hash: str | None) -> bool:
    """Whether this call has already finished the run; if so, its record and history are restored.

    A copy from another call, or of other settings, features or code, is deleted.
    """
    kept = _kept(folder)
    record = _of_this_call(kept, settings, features_hash)
    if record is None:
        forget(folder)
        return False
    for name in _FILES:
        if name == grid.RECORD or name in record.files:
            copy_atomic(kept / name, folder / name)
    return True


def in_this_call(folder: Path, settings: Settings, features_hash: str | None) -> bool:
    """Whether this call has already finished the run."""
    places = (folder, _kept(folder))
    return any(_of_this_call(place, settings, features_hash) is not None for place in places)


def forget(folder: Path) -> None:
    """Delete the copy, at the end of the call."""
    shutil.rmtree(_kept(folder), ignore_errors=True)


def of_this_code(folder: Path, settings: Settings, features_hash: str | None) -> Record | None:
    """The record in a folder if it belongs to these settings and features and to this code, else None."""
    from ketscale.jobs.provenance import code_hash
    from ketscale.measure.record import check

    found = check(folder / grid.RECORD, settings, features_hash).record
    return found if found is not None and found.code.hash == code_hash() else None


def _of_this_call(folder: Path, settings: Settings, features_hash: str | None) -> Record | None:
    """The record in a folder if it belongs to these and this call has written it, else None."""
    mine = call()
    found = of_this_code(folder, settings, features_hash) if mine is not None else None
    return found if found is not None and found.call == mine else None


def _kept(folder: Path) -> Path:
    return folder / "checkpoint" / KEPT
