"""The lock of a host: a timed run has the host to itself, untimed runs share it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pwd
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ketscale import process
from ketscale.errors import UserError
from ketscale.grid import RECORD
from ketscale.process import node_name

# A run that waits looks this often whether the lock is free.
_LOOK_S = 0.2
_LOCKS = Path("/proc/locks")
# Untimed runs share the lock: this many of them are named, and the others are counted.
_NAMED = 3


def path() -> Path:
    """The file whose lock is the host's; everybody who uses the host must have the same folder for temporary files."""
    return Path(tempfile.gettempdir()) / f"ketscale-host-{node_name()}.lock"


@contextlib.contextmanager
def hold(timed: bool, ranks: int, waits: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of this host from before the ranks connect: alone for a timed run, shared for untimed runs.

    One rank of a timed run on this host takes the lock, and writes into the file which launcher started all of them; the
    others sleep until they read it. (They do not wait in a collective, since MPI waits by spinning, which would disturb
    the run that holds the lock.) Which rank that is, the kernel decides: variables of launchers may be left from others.

    Args:
        ranks: of the run, all of which one launcher has started on this host. One rank alone is started by anything.
        waits: called on one of the ranks, a few times a second while others hold the lock, with who they are.

    Raises:
        UserError: the lock's file cannot be opened.
    """
    file = _open(path())
    number = int.from_bytes(hashlib.sha256(process.launcher().encode()).digest()[:7])
    launcher = f"{number:<20}".encode()
    first = ranks == 1
    try:
        while True:
            # This is asked each time, since the first may have died.
            first = first or _is_first(file, number)
            if timed and not first:
                if os.pread(file, len(launcher), 0) == launcher:
                    break
                time.sleep(0.02)
                continue
            if _try(file, fcntl.LOCK_EX if timed else fcntl.LOCK_SH):
                break
            if first:
                waits(_holders(file))
            time.sleep(_LOOK_S)
        if timed and first:
            os.pwrite(file, launcher, 0)
        yield
    finally:
        os.close(file)


def _open(lock: Path) -> int:
    """Open the file for reading and writing, and make it for all users if there is none.

    In a folder such as /tmp the kernel refuses to open another user's file with O_CREAT (fs.protected_regular in
    proc(5)), so that is used only for a new file. Links are not followed: anyone may put one there.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            file = os.open(lock, flags)
        except FileNotFoundError:
            previous = os.umask(0)
            try:
                file = os.open(lock, flags | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:  # another run was faster
                continue
            except OSError as error:
                raise _refused(lock, str(error.strerror)) from None
            finally:
                os.umask(previous)
        except OSError as error:
            raise _refused(lock, str(error.strerror)) from None
        if stat.S_ISREG(os.fstat(file).st_mode):
            return file
        os.close(file)
        raise _refused(lock, "not a regular file")


def _refused(lock: Path, why: str) -> UserError:
    return UserError(
        f"{lock}: cannot be the lock by which runs take turns on this host ({why}): let its owner move it away, or "
        "set TMPDIR to another folder, the same for everyone who trains on this host"
    )


def _is_first(file: int, launcher: int) -> bool:
    """Whether this process has, or now gets, the lock of one byte that stands for its launcher.

    Such locks (fcntl_locking(2)) have nothing to do with those of whole files (flock(2)), and a process loses them when
    it ends.
    """
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, launcher)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _try(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holders(file: int) -> str:
    """The processes that hold the lock, in words, from the kernel's list of locks (proc_locks(5)).

    Processes that wait have an arrow before FLOCK there. A line may come twice while other locks change.
    """
    status = os.fstat(file)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for line in _LOCKS.read_text().splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5] == f"{device}:{status.st_ino}" and int(words[4]) not in pids:
                pids.append(int(words[4]))
    if not pids:  # in another container, or it has just ended
        return "a process that cannot be seen from here"
    more = f" and {len(pids) - _NAMED} more" if len(pids) > _NAMED else ""
    return ", ".join(_described(pid) for pid in pids[:_NAMED]) + more


def _described(pid: int) -> str:
    """A process with its user, and its run if it trains one."""
    said = f"process {pid}"
    with contextlib.suppress(OSError):
        user = os.stat(f"/proc/{pid}").st_uid
        try:
            said += f" of {pwd.getpwuid(user).pw_name}"
        except KeyError:
            said += f" of user {user}"
        run = next((word for word in process.command_of(pid) if word.endswith(f"/{RECORD}")), None)
        said += f" ({run.removesuffix(f'/{RECORD}')})" if run else ""
    return said
