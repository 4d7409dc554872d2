"""What SLURM refuses for now is submitted again: its executor would count each refusal as a failed attempt of the runs.

snakemake-executor-plugin-slurm has no option for it (its issues 313 and 320). A refusal that passes (a limit on submitted
jobs, an inactive partition, a controller that does not answer) is followed by a pause and another try; one that no wait
changes stays the executor's error, without further attempts. All of it is in the process that submits, and ends with it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ketscale.errors import UserError, short
from ketscale.jobs.slurm import queue

_PAUSE_S, _LONGEST_S, _LOOK_S = 5.0, 300.0, 0.5
# More jobs than anybody has in the queue at a time; threads are made as they are needed.
_MOST = 10_000
_ENDS = "it was not submitted, since the call ends"
# The executor's words for a refusal, around sbatch's own.
_REFUSAL = re.compile(r"SLURM sbatch failed\. The error message was '(.*)'\.\n +sbatch call:", re.DOTALL)
# What no wait changes (slurm_errno.c); all else may pass, also what no version has said before. A limit of an account or
# QoS passes if it is one on submitted jobs; older versions do not name the limit.
_FOR_GOOD = re.compile(
    r"(?i:invalid (account|partition|qos|feature|generic|trackable|license|node name)|(invalid|unrecognized) option"
    r"|more processors requested than permitted|requested node configuration is not available|time limit is invalid"
    r"|count specification invalid|group not permitted|permission denied|pathname of a file|memory specification can not be satisfied|argument list too long|appears to be invalid)"
    r"|\b(Assoc|QOS)(?!\w*Submit)[A-Z]\w+"
)


def begin(workflow: Any, say: Callable[[str], None]) -> None:
    """Have what SLURM refuses for now submitted again; `say` is told when it begins to refuse, and when it takes jobs again."""
    _Submissions(workflow.scheduler, say)


def passes(words: str) -> bool:
    """Whether sbatch may take a job later that it refuses now with these words."""
    return not _FOR_GOOD.search(words)


@dataclasses.dataclass
class _Unsent:
    """A job that was not submitted, as the executor reports it."""

    job: Any
    external_jobid: str | None = None
    aux: dict[str, Any] = dataclasses.field(default_factory=dict)


class _Submissions:
    """Stands before three methods of the executor: to submit a job, to report that it could not, and to end the call."""

    def __init__(self, scheduler: Any, say: Callable[[str], None]) -> None:
        self._scheduler, self._say = scheduler, say
        executor = scheduler._executor
        self._run, self._report = executor.run_job, executor._report_job_error_threadsafe
        self._cancel = executor.cancel
        executor.run_job, executor._report_job_error_threadsafe = self._submit, self._hear
        executor.cancel = self._end
        # A job that waits has a thread of its own, and sbatch is called by one at a time.
        self._threads = executor._job_submission_executor = ThreadPoolExecutor(_MOST)
        self._turn, self._here = threading.Lock(), threading.local()
        self._waiting: set[Any] = set()
        self._ended = threading.Event()

    def _submit(self, job: Any) -> None:
        pause_s, words = _PAUSE_S, self._ask(job)
        while words and passes(words) and not self._stops():
            self._note(job, words)
            end = time.monotonic() + pause_s
            while time.monotonic() < end and not self._stops():
                self._ended.wait(min(_LOOK_S, pause_s))
            pause_s = min(2 * pause_s, _LONGEST_S)
            # After SIGTERM nothing more is submitted, and the call ends with the jobs that run.
            if not self._stops():
                words = self._ask(job, again=True)
        self._note(job, "")
        if words and not self._ended.is_set():
            why = words if words == _ENDS else f"sbatch refuses it: {_line(words)}"
            if job.is_group() and not passes(words):  # of which Snakemake says no reason
                self._say(f"failed: job group {job.groupid}: {why}")
            # It would be refused again. Not `attempt`, since the resources of the next one would be worked out.
            job._attempt = job.restart_times + 1
            self._report(_Unsent(job), f"{why}. ")

    def _stops(self) -> bool:
        return self._ended.is_set() or bool(self._scheduler._user_kill)

    def _ask(self, job: Any, again: bool = False) -> str:
        """Submit a job: sbatch's words if it refuses it, else nothing."""
        with self._turn:
            if self._stops():
                return _ENDS
            self._here.words = ""
            try:
                # SLURM may have taken it although its answer was lost.
                if again:
                    queue.cancel([one for one in queue.jobs(Path()) if _is_of(one, job)])
                self._run(job)
                return str(self._here.words)
            except Exception as error:
                # What the executor does about it fails for a job group, in a thread of its own, so that nobody would hear of it.
                return str(error.__context__ or error)
            finally:
                del self._here.words

    def _hear(self, info: Any, msg: str) -> None:
        """The executor reports a job that it could not submit."""
        if hasattr(self._here, "words"):
            refusal = _REFUSAL.search(msg)
            self._here.words = (refusal[1] if refusal else msg) or "it says nothing"
        else:
            self._report(info, msg)

    def _note(self, job: Any, words: str) -> None:
        """Say when SLURM begins to refuse jobs, and when it takes them again; without words a job waits no longer."""
        with self._turn:
            before = bool(self._waiting)
            (self._waiting.add if words else self._waiting.discard)(job)
            # A terminal that is gone ends no campaign.
            with contextlib.suppress(OSError):
                if self._waiting and not before:
                    self._say(f"sbatch refuses a job, and is asked again: {_line(words)}")
                elif before and not self._waiting:
                    self._say("sbatch takes jobs again")

    def _end(self) -> None:
        """End the call: the executor would cancel the jobs that it knows, and then submit what is left in its threads."""
        self._ended.set()
        self._threads.shutdown(cancel_futures=True)
        self._cancel()
        # It forgets jobs while it asks for their states.
        with contextlib.suppress(UserError):
            queue.cancel(queue.jobs(Path()))


def _is_of(submitted: queue.Job, job: Any) -> bool:
    """Whether a job in the queue is this one of Snakemake's, by the comment that the executor writes."""
    if job.is_group():
        return bool(submitted.pack == job.groupid)
    from snakemake_executor_plugin_slurm.utils import get_job_wildcards  # type: ignore[import-untyped]

    return submitted.comment == "_wildcards_".join(filter(None, [f"rule_{job.name}", get_job_wildcards(job)]))


def _line(words: str) -> str:
    """sbatch's words in a line, without its name."""
    lines = (re.sub(r"^sbatch: (error: |fatal: )?", "", line.strip()) for line in words.splitlines())
    line = "; ".join(filter(None, lines)).replace("Batch job submission failed: ", "")
    # A site's greeting stands first, and the answer last.
    return short(line[-300:], 300)
