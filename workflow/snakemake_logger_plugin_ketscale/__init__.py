"""What Snakemake says on the terminal: how many jobs are done and why one has failed, a line each.

Snakemake's own words are in its log. It finds this package by its name and imports it at every start, so it imports next to
nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from logging import WARNING, LogRecord
from pathlib import Path

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

# Snakemake says these without an event: the first are news, the second are said here in other words.
_NEWS = ("Nothing to be done", "Terminating processes on user request", "Will exit after finishing")
_KNOWN = ("RuleException:\nCalledProcessError", "At least one job did not", "Exiting because a job", "--keep-incomplete mode", "no backup found")  # fmt: skip
# A line follows whenever another of so many parts of the jobs is done.
_PARTS = 20


class LogHandler(LogHandlerBase):
    """Prints what happens."""

    def __post_init__(self) -> None:
        common = self.common_settings
        # Options that ask for more get Snakemake's own words.
        self._full = common.verbose or common.printshellcmds or common.debug_dag
        self._stream = sys.stdout if common.stdout else sys.stderr
        self._before: list[str] = []
        self._executing = self._begun = False
        self._part, self._log = 0, ""

    writes_to_stream = property(lambda self: True)
    writes_to_file = property(lambda self: False)
    needs_rulegraph = property(lambda self: False)
    has_formatter = property(lambda self: False)
    has_filter = property(lambda self: not self._full)

    def emit(self, record: LogRecord) -> None:
        try:
            self._say(self.format(record)) if self._full else self._take(record)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Say where Snakemake's own words are."""
        self._say("" if self._executing else "\n".join(self._before))
        self._say(self._log)
        self._before, self._log = [], ""
        super().close()

    def _say(self, text: str, news: bool = True) -> None:
        """Print a message; under --quiet only if it is news."""
        timed = self._executing and not self.common_settings.dryrun
        if text and (news or not self.common_settings.quiet):
            with contextlib.suppress(BrokenPipeError):  # the reader has gone
                self._stream.write(f"{time.strftime('%H:%M:%S ') if timed else ''}{text}\n")
                self._stream.flush()

    def _take(self, record: LogRecord) -> None:
        event, text, given = getattr(record, "event", None), record.getMessage(), vars(record)
        if event == LogEvent.WORKFLOW_STARTED:
            self._executing = True
        elif event == LogEvent.RUN_INFO and not self._begun:
            self._begun = True
            self._say(text.rstrip(), news=self.common_settings.dryrun)
        elif event == LogEvent.PROGRESS:
            part = _PARTS * given["done"] // given["total"]
            if part > self._part:
                self._say(f"{given['done']} of {given['total']} jobs are done", news=False)
            self._part = part
        elif event == LogEvent.JOB_ERROR:
            # A job group says those of its jobs.
            if not given["indent"]:
                self._fail(given["log"], given["rule_msg"], given["aux"].get("external_jobid"))
        elif event == LogEvent.GROUP_ERROR:
            # Without a job, sbatch has rejected it, and its message says so, or the call is ending.
            if job := given["external_jobid"]:
                logs = [log for each in given["job_error_info"] for log in each["log"]]
                self._fail(logs, "its job ended before it began, or could say why", job)
        elif event is None and text.startswith("Complete log(s): "):
            self._log = f"log: {os.path.relpath(text.partition(': ')[2])}"
        elif record.levelno >= WARNING or (event is None and text.startswith(_NEWS)):
            self._say("" if any(known in text for known in _KNOWN) else text)
        elif event is None and not self._executing:
            self._before.append(text)

    def _fail(self, logs: list[str], otherwise: str | None, job: str | None) -> None:
        """Say why a job, or the runs of a job group that have failed, did so; each reason once, with the first log."""
        from ketscale import process
        from ketscale.jobs import supervise

        why: dict[str, str] = {}
        for log in logs:
            note = supervise.read_note(Path(log).parent) or {}
            if note.get("call") == process.call() and job in (None, note.get("job")):
                why.setdefault(str(note.get("reason")), log)
        if not why and job is None and logs and os.path.exists(logs[0]):
            said = Path(logs[0]).read_text(errors="replace").splitlines()[-200:]
            why = {supervise.explain(said, 1, None): logs[0]} if said else {}
        of_job = f" (SLURM job {job})" if job else ""
        for reason, log in (why or {otherwise or "it said nothing": logs[0]}).items():
            self._say(f"failed: {os.path.relpath(log)}: {' '.join(reason.split())}{of_job}")
