"""A run that has its result is not trained again, although Snakemake starts its job.

Snakemake starts it if it did not see the run end, or if another run of its job group failed. And the job of one run may
have trained others with it, written to their checkpoints' folders: each run's own job puts them in their place, those of
this call in the rule itself (train.smk). Imports next to nothing: `ketscale launch` asks here first.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ketscale.files import copy_atomic
from ketscale.grid import HISTORY, RECORD

if TYPE_CHECKING:
    from ketscale.config import Settings
    from ketscale.measure.form import Record

# Another run's job leaves a record and its tables here, in the run's folder.
KEPT = "checkpoint/finished"
# A file there that names their call: it is written last.
OF_CALL = "of-{}"
# Set in a call of Snakemake that trains runs again.
AGAIN = "KETSCALE_AGAIN"


def right(folder: Path, settings: Settings, features_hash: str | None) -> Record | None:
    """The record in a folder if it belongs to these settings and features and to this code, else None.

    In a call that trains runs again it also belongs to this call: its job groups may be retried.
    """
    from ketscale import process
    from ketscale.jobs.provenance import code_hash
    from ketscale.measure.record import check

    if not (folder / RECORD).exists():
        return None
    record = check(folder / RECORD, settings, features_hash).record
    if record is None or (AGAIN in os.environ and record.call != process.call()):
        return None
    return record if record.code.hash == code_hash() else None


def has_result(folder: Path, settings: Settings, features_hash: str | None) -> bool:
    """Whether a run, in its folder, need not be trained."""
    return any(right(place, settings, features_hash) for place in (folder / KEPT, folder))


def result(folder: Path, settings: Settings, features_hash: str | None) -> Record | None:
    """The record of a run that need not be trained, in its place and newer than all that it was made from; else None."""
    if record := right(folder / KEPT, settings, features_hash):
        # The record comes last, since it is invalid without the others.
        for name in (HISTORY, RECORD):
            if (folder / KEPT / name).exists():
                copy_atomic(folder / KEPT / name, folder / name)
        shutil.rmtree(folder / KEPT, ignore_errors=True)
    elif record := right(folder, settings, features_hash):
        for name in (HISTORY, RECORD):
            os.utime(folder / name)
    return record
