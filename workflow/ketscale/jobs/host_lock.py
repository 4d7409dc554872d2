"""The lock of a host: a timed run has the host to itself, untimed runs share it.

Imports next to nothing: the process that starts the ranks of a run holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from ketscale import process
from ketscale.errors import UserError
from ketscale.words import say

# A run that waits looks this often whether the lock is free.
_LOOK_S = 0.2
WAITS = "waiting for this host"


def path() -> Path:
    """The file whose lock is the host's; everybody who uses the host must have the same folder for temporary files."""
    return Path(os.environ.get("TMPDIR") or "/tmp") / f"ketscale-host-{process.node_name()}.lock"


@contextlib.contextmanager
def hold(timed: bool) -> Iterator[None]:
    """Hold the lock of this host: alone for a timed run, shared for untimed ones, which filelock cannot.

    Raises:
        UserError: the lock's file cannot be opened.
    """
    lock, kind = path(), fcntl.LOCK_EX if timed else fcntl.LOCK_SH
    file = _open(lock)
    try:
        told = False
        while True:
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    say(f"{WAITS}, on which others train (`fuser -v {lock}` names them)")
                told = True
                time.sleep(_LOOK_S)
        yield
    finally:
        os.close(file)


def _open(lock: Path) -> int:
    """Open the file, and make it for all users if there is none.

    In a folder such as /tmp the kernel refuses to open another user's file with O_CREAT (fs.protected_regular in proc(5)).
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            return os.open(lock, os.O_RDWR)
        file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        os.fchmod(file, 0o666)
        return file
    except OSError as error:
        raise UserError(
            f"{lock}: cannot be the lock by which runs take turns on this host ({error.strerror}): let its owner move it "
            "away, or set TMPDIR to another folder, the same for everyone who trains on this host"
        ) from None
