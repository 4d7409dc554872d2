"""Starts a run's ranks, waits until they have ended, and leaves a note that says why if they failed.

If something outside ends a run (a time limit, full memory, a lost rank), launchers and SLURM say so on stderr in
their own words. The note says it in ours, with what to do, for `ketscale status` and the end of the run's log.

Modules that only a failure needs are imported then: the ranks wait for this process to start them.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ketscale import process, strict_json
from ketscale.errors import in_words
from ketscale.grid import RECORD
from ketscale.words import say

if TYPE_CHECKING:
    from ketscale.jobs.slurm.attempt import Attempt

NOTE = "failure.json"
_LINES_KEPT = 200
# A rank that outlives its launcher may save a checkpoint, and is killed after _GRACE_S. The kernel may hold it in a system
# call even then, but nobody waits for it longer than _GONE_S.
_GRACE_S, _GONE_S = 10.0, 10.0
# How often to look whether the launcher has ended although others can still say something, and then whether they have.
_LOOK_S, _LOOK_OFTEN_S = 1.0, 0.1
# The times of files may be this far behind the clock.
_SLACK_S = 1.0
_OUT_OF_MEMORY = re.compile(
    r"oom[-_ ]kill|out[- ]of[- ]memory (handler|killer)|task \d+: Out Of Memory", re.IGNORECASE
)
_ENDED = re.compile(r"CANCELLED AT \S+(?: DUE TO (?P<why>[^*]+))? \*\*\*")
# Each launcher's words for a rank that a signal has ended, but not for the ranks that srun or torchrun end
# afterwards. srun calls those Killed, so that pattern comes last: another signal of the first rank is found before
# it.
_DEAD_RANK = (
    re.compile(
        r"srun: error: (?P<host>\S+): tasks? (?P<rank>\d+)\S*: (?P<how>Segmentation fault|Bus error|Aborted)"
    ),
    # Open MPI 5 wraps its lines at any space.
    re.compile(
        r"process\s+rank\s+(?P<rank>\d+)\s+with\s+PID\s+\d+\s+on\s+node\s+(?P<host>\S+)\s+exited\s+on\s+signal\s+\d+\s+\((?P<how>[^)]+)\)"
    ),
    re.compile(
        r"rank\s*: (?P<rank>\d+) \(local_rank: \d+\)\n\s*exitcode\s*: -(?!15 )\d+ .*\n.*\n.*Signal \d+ \((?P<how>SIG\w+)\)"
    ),
    re.compile(r"srun: error: (?P<host>\S+): tasks? (?P<rank>\d+)\S*: (?P<how>Killed)"),
)
# Lines of ranks that are no reason to end; what a failing rank has raised comes below its line.
_NOTICE = re.compile(
    r"trains \d+ runs together: |.* is training this run; waiting until |the checkpoint in .* belongs to "
    r"|.*, and the run starts from the beginning$|.*: its steps are taken again "
    r"|this run was stopped before |rank \d+ failed and ends the run"
)
# This many dead ranks are named.
_NAMED = 3
_NO_SLOTS = re.compile(r"not enough slots available in the system to satisfy the\s+(\d+)")
# Open MPI's and PMIx's words for ranks that did not find each other; MPI_Init returns only when they have.
_MPI_START = re.compile(r"MPI_INIT failed|ompi_mpi_init: |MPI_Init_thread|PMIX ERROR: \S+|opal_init failed")
_RESUMES = "it will resume from its last checkpoint, if there is one"
# The kernel sends this signal when memory runs out, and nobody else tells; there may be other reasons for it.
_PERHAPS_MEMORY = "; perhaps memory ran out: then use more of it, fewer ranks or a smaller batch"
# The last line of a Python traceback; that of torchrun's own traceback is useless.
_RAISED = re.compile(r"^(?!.*ChildFailedError)(?:\w+\.)*\w*(?:Error|Exception)\b.*")


def run(command: str, folder: Path, environment: Mapping[str, str]) -> int:
    """Run a shell command that trains the run in `folder`; returns its exit status, 128 + n after signal n.

    SIGTERM is passed on, so that the run saves a checkpoint. SIGINT of a terminal and SIGUSR1 of a user reach the
    ranks directly. Ranks that outlive their launcher are ended. If a rank or its launcher dies after
    the run's record is written, the run has succeeded.
    """
    (folder / NOTE).unlink(missing_ok=True)
    launch = os.urandom(16).hex()
    before = _written(folder / RECORD)
    asked: list[int] = []
    signal.signal(signal.SIGINT, lambda signum, frame: asked.append(signum))
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    kept: collections.deque[str] = collections.deque(maxlen=_LINES_KEPT)
    # On a terminal the ranks write to it themselves, and the person who watches needs no note.
    watched = sys.stderr.isatty()
    process.adopt_orphans()
    started_s = time.time()
    child = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {command}"],
        env={**environment, process.LAUNCH: launch},
        stderr=None if watched else subprocess.PIPE,
        preexec_fn=functools.partial(_become_launcher, os.getpid()),
    )

    def pass_on(signum: int, frame: Any) -> None:
        asked.append(signum)
        child.send_signal(signum)
        child.send_signal(signal.SIGCONT)  # a process that is stopped would not heed it
        # A short note is left at once: the sender of SIGTERM may not wait for the run's own message. It is left once, since a
        # second signal may come while it is written.
        if len(asked) == 1:
            leave_note_of(launch, folder, explain([], 128 + signum, signum))

    signal.signal(signal.SIGTERM, pass_on)
    attempt = None
    if job := process.slurm_job():
        from ketscale.jobs.slurm.attempt import Attempt

        attempt = Attempt(folder, job)
    orphaned = _follow(child, kept, attempt)
    status = child.wait()
    # Ranks that a failed launcher left have nothing to do with why it failed; if it was killed, they do.
    orphaned = orphaned and status < 0
    if status:
        _remove_session(child.pid, started_s)
    status = 128 - status if status < 0 else status
    if status and _written(folder / RECORD) not in (None, before):
        say(f"the record is written; what ended afterwards with status {status} changes nothing")
        (folder / NOTE).unlink(missing_ok=True)
        return 0
    if status and not watched:
        reason = explain(list(kept), status, asked[0] if asked else None, orphaned)
        if "memory" in reason and " --cohort " in command and "cohorts: false" not in reason:
            reason += "; it trained several runs together, which cohorts: false in the config does not"
        if f"ketscale: {reason}" not in kept:
            say(f"failed: {reason}")
        leave_note_of(launch, folder, reason)
    return status


class _Echo:
    """What processes say on a pipe: passed on to stderr, and the last lines kept."""

    def __init__(self, said: IO[bytes] | None, kept: collections.deque[str]) -> None:
        self._said = said
        self._kept = kept
        self._begun = b""

    def pass_on(self, within_s: float) -> bool:
        """Pass on what is said next, in some time; False at once if nobody is left who could say anything."""
        if self._said is None:
            return False
        if select.select([self._said], [], [], within_s)[0]:
            part = os.read(self._said.fileno(), 1 << 16)
            sys.stderr.buffer.write(part)
            sys.stderr.buffer.flush()
            *lines, self._begun = (self._begun + part).split(b"\n")
            if not part:
                self._said = None
                lines = [self._begun] if self._begun else []
            self._kept.extend(line.decode(errors="replace").rstrip() for line in lines)
        return self._said is not None


def _follow(child: subprocess.Popen[bytes], kept: collections.deque[str], attempt: Attempt | None) -> bool:
    """Pass on what a process and those below it say, until all of them have ended.

    Processes that outlive it are told to stop, and killed if they do not: ranks whose launcher was killed would train
    on, or wait for one another for ever.

    Returns:
        Whether any outlived it.
    """
    echo = _Echo(child.stderr, kept)
    while child.poll() is None:
        if attempt:
            attempt.look()
        if not echo.pass_on(_LOOK_S):
            child.wait()
    end = time.monotonic() + _GRACE_S
    told: set[int] = set()
    while _any_left():
        left = process.descendants(os.getpid())
        if time.monotonic() > end + _GONE_S:
            say(f"going on without processes that cannot be killed: {left}")
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if time.monotonic() > end:
                    os.kill(pid, signal.SIGKILL)
                elif pid not in told:
                    os.kill(pid, signal.SIGTERM)
                    os.kill(pid, signal.SIGCONT)  # a process that is stopped would not heed it
        told.update(left)
        if not echo.pass_on(_LOOK_OFTEN_S):
            time.sleep(_LOOK_OFTEN_S)
    end = time.monotonic() + _GONE_S
    while echo.pass_on(_LOOK_S) and time.monotonic() < end:
        pass
    return bool(told)


def _any_left() -> bool:
    """Whether anything that this process has started or adopted is left; how the others ended is forgotten."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _written(path: Path) -> tuple[int, int] | None:
    """The writing of a file that is there; None for no file. Files are replaced as a whole, so it is never a part."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _become_launcher(parent: int) -> None:
    """In the child: react to SIGINT again (only the parent ignores it), and get SIGTERM if the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    process.end_with_parent(parent)


