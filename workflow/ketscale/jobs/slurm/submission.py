"""Jobs that SLURM rejects temporarily are submitted again: its executor would count each as a failed attempt of the runs.

snakemake-executor-plugin-slurm has no option for it (its issues 313 and 320). A refusal that passes (a limit on submitted
jobs, an inactive partition, a controller that does not answer) is followed by a pause and another try; one that no wait
changes stays the executor's error. All of it is in the process that submits, and ends with it.
"""

from __future__ import annotations

import contextlib
import functools
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ketscale.errors import UserError, short
from ketscale.jobs.slurm import queue
from ketscale.words import say

_PAUSE_S, _LONGEST_S, _LOOK_S = 5.0, 300.0, 0.5
# More jobs than a queue has at a time, each of which may wait; threads start as they are needed.
_MOST = 10_000
_ENDS = "it was not submitted, since the call ends"
# Errors that waiting cannot fix (slurm_errno.c); all others may pass, also unknown ones. A limit of an account or
# QoS passes if it is one on submitted jobs; older versions do not name the limit.
_FOR_GOOD = re.compile(
    r"(?i:invalid (account|partition|qos|feature|generic|trackable|license|node name)|(invalid|unrecognized) option"
    r"|more processors requested than permitted|requested node configuration is not available|time limit is invalid"
    r"|count specification invalid|group not permitted|permission denied|pathname of a file|memory specification can not be satisfied|argument list too long|appears to be invalid)"
    r"|\b(Assoc|QOS)(?!\w*Submit)[A-Z]\w+"
)


def begin(workflow: Any) -> None:
    """Submit jobs that SLURM rejects temporarily again, until the call ends."""
    scheduler, stop = workflow.scheduler, threading.Event()
    executor = scheduler._executor
    cancel = executor.cancel
    # The executor starts sbatch, and nothing else, by this class; each job that waits has a thread of its own.
    stops = lambda: stop.is_set() or bool(scheduler._user_kill)  # noqa: E731
    names = {**vars(subprocess), "Popen": functools.partial(_Submission, stops, threading.Lock())}
    sys.modules[type(executor).__module__].subprocess = SimpleNamespace(**names)  # type: ignore[attr-defined]
    threads = executor._job_submission_executor = ThreadPoolExecutor(_MOST)

    def end() -> None:
        """The executor would cancel the jobs that it knows, and then submit what is left in its threads."""
        stop.set()
        threads.shutdown(cancel_futures=True)
        cancel()
        # It forgets jobs while it asks for their states.
        with contextlib.suppress(UserError):
            queue.cancel(queue.jobs(Path()))

    executor.cancel = end


def passes(words: str) -> bool:
    """Whether sbatch may accept later a job that it rejects now with these words."""
    return not _FOR_GOOD.search(words)


class _Submission(subprocess.Popen[str]):
    """A call of sbatch, which ends when SLURM has taken the job, will never take it, or the call of Snakemake ends."""

    def __init__(self, stops: Callable[[], bool], turn: threading.Lock, call: str, **options: Any) -> None:
        self._call, self._stops, self._turn = call, stops, turn
        # sbatch is called by one thread at a time.
        turn.acquire()
        try:
            super().__init__(_failing(_ENDS) if stops() else call, **options)
        except OSError as error:
            # The executor would hide it where the job is a group.
            super().__init__(_failing(str(error)), **options)

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        try:
            out, words = super().communicate(input)
        finally:
            self._turn.release()
        waited, pause_s = False, _PAUSE_S
        while self.returncode and passes(words) and not self._stops():
            if not waited:
                say(f"sbatch rejected a job, which is submitted again: {_line(words)}")
            waited, end = True, time.monotonic() + pause_s
            while time.monotonic() < end and not self._stops():
                time.sleep(min(_LOOK_S, pause_s))
            pause_s = min(2 * pause_s, _LONGEST_S)
            if not self._stops():
                out, words = self._retry(input)
        if self.returncode and not self._stops():
            say(f"failed: {self._comment}: sbatch rejected it: {_line(words)}")
        elif waited and not self.returncode:
            say("sbatch accepts jobs again")
        return out, words

    @property
    def _comment(self) -> str:
        """By which the executor names the job."""
        match = re.search(r" --comment (\S+)", self._call)
        return shlex.split(match[1])[0] if match else ""

    def _retry(self, input: str | None) -> tuple[str, str]:
        """Call sbatch another time: what it prints."""
        with self._turn:
            try:
                # SLURM may have taken the job although its answer was lost.
                queue.cancel([job for job in queue.jobs(Path()) if job.comment == self._comment])
                result = subprocess.run(self._call, shell=True, text=True, input=input, capture_output=True)
            except (UserError, OSError) as error:
                return "", str(error)
        self.returncode = result.returncode
        return result.stdout, result.stderr


def _failing(words: str) -> str:
    """A shell command that fails with these words."""
    return f"echo {shlex.quote(words)} >&2; false"


def _line(words: str) -> str:
    """sbatch's words in a line, without its name."""
    lines = (re.sub(r"^sbatch: (error: |fatal: )?", "", line.strip()) for line in words.splitlines())
    line = "; ".join(filter(None, lines)).replace("Batch job submission failed: ", "")
    # A site's greeting comes first, and the answer last.
    return short(line[-300:], 300)
