"""The lock of a host: a timed run has the host to itself, untimed runs share it.

Imports next to nothing: the process that starts the ranks of a run holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from ketscale import process
from ketscale.words import notice

WAITS = "waiting for this host"


def path() -> Path:
    """The file whose lock is the host's; everybody who uses the host must have the same folder for temporary files."""
    return Path(os.environ.get("TMPDIR") or "/tmp") / f"ketscale-host-{process.node_name()}.lock"


@contextlib.contextmanager
def hold(exclusive: bool) -> Iterator[None]:
    """Hold the lock of this host: alone for a timed run, shared for untimed ones, which filelock cannot."""
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    file = _open(path())
    try:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            notice(f"{WAITS}, on which others train (`fuser -v {path()}` names them)")
            fcntl.flock(file, kind)
        yield
    finally:
        os.close(file)


def _open(lock: Path) -> int:
    """Open the file, and make it for all users if there is none.

    In folders such as /tmp the kernel does not open another user's file with O_CREAT (fs.protected_regular in proc(5)).
    """
    with contextlib.suppress(FileNotFoundError):
        return os.open(lock, os.O_RDWR)
    file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    os.fchmod(file, 0o666)
    return file