def leave_note_of(launch: str, folder: Path, reason: str) -> None:
    """Leave a note, unless another launch trains the run: that one has not failed."""
    from ketscale.jobs import locks

    other = locks.holder(folder)
    if other is not None and other.launch != launch:
        return
    try:
        leave_note(folder, reason)
    except OSError as error:
        # A run that cannot write a note has failed of just that, and ranks may still be saving something.
        say(in_words(error) or error)


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


def _remove_session(pid: int, started_s: float) -> None:
    """Remove what an mpirun that was killed leaves in the folder for temporary files.

    Containers may share that folder and count their processes each by themselves. What is older than the start of this
    launch (seconds since 1970), or of another user, is another's.
    """
    import tempfile

    temporary = Path(tempfile.gettempdir())
    for name in (f"ompi.{pid}", f"prte.*/dvm.{pid}", f"ompi.*/pid.{pid}"):
        for folder in temporary.glob(name):
            with contextlib.suppress(OSError):
                found = folder.lstat()
                if found.st_uid == os.geteuid() and found.st_mtime > started_s - _SLACK_S:
                    shutil.rmtree(folder, ignore_errors=True)


def explain(lines: Sequence[str], status: int, stopped: int | None, orphaned: bool = False) -> str:
    """Why a run failed, in one line, from the last lines of it and its launcher.

    Args:
        lines: the last lines of its stderr.
        status: its exit status.
        stopped: the signal by which it was told to stop, if it was.
        orphaned: whether its launcher was killed, and the ranks were ended afterwards.
    """
    text = "\n".join(lines)
    own = [line.removeprefix("ketscale: ") for line in lines if line.startswith("ketscale: ")]
    if _OUT_OF_MEMORY.search(text):
        return _out_of_memory()
    saved = next((line for line in reversed(own) if line.startswith("stopped")), None)
    ended = _ENDED.search(text)
    why = _asked_by((ended and ended["why"]) or "")
    if orphaned and not why and not stopped:
        # The kernel, when memory runs out, does not tell the launcher from the ranks.
        memory = _PERHAPS_MEMORY if status == 128 + signal.SIGKILL else ""
        why = f"the launcher of its ranks was killed ({_name(status)}), so they were ended{memory}"
    if why or stopped or saved:
        why = why or ("it was interrupted (Ctrl-C)" if stopped == signal.SIGINT else why_stopped())
        return f"{why}; {saved or _RESUMES}"
    told = [line for line in own if not _NOTICE.match(line)]
    if told:
        return told[-1]
    short = _NO_SLOTS.search(text)
    if short:
        return (
            f"Open MPI has fewer slots (cores) than the run's {short[1]} ranks: take a layout with fewer, or let ranks "
            "share cores with PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe in the environment"
        )
    raised = [line for line in lines if _RAISED.match(line)]
    began = _MPI_START.search(text)
    if began and not raised:
        return (
            f"MPI failed while the ranks started ({began[0].rstrip(': ')}), before the run began: run it again; "
            "if it fails each time, `ketscale doctor` starts two ranks of the same MPI"
        )
    dead = next((found for pattern in _DEAD_RANK if (found := list(pattern.finditer(text)))), [])
    how = dead[0]["how"] if dead else ""
    if dead and not (raised and how == "Killed"):
        # Ranks that srun ends are killed too, and it may name them before the one that died.
        named = [f"rank {one['rank']}{_on(one)}" for one in dead if one["how"] == how]
        more = f" or {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        why = _PERHAPS_MEMORY if how in ("Killed", "SIGKILL") else ""
        return f"{' or '.join(named[:_NAMED])}{more} died ({how}), and the others were ended{why}"
    if raised:
        return f"exit status {status}: {raised[-1]}"
    if ended or status == 128 + signal.SIGTERM:
        return f"it was cancelled; {_RESUMES}"
    last = next(
        (
            line
            for line in reversed(lines)
            if line.strip("-=* \0") and not line.startswith(("srun: ", "ketscale: "))
        ),
        None,
    )
    if last is None and status == 128 + signal.SIGKILL:
        return f"it was killed (SIGKILL) and said nothing{_PERHAPS_MEMORY}"
    last = last or "no message"
    return f"exit status {status}: {last}"


