"""One writer for a run, and one Snakemake for a folder.

The kernel gives the lock of a process back when that ends, whatever ends it. On a file system without locks filelock
leaves a file instead, which stays there if its process is killed on another host.
"""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from ketscale import process
from ketscale.files import write_atomic

# The lock's file in the folder that it is about, and what its last holder says about itself.
LOCK, HOLDER = "run.lock", "holder.json"
# Somebody who only asks who holds a lock has it for some microseconds.
_PATIENCE_S, _POLL_S = 0.3, 0.02


class Holder(msgspec.Struct, frozen=True):
    """The last process that held a lock.

    launch: equal for the runs that one process trained together. since, until: ISO 8601; until is None if it still holds
    the lock, or was killed. finished: whether it did what it held the lock for.
    """

    host: str
    pid: int
    job: str | None
    launch: str | None
    since: str
    until: str | None = None
    finished: bool = False

    def __str__(self) -> str:
        job = f", SLURM job {self.job}" if self.job else ""
        return f"process {self.pid} on {self.host}{job}, since {self.since}"


class Lock:
    """The right to write into a folder.

    finished: the holder sets it when it has done what it holds the lock for. former: who held it before without that.
    """

    def __init__(self, folder: Path) -> None:
        """Do not take the lock yet."""
        self.folder = folder
        self.former: Holder | None = None
        self.finished = False
        self._lock = FileLock(folder / LOCK, timeout=_PATIENCE_S, thread_local=False)
        self._me: Holder | None = None

    def acquire(self) -> bool:
        """Take the lock unless another process holds it; whether this one holds it now.

        Raises:
            OSError: the folder cannot be written.
        """
        if self._me is not None:
            return True
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(poll_interval=_POLL_S)
        except Timeout:
            return False
        before = last(self.folder)
        self.former = None if before is None or before.finished else before
        me = process.node_name(), os.getpid(), process.slurm_job(), os.environ.get(process.LAUNCH), now()
        self._me = Holder(*me)
        self._note(self._me)
        return True

    def release(self, untouched: bool = False) -> None:
        """Give the lock back, if it is held; untouched: nothing was done, and what its former holder says stays."""
        if self._me is None:
            return
        note = msgspec.structs.replace(self._me, until=now(), finished=self.finished or untouched)
        with contextlib.suppress(OSError):  # a full disk may have room later
            self._note((untouched and self.former) or note)
        self._me = None
        self._lock.release()

    def _note(self, holder: Holder) -> None:
        write_atomic(self.folder / HOLDER, msgspec.json.encode(holder))


def last(folder: Path) -> Holder | None:
    """The last holder of a folder's lock; None if there was none, or its note is damaged."""
    try:
        return msgspec.json.decode((folder / HOLDER).read_bytes(), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return None


def holder(folder: Path) -> Holder | None:
    """The process that holds a folder's lock now; None if there is none."""
    noted = last(folder)
    if noted is None or noted.until is not None:
        return None
    try:
        with FileLock(folder / LOCK, timeout=0):
            return None
    except (Timeout, OSError):  # it is held, or is another user's, or nothing can be written here
        return noted


def now() -> str:
    """The time of day, in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
