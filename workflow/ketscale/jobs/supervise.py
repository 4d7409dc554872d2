"""Starts a run's ranks, waits until they have ended, and leaves a note that says why if they failed.

The note is for `ketscale status` and the end of the run's log. The output of the ranks and of their launchers is in
it as they are; ours are only those that say what to do about memory, a time limit or a stop.

Modules that only a failure needs are imported then: the ranks wait for this process to start them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ketscale import process, strict_json
from ketscale.grid import RECORD
from ketscale.words import HEAD, NOTICE, notice, say

NOTE = "failure.json"
# At most so many bytes at the end of a run's output are searched for the reason.
_READ = 1 << 16
# A rank that outlives its launcher may save, and is killed after _GRACE_S. What a hanging disk holds is left after _GONE_S.
_GRACE_S, _KILLED_S, _LOOK_OFTEN_S = 10.0, 20.0, 0.1
# How often it is asked whether a time limit is near. More often would disturb a timed run.
_LOOK_S = 1.0
_OUT_OF_MEMORY = re.compile(r"(?i)oom[-_ ]kill|out[- ]of[- ]memory (handler|killer)|task \d+: out of memory")
_CANCELLED = re.compile(r"CANCELLED AT \S+ DUE TO (TIME LIMIT|PREEMPTION|NODE FAILURE) \*\*\*")
# How launchers name ranks that a signal has ended, also those that they have ended themselves.
_DEAD_RANK = re.compile(
    r"srun: .*(?:Killed|Segmentation fault|Bus error|Aborted)|signal \d+ \((?!Terminated)|Signal (?!15 )\d+ \(SIG"
)
# The last line of a traceback, but of torchrun's own.
_RAISED = re.compile(r"^(?!.*ChildFailedError)(?:\w+\.)*\w*(?:Error|Exception)\b.*")
_RESUMES = "it will resume from its last checkpoint, if there is one"
# The kernel sends this signal when memory runs out, and nothing else reports it; there may be other reasons for it.
_PERHAPS_MEMORY = "; perhaps memory ran out: then use more of it, fewer ranks or a smaller batch"
# The description of a status without another message.
_ENDINGS = {
    128 + signal.SIGTERM: f"it was cancelled; {_RESUMES}",
    128 + signal.SIGKILL: f"it was killed (SIGKILL){_PERHAPS_MEMORY}",
}


def run(command: str, folder: Path, environment: Mapping[str, str]) -> int:
    """Run a shell command that trains the run in `folder`; returns its exit status, 128 + n after signal n.

    SIGTERM is passed on, so that the run saves a checkpoint. SIGINT of a terminal reaches the ranks directly. Ranks that
    outlive their launcher are ended. If a rank or its launcher dies after the run's record is written, the run has succeeded.
    """
    (folder / NOTE).unlink(missing_ok=True)
    launch = os.urandom(16).hex()
    before, offset = _stamp(folder / RECORD), os.fstat(2).st_size
    signals: list[int] = []
    signal.signal(signal.SIGINT, lambda signum, frame: signals.append(signum))
    process.adopt_orphans()
    child = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {command}"],
        env={**environment, process.LAUNCH: launch},
        preexec_fn=functools.partial(process.end_with_parent, os.getpid()),
    )

    def pass_on(signum: int, frame: Any) -> None:
        signals.append(signum)
        child.send_signal(signum)
        child.send_signal(signal.SIGCONT)  # a process that is stopped would not heed it

    signal.signal(signal.SIGTERM, pass_on)
    _look_at_limit(folder)
    status = child.wait()
    signal.alarm(0)
    _end_orphans()
    status = 128 - status if status < 0 else status
    if status and _stamp(folder / RECORD) not in (None, before):
        notice(f"the record is written; what ended afterwards with status {status} changes nothing")
        (folder / NOTE).unlink(missing_ok=True)
        return 0
    # The person who watches a terminal needs no note.
    if status and not os.isatty(2):
        lines = _messages(offset)
        reason = explain(lines, status, signals[0] if signals else None)
        if f"{HEAD}{reason}" not in lines:
            say(f"failed: {reason}")
        leave_note_of(launch, folder, reason)
    return status


def _look_at_limit(folder: Path) -> None:
    """In a SLURM job, look by an alarm whether its time limit is near, so that it is requeued if the run got further."""
    job = process.slurm_job()
    if job is None:
        return
    from ketscale.jobs.slurm.attempt import Attempt

    attempt = Attempt(folder, job)

    def look(signum: int, frame: Any) -> None:
        attempt.look()
        signal.setitimer(signal.ITIMER_REAL, _LOOK_S)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_S)


def _end_orphans() -> None:
    """Tell what outlives the launcher to stop, and kill what does not.

    Ranks whose launcher was killed would train on, or wait for one another for ever.
    """
    began, signalled = time.monotonic(), set[int]()
    while orphans := process.descendants(os.getpid()):
        expired = time.monotonic() > began + _GRACE_S
        if time.monotonic() > began + _KILLED_S:
            notice(f"continuing without processes that cannot be killed: {orphans}")
            return
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if expired or pid not in signalled:
                    os.kill(pid, signal.SIGKILL if expired else signal.SIGTERM)
                    os.kill(pid, signal.SIGCONT)  # a process that is stopped would not heed it
        signalled.update(orphans)
        time.sleep(_LOOK_OFTEN_S)


def _messages(start: int) -> list[str]:
    """The last lines on stderr after its first `start` bytes, if it is a file such as a run's log."""
    if not stat.S_ISREG(os.fstat(2).st_mode):
        return []
    with open("/proc/self/fd/2", "rb") as log:
        log.seek(max(start, log.seek(0, os.SEEK_END) - _READ))
        return [line.rstrip() for line in log.read().decode(errors="replace").split("\n")]