def _on(dead: re.Match[str]) -> str:
    """The node of a dead rank, where its launcher names it."""
    return f" on {dead['host']}" if "host" in dead.groupdict() else ""


def _name(status: int) -> str:
    """The signal that an exit status stands for."""
    try:
        return signal.Signals(status - 128).name
    except ValueError:
        return f"signal {status - 128}"


def why_stopped() -> str:
    """Why this process was told to stop, as far as SLURM already knows."""
    from ketscale.jobs.slurm import queue

    job = process.slurm_job()
    return (_asked_by(queue.state(job)) if job else None) or "it was told to stop (SIGTERM)"


def _asked_by(said: str) -> str | None:
    """What SLURM's words for the end of a job mean; None if they say nothing."""
    from ketscale.jobs.slurm import site

    said = said.lower().replace(" ", "")
    if "timelimit" in said or "timeout" in said:
        return f"it reached its time limit (minutes in {site.PATH}; a retry asks for more)"
    if "preempt" in said:
        return "it was preempted"
    if "requeue" in said:
        return "its job was requeued"
    if "nodefail" in said:
        return "its node failed"
    return "it was cancelled" if "cancelled" in said else None


def _out_of_memory() -> str:
    """Advice after running out of memory. Only the limit is known: the kernel does not say how much was needed."""
    from ketscale.jobs.slurm import queue, site

    job = process.slurm_job()
    asked = queue.memory_mb(job) if job else None
    if asked is None:
        return "out of memory: the kernel ended a rank; use more memory, fewer ranks or a smaller batch"
    return (
        f"out of memory: the job asked for {asked} MB per node and needs more. A retry asks for more, if the "
        f"partition has it; to start with more, raise memory_mb in {site.PATH} so that a node gets {2 * asked} MB"
    )
