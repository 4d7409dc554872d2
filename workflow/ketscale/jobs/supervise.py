"""Start a run's ranks, wait until they have ended, and if they failed leave a note that says why.

If something outside ends a run (a time limit, full memory, a lost rank), launchers and SLURM say so on stderr in
their own words. The note says it in ours, with what to do, for `ketscale status` and the end of the run's log.

What only a failure needs is imported then: the ranks wait for this process to start them.
"""

from __future__ import annotations

import collections
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ketscale import process, strict_json
from ketscale.errors import in_words
from ketscale.files import write_atomic
from ketscale.grid import RECORD

NOTE = "failure.json"
_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>
_LINES_KEPT = 200
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
# What ranks say that is no reason to end; what a failing rank has raised comes below its line.
_NOTICE = re.compile(
    r"waiting for this host|.* is training this run; waiting |the checkpoint in this folder belongs to "
    r"|this run was stopped before |rank \d+ failed and ends the run"
)
_NO_SLOTS = re.compile(r"not enough slots available in the system to satisfy the\s+(\d+)")
# Open MPI's and PMIx's words for ranks that did not find each other; MPI_Init returns only when they have.
_MPI_START = re.compile(r"MPI_INIT failed|ompi_mpi_init: |MPI_Init_thread|PMIX ERROR: \S+|opal_init failed")
_RESUMES = "it will resume from its last checkpoint, if there is one"
# What the kernel does when memory runs out, and nobody else tells; not the only reason for this signal.
_PERHAPS_MEMORY = "; perhaps memory ran out: then use more of it, fewer ranks or a smaller batch"
# The last line of a Python traceback; that of torchrun's own traceback is useless.
_RAISED = re.compile(r"^(?!.*ChildFailedError)(?:\w+\.)*\w*(?:Error|Exception)\b.*")


def run(command: str, folder: Path, environment: Mapping[str, str]) -> int:
    """Run a shell command that trains the run in `folder`; returns its exit status, 128 + n after signal n.

    SIGTERM is passed on, so that the run saves a checkpoint. SIGINT of a terminal and SLURM's warning before the time
    limit reach the ranks directly. If a rank or its launcher dies after the run's record is written, the run has
    succeeded.
    """
    (folder / NOTE).unlink(missing_ok=True)
    launch = uuid.uuid4().hex
    before = _written(folder / RECORD)
    asked: list[int] = []
    signal.signal(signal.SIGINT, lambda signum, frame: asked.append(signum))
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    kept: collections.deque[str] = collections.deque(maxlen=_LINES_KEPT)
    # On a terminal the ranks write to it themselves, and the person who watches needs no note.
    watched = sys.stderr.isatty()
    child = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {command}"],
        env={**environment, process.LAUNCH: launch},
        stderr=None if watched else subprocess.PIPE,
        preexec_fn=_become_launcher,
    )

    def pass_on(signum: int, frame: Any) -> None:
        asked.append(signum)
        child.send_signal(signum)
        # A short note at once: the sender of SIGTERM may not wait for the run's own message. One note, since a second
        # signal may come while it is written.
        if len(asked) == 1:
            _leave_note_of(launch, folder, explain([], 128 + signum, signum))

    signal.signal(signal.SIGTERM, pass_on)
    if child.stderr is not None:
        for line in child.stderr:
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
            kept.append(line.decode(errors="replace").rstrip())
    status = child.wait()
    status = 128 - status if status < 0 else status
    if status and _written(folder / RECORD) not in (None, before):
        print(
            f"ketscale: the record is written; what ended afterwards with status {status} changes nothing",
            file=sys.stderr,
            flush=True,
        )
        (folder / NOTE).unlink(missing_ok=True)
        return 0
    if status and not watched:
        reason = explain(list(kept), status, asked[0] if asked else None)
        if "memory" in reason and " --cohort " in command and "cohorts: false" not in reason:
            reason += "; it trained several runs together, which cohorts: false in the config does not"
        if f"ketscale: {reason}" not in kept:
            print(f"ketscale: failed: {reason}", file=sys.stderr, flush=True)
        _leave_note_of(launch, folder, reason)
    return status


def _written(path: Path) -> tuple[int, int] | None:
    """Which writing of a file is there; None for no file. Files are replaced as a whole, so it is never a part."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _become_launcher() -> None:
    """In the child: react to SIGINT again (only the parent ignores it), and get SIGTERM if the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _leave_note_of(launch: str, folder: Path, reason: str) -> None:
    """Leave a note, unless another launch trains the run: that one has not failed."""
    from ketscale.jobs import lease

    held = lease.read(folder)
    others = held and not held["released"] and held.get("launch") != launch
    if held and others and lease.shows_life(held, datetime.now(UTC)):
        return
    try:
        leave_note(folder, reason)
    except OSError as error:
        # Where no note can be written the run itself has failed of that; and ranks may still be saving something.
        print(f"ketscale: {in_words(error) or error}", file=sys.stderr, flush=True)


def leave_note(folder: Path, reason: str) -> None:
    """Write into the run's folder why it failed; the next start deletes the note."""
    note = {
        "reason": reason,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "job": process.slurm_job(),
        "call": os.environ.get("KETSCALE_CALL"),
    }
    write_atomic(folder / NOTE, (json.dumps(note, indent=1) + "\n").encode())


def read_note(folder: Path) -> dict[str, Any] | None:
    """The note in a run's folder; None if there is none, empty if it cannot be read."""
    try:
        note = strict_json.loads((folder / NOTE).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def explain(lines: Sequence[str], status: int, stopped: int | None) -> str:
    """Why a run failed, in one line, from the last lines of it and its launcher.

    Args:
        lines: the last lines of its stderr.
        status: its exit status.
        stopped: the signal by which it was told to stop, if it was.
    """
    text = "\n".join(lines)
    own = [line.removeprefix("ketscale: ") for line in lines if line.startswith("ketscale: ")]
    if _OUT_OF_MEMORY.search(text):
        return _out_of_memory()
    saved = next((line for line in reversed(own) if line.startswith("stopped")), None)
    ended = _ENDED.search(text)
    why = _asked_by((ended and ended["why"]) or "")
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
    dead = next((found for pattern in _DEAD_RANK if (found := pattern.search(text))), None)
    if dead and not (raised and dead["how"] == "Killed"):
        where = f" on {dead['host']}" if "host" in dead.groupdict() else ""
        why = _PERHAPS_MEMORY if dead["how"] in ("Killed", "SIGKILL") else ""
        return f"rank {dead['rank']}{where} died ({dead['how']}), and the others were ended{why}"
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