def _stamp(path: Path) -> tuple[int, int] | None:
    """The writing of a file that is there; None for no file. Files are replaced as a whole, so it is never a part."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def leave_note_of(launch: str, folder: Path, reason: str) -> None:
    """Leave a note, unless another launch trains the run: that one has not failed."""
    from ketscale.jobs import locks

    other = locks.holder(folder)
    if other is None or other.launch == launch:
        # A run that cannot write a note has failed for that reason, and has reported it.
        with contextlib.suppress(OSError):
            leave_note(folder, reason)


def leave_note(folder: Path, reason: str) -> None:
    """Write into the run's folder why it failed; the next start deletes the note."""
    note = {
        "reason": reason,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "job": process.slurm_job(),
        "call": process.call(),
    }
    strict_json.write(folder / NOTE, note)


def read_note(folder: Path) -> dict[str, Any] | None:
    """The note in a run's folder; None if there is none, empty if it cannot be read."""
    return strict_json.of_note(folder / NOTE) or ({} if (folder / NOTE).exists() else None)


def explain(lines: Sequence[str], status: int, stopped: int | None) -> str:
    """Why a run failed, in one line, from the last lines of it and its launcher.

    Args:
        lines: the last lines of its stderr.
        status: its exit status.
        stopped: the signal that stopped it, if any.
    """
    text = "\n".join(lines)
    if _OUT_OF_MEMORY.search(text):
        return (
            "out of memory: the kernel ended a rank; use fewer ranks, a smaller batch, cohorts: false or more memory "
            "(memory_mb in a cluster's site file; a retry asks for twice as much)"
        )
    own = [line.removeprefix(HEAD) for line in lines if line.startswith(HEAD) and not line.startswith(NOTICE)]
    saved = next((line for line in reversed(own) if line.startswith("stopped")), None)
    cancelled = _CANCELLED.search(text)
    if cancelled or stopped or saved:
        # The remaining ranks save; their launcher asks them to if one of them, or it, was killed.
        cause = "it was interrupted (Ctrl-C)" if stopped == signal.SIGINT else why_stopped()
        if cancelled:
            limit = "minutes in a cluster's site file"
            cause = f"SLURM ended it: {cancelled[1].lower()}" + f" ({limit})" * (cancelled[1] == "TIME LIMIT")
        elif not stopped and status == 128 + signal.SIGKILL:
            cause = _ENDINGS[status]
        return f"{cause}; {saved or _RESUMES}"
    if own:
        return own[-1]
    if raised := [line for line in lines if _RAISED.match(line)]:
        return f"exit status {status}: {raised[-1]}"
    text_lines = [line.strip() for line in lines if line.strip("-=* \0") and not line.startswith(HEAD)]
    dead = [line for line in text_lines if _DEAD_RANK.search(line)]
    # srun kills the ranks that are left, and may name them before the one that died of something else.
    first = [line for line in dead if not re.search("Killed|SIGKILL", line)] or dead
    if errors := first[:3] or [line for line in text_lines if not line.startswith("srun: ")][-1:]:
        memory = _PERHAPS_MEMORY if first and re.search("Killed|SIGKILL", first[0]) else ""
        return f"exit status {status}: {'; '.join(errors)}{memory}"
    return _ENDINGS.get(status, f"exit status {status}: without a message, or not in a file")


def why_stopped() -> str:
    """Why this process was stopped, as far as SLURM already knows."""
    from ketscale.jobs.slurm import queue

    state = queue.state(process.slurm_job())
    return f"it was stopped ({state or 'SIGTERM'})"
