"""What SLURM refuses for now is submitted again: its executor would count each refusal as a failed attempt of the runs.

snakemake-executor-plugin-slurm has no option for it (its issues 313 and 320). A refusal that passes (a limit on submitted
jobs, an inactive partition, a controller that does not answer) is followed by a pause and another try; one that no wait
changes stays the executor's error, without further attempts. All of it is in the process that submits, and ends with it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ketscale.errors import UserError, short
from ketscale.files import write_atomic
from ketscale.jobs import locks
from ketscale.jobs.slurm import queue
from ketscale.words import counted

# What is refused now, a line for each answer, for `ketscale status`.
NOTE = queue.OF_CALL / "refused.txt"
_PAUSE_S, _LONGEST_S = 5.0, 300.0
# The executor's words for a refusal, around sbatch's own and its command line.
_REFUSAL = re.compile(
    r"SLURM sbatch failed\. The error message was '(.*)'\.\n +sbatch call:\n +(.*)", re.DOTALL
)
_WORDS = "SLURM sbatch failed. The error message was '{}'.\n sbatch call:\n "
# What no wait changes (slurm_errno.c); all else may pass, also what no version has said before. A limit of an account or
# QoS passes if it is one on submitted jobs; older versions do not name the limit.
_FOR_GOOD = re.compile(
    r"(?i:invalid (account|partition|qos|feature|generic|trackable|license|node name)|(invalid|unrecognized) option"
    r"|more processors requested than permitted|requested node configuration is not available|time limit is invalid"
    r"|count specification invalid|group not permitted|permission denied|pathname of a file|argument list too long|appears to be invalid)"
    r"|\b(Assoc|QOS)(?!\w*Submit)[A-Z]\w+"
)
# sbatch's words for the job groups of this call that it refuses for good.
_refused: dict[str, str] = {}


class _Refusal(NamedTuple):
    words: str
    call: str
    pause_s: float


def begin(workflow: Any, say: Callable[[str], None]) -> None:
    """Have what SLURM refuses for now submitted again; `say` is told when it begins to refuse, and when it takes jobs again."""
    NOTE.unlink(missing_ok=True)
    _Submissions(workflow.scheduler, say)


def why_refused(pack: str) -> str | None:
    """sbatch's words for refusing a job group of this call for good; None if it did not."""
    return f"sbatch refuses it: {_refused[pack]}" if pack in _refused else None


def in_words(folder: Path = Path()) -> list[str]:
    """What sbatch says of the jobs of a folder that it refuses now, a line for each answer."""
    note = folder / NOTE
    with contextlib.suppress(FileNotFoundError):
        return note.read_text().splitlines() if locks.holder(note.parent) else []
    return []


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
    """Stands before three methods of the executor: to submit a job, to report that one failed, and to end the call."""

    def __init__(self, scheduler: Any, say: Callable[[str], None]) -> None:
        self._scheduler, self._say = scheduler, say
        executor = self._executor = scheduler._executor
        # The executor submits in these threads.
        self._pool = executor._job_submission_executor
        self._run, self._report, self._cancel = executor.run_job, executor.report_job_error, executor.cancel
        executor.run_job, executor.report_job_error, executor.cancel = self._submit, self._fail, self._end
        self._waiting: dict[Any, _Refusal] = {}
        self._lock = threading.Lock()

    def _submit(self, job: Any) -> None:
        try:
            self._run(job)
        except Exception as error:
            # What the executor does about it fails for a job group, in a thread of its own, so that nobody would hear of it.
            words = _WORDS.format(error.__context__ or error)
            self._executor._report_job_error_threadsafe(_Unsent(job), words)

    def _fail(self, info: Any, msg: str | None = None, **more: Any) -> None:
        if refusal := _REFUSAL.search(msg or ""):
            job, words = info.job, _line(refusal[1])
            if not passes(refusal[1]):
                if job.is_group():
                    _refused[job.groupid] = words
            # After SIGTERM nothing more is submitted, and the call ends with the jobs that run.
            elif not self._scheduler._user_kill:
                self._wait(info, words, refusal[2])
                return
            # It would be refused again. Not `attempt`, since the resources of the next one would be worked out.
            job._attempt = job.restart_times + 1
        self._report(info, msg=msg, **more)

    def _wait(self, info: Any, words: str, call: str) -> None:
        last = self._waiting.get(info.job)
        pause_s = min(2 * last.pause_s, _LONGEST_S) if last else _PAUSE_S
        timer = threading.Timer(pause_s, self._ask, [info])
        timer.daemon = True
        timer.start()
        self._note(info.job, _Refusal(words, call, pause_s))

    def _ask(self, info: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the call ends
            self._pool.submit(self._again, info)

    def _again(self, info: Any) -> None:
        refusal = self._waiting[info.job]
        if self._scheduler._user_kill:
            self._note(info.job, None)
            self._fail(info, _WORDS.format(refusal.words))
            return
        try:
            if entry := _entry(refusal.call):
                self._executor.report_job_submission(dataclasses.replace(info, **entry))
            else:
                self._executor.run_job(info.job)
        except UserError as error:
            self._wait(info, str(error), refusal.call)
        if self._waiting[info.job] is refusal:
            self._note(info.job, None)

    def _note(self, job: Any, refusal: _Refusal | None) -> None:
        """Note why SLURM refuses a job; None once it has taken it."""
        with self._lock:
            before = len(self._waiting)
            self._waiting.pop(job, None)
            if refusal is not None:
                self._waiting[job] = refusal
            count = Counter(one.words for one in self._waiting.values())
            lines = [
                f"sbatch refuses {counted(count[words], 'job')}, and is asked again: {words}"
                for words in count
            ]
            # Neither a full disk nor a terminal that is gone ends a campaign.
            with contextlib.suppress(OSError):
                write_atomic(NOTE, "\n".join(lines).encode())
            with contextlib.suppress(OSError):
                if bool(before) != bool(lines):
                    self._say("\n".join(lines) or "sbatch takes jobs again")

    def _end(self) -> None:
        """End the call: the executor would cancel the jobs that it knows, and then submit what is left in its threads."""
        self._pool.shutdown(cancel_futures=True)
        NOTE.unlink(missing_ok=True)
        self._cancel()
        # It forgets jobs while it asks for their states.
        with contextlib.suppress(UserError):
            if left := queue.jobs(Path()):
                queue.cancel(left)


def _line(words: str) -> str:
    """sbatch's words in a line, without its name."""
    lines = (re.sub(r"^sbatch: (error: |fatal: )?", "", line.strip()) for line in words.splitlines())
    line = "; ".join(filter(None, lines)).replace("Batch job submission failed: ", "")
    # A site's greeting stands first, and the answer last.
    return short(line[-300:], 300) if line else "it says nothing"


def _entry(call: str) -> dict[str, Any]:
    """The number and the log of a job that SLURM has taken, although its answer was lost; empty if it has not.

    Raises:
        UserError: SLURM does not answer.
    """
    if not call:
        return {}
    words = shlex.split(call.partition(" --wrap=")[0])
    name, comment, log = (words[words.index(key) + 1] for key in ("--job-name", "--comment", "--output"))
    # A job that is just ending is that of the attempt before.
    lines = queue.ask("squeue", "--me", "-h", "-t", "PD,CF,R,S", "--name", name, "-o", "%i|%k").splitlines()
    for number, _, other in (line.partition("|") for line in lines):
        if other == comment:
            return {"external_jobid": number, "aux": {"slurm_logfile": Path(log.replace("%j", number))}}
    return {}
