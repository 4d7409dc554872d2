"""What Snakemake says on the terminal: how far each study is and why something failed, a line each.

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
from typing import TYPE_CHECKING, Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

if TYPE_CHECKING:
    from ketscale.grid import Run
    from ketscale.jobs.status.progress import Progress

# Snakemake says these without an event: the first are news, the second are said here in other words.
_NEWS = ("Nothing to be done", "Terminating processes on user request", "Will exit after finishing")
_KNOWN = ("RuleException:\nCalledProcessError", "At least one job did not", "Exiting because a job", "--keep-incomplete mode", "no backup found")  # fmt: skip


class LogHandler(LogHandlerBase):
    """Prints what happens."""

    _progress: Progress

    def __post_init__(self) -> None:
        common = self.common_settings
        # Options that ask for more get Snakemake's own words.
        self._full = common.verbose or common.printshellcmds or common.debug_dag
        self._stream = sys.stdout if common.stdout else sys.stderr
        self._runs: dict[int, Run | None] = {}
        self._groups: dict[int, dict[str, Any]] = {}
        self._before: list[str] = []
        self._executing = self._begun = False
        self._log = ""

    writes_to_stream = property(lambda self: True)
    writes_to_file = property(lambda self: False)
    needs_rulegraph = property(lambda self: False)
    has_formatter = property(lambda self: False)
    has_filter = property(lambda self: not self._full)

    def follow(self, progress: Progress) -> None:
        """Be told by the Snakefile whose runs it trains."""
        self._progress = progress

    def say(self, text: str, news: bool = True) -> None:
        """Print a message, from any thread; under --quiet only if it is news."""
        timed = self._begun and not self.common_settings.dryrun
        if text and (news or not self.common_settings.quiet):
            with contextlib.suppress(BrokenPipeError):  # nobody reads any more
                self._stream.write(f"{time.strftime('%H:%M:%S ') if timed else ''}{text}\n")
                self._stream.flush()

    def emit(self, record: LogRecord) -> None:
        try:
            self.say(self.format(record)) if self._full else self._take(record)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Say how the call ended."""
        self.say("" if self._executing else "\n".join(self._before))
        # A call that was refused before its first job has said why.
        if self._begun and self._runs:
            self.say("\n".join(self._progress.summary()))
            if self._progress.is_new(page := self._progress.results / "report.html"):
                from ketscale.analysis import analysed

                self.say("\n".join([*analysed.summary(page.parent), f"report: {page}"]))
        self.say(self._log)
        self._before, self._begun, self._log = [], False, ""
        super().close()

    def _take(self, record: LogRecord) -> None:
        event, text, given = getattr(record, "event", None), record.getMessage(), vars(record)
        if event == LogEvent.WORKFLOW_STARTED:
            self._executing = True
        elif event == LogEvent.RUN_INFO and not self._begun:
            self._begin(text)
        elif event == LogEvent.JOB_INFO and not self.common_settings.dryrun:
            self._start(given)
        elif event == LogEvent.JOB_FINISHED:
            self._end(self._runs.get(given["job_id"]), True)
        elif event == LogEvent.JOB_ERROR:
            self._fail(given)
        elif event == LogEvent.GROUP_ERROR:
            self._groups |= {each["jobid"]: given for each in given["job_error_info"]}
        elif event is None and text.startswith("Complete log(s): "):
            self._log = f"log: {os.path.relpath(text.partition(': ')[2])}"
        elif record.levelno >= WARNING or (event is None and text.startswith(_NEWS)):
            self.say("" if any(known in text for known in _KNOWN) else text)
        elif event is None and not self._executing:
            self._before.append(text)

    def _begin(self, stats: str) -> None:
        """Take note of the runs of the call before the first starts; a dry run says all of it here."""
        self._begun = True
        self._progress.begin()
        if self.common_settings.dryrun:
            self.say("\n".join([stats.rstrip(), *self._progress.planned(), "This was a dry run (-n)."]))
        elif self._progress.called:
            self.say(f"runs to train: {len(self._progress.called)}", news=False)

    def _start(self, given: dict[str, Any]) -> None:
        from ketscale.grid import Run

        wildcards = given["wildcards"] or {}
        self._runs[given["jobid"]] = Run.of(wildcards) if "seed" in wildcards else None
        # A choice ends its trials, which are counted as runs: a large study has hundreds.
        if "protocol" not in wildcards and given["shellcmd"]:
            self.say(" ".join([given["rule_name"], *map(str, wildcards.values())]), news=False)

    def _end(self, run: Run | None, result: bool) -> None:
        for line in self._progress.end(run, result) if run else ():
            self.say(line, news=False)

    def _fail(self, given: dict[str, Any]) -> None:
        """Say why a job has failed, of those of a group with the same reason the first."""
        from ketscale.jobs.supervise import explain

        run, log = self._runs.get(given["jobid"]), given["log"][0]
        group = self._groups.get(given["jobid"], {}) if given["indent"] else {}
        job = (group or given["aux"]).get("external_jobid")
        why = self._progress.reason(run, job) if run else ""
        # Snakemake says that all runs of a group have failed, also those that had ended before.
        result = bool(run and group and not why and self._progress.is_new(self._progress.results / run.path))
        if not why and group:
            # Without a job, sbatch has refused it, which is said there, or the call is ending.
            why = "its job ended before it began, or could say why" if job else ""
        elif not why:
            said = Path(log).read_text(errors="replace").splitlines()[-200:] if os.path.exists(log) else []
            why = explain(said, 1, None) if said else given["rule_msg"] or "it said nothing"
        if why and not result and why != group.get("told"):
            of_job = f" (SLURM job {job})" if job else ""
            self.say(f"failed: {os.path.relpath(log)}: {' '.join(why.split())}{of_job}")
            group["told"] = why
        self._end(run, result)
