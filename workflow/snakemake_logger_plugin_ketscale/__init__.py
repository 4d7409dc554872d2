"""What Snakemake says on the terminal: how far each study is and why something failed, a line each.

Snakemake's own words, which name every file and all settings of each job, are in its log; `ketscale status --watch` shows
every run. Snakemake finds this package by its name and imports it at every start, so it imports next to nothing.
"""

from __future__ import annotations

import io
import os
import re
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from logging import WARNING, LogRecord
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

if TYPE_CHECKING:
    from ketscale.grid import Run
    from ketscale.jobs.status.progress import Progress

# A warning has no more lines, and a study a line whenever another of so many parts of its runs is over.
LINES, PARTS = 12, 4
# Snakemake says these without an event: the first are news, the second are said here in other words.
_NEWS = ("Nothing to be done", "Terminating processes on user request", "Will exit after finishing")
_KNOWN = ("RuleException:\nCalledProcessError", "At least one job did not", "Exiting because a job", "--keep-incomplete mode")  # fmt: skip
_LOG = "Complete log(s): "
# What SLURM's executor says of a job group, whose log is in a folder of its name.
_SUBMITTED = re.compile(r"submitted with SLURM jobid (?P<job>\S+) \(log: .*/group_(?P<pack>\S+)_\w+/")


class LogHandler(LogHandlerBase):
    """Prints what happens."""

    def __post_init__(self) -> None:
        common = self.common_settings
        # Options that ask for more get Snakemake's own words.
        self._full = common.verbose or common.printshellcmds or common.debug_dag
        self._stream: TextIO = sys.stdout if common.stdout else sys.stderr
        self._progress: Progress | None = None
        self._planned: Callable[[], Mapping[Run, str]] = dict
        self._reasons: Mapping[Run, str] = {}
        self._runs: dict[int, Run] = {}
        self._before: list[str] = []
        self._parts: dict[str, int] = {}
        self._executing = self._begun = self._started = False
        self._pages: dict[int, str] = {}
        self._page = self._log = ""
        self._rests = 0.0
        self._group: dict[str, Any] = {}

    writes_to_stream = property(lambda self: True)
    writes_to_file = property(lambda self: False)
    needs_rulegraph = property(lambda self: False)
    has_formatter = property(lambda self: False)
    has_filter = property(lambda self: not self._full)

    def follow(self, progress: Progress, planned: Callable[[], Mapping[Run, str]]) -> None:
        """Be told by the Snakefile whose studies it trains, and how to ask for the runs of the call and their reasons."""
        self._progress, self._planned = progress, planned

    def begin(self) -> None:
        """Take note of the runs of the call, before the first starts: reading what runs cost would disturb a timed one."""
        if self._begun or self._full or self._progress is None:
            return
        self._begun = True
        self._reasons = self._planned()
        self._progress.begin(self._reasons)
        if self._reasons and not self.common_settings.dryrun and not self.common_settings.quiet:
            self.say(f"runs to train: {len(self._reasons)}")

    def say(self, text: str) -> None:
        """Print a message, from any thread."""
        timed = self._begun and not self.common_settings.dryrun
        assert self.lock is not None
        with self.lock:
            try:
                self._stream.write(f"{time.strftime('%H:%M:%S ') if timed else ''}{text}\n")
                self._stream.flush()
            except BrokenPipeError:
                self._stream = io.StringIO()  # nobody reads any more

    def _tell(self, text: str) -> None:
        if not self.common_settings.quiet:
            self.say(text)

    def emit(self, record: LogRecord) -> None:
        try:
            if self._full:
                self.say(self.format(record))
            else:
                self._take(record)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Say how the call ended."""
        if self._before and not self._executing:
            self.say("\n".join(self._before))
        if self._begun and self._progress and not self.common_settings.dryrun:
            # Snakemake says nothing of runs that were interrupted with it.
            for log, reason, job in self._progress.interrupted():
                self._fails(log, reason, job)
            self._refresh(now=True)
            # A call that was refused before its first job has said why.
            if (ended := self._progress.end()) and self._started:
                self.say(ended)
            if self._page:
                from ketscale.analysis import analysed

                self.say("\n".join([*analysed.summary(Path(self._page).parent), f"report: {self._page}"]))
            if self._log:
                self.say(f"log: {self._log}")
        self._before, self._begun = [], False
        super().close()

    def _take(self, record: LogRecord) -> None:
        event, text, given = getattr(record, "event", None), record.getMessage(), vars(record)
        if event == LogEvent.WORKFLOW_STARTED:
            self._executing = True
        elif event == LogEvent.JOB_INFO and not self.common_settings.dryrun:
            self._start(given)
        elif event == LogEvent.JOB_FINISHED and self._progress:
            self._page = self._pages.get(given["job_id"], self._page)
            if run := self._runs.get(given["job_id"]):
                self._progress.finish(run)
                self._refresh()
        elif event == LogEvent.JOB_ERROR:
            self._fail(given)
            self._refresh()
        elif event == LogEvent.GROUP_ERROR:
            self._group = given
        elif event == LogEvent.RUN_INFO:
            self._plan(text) if self.common_settings.dryrun else self.begin()
        elif record.levelno >= WARNING:
            if not any(known in text for known in _KNOWN):
                lines = text.splitlines()
                more = [f"... and {len(lines) - LINES} more lines (-p prints all)"] * (len(lines) > LINES)
                self.say("\n".join([*lines[:LINES], *more]))
        elif event is None and text.startswith(_LOG):
            self._log = os.path.relpath(text.removeprefix(_LOG))
        elif event is None and text.startswith(_NEWS):
            self.say(text)
        elif event is None and (submitted := _SUBMITTED.search(text)):
            from ketscale.jobs.slurm import submission

            self._tell(f"SLURM job {submitted['job']}: {submission.trained_by(submitted['pack'])}")
        elif event is None and not self._executing:
            self._before.append(text)

    def _start(self, given: dict[str, Any]) -> None:
        from ketscale.grid import Run

        wildcards, self._started = given["wildcards"] or {}, True
        if "seed" in wildcards:
            self._runs[given["jobid"]] = Run.of(wildcards)
        # A choice ends its trials, which are counted as runs: a large study has hundreds.
        elif "protocol" not in wildcards and given["shellcmd"]:
            self._tell(" ".join([given["rule_name"], *map(str, wildcards.values())]))
        for path in given["output"]:
            if Path(path).name == "report.html":
                self._pages[given["jobid"]] = path

    def _fail(self, given: dict[str, Any]) -> None:
        from ketscale.jobs.slurm import submission

        group = self._group if given["indent"] else {}
        slurm_job = (group or given["aux"]).get("external_jobid")
        run, logs = self._runs.get(given["jobid"]), given["log"]
        if run and self._progress:
            reason = self._progress.reason(run, slurm_job)
            if group and not reason and self._progress.has_record(run):
                # Snakemake says that every run of a failed job has failed, also those that had ended before.
                self._progress.finish(run)
                return
            self._progress.fail(run)
            if group and not reason:
                # A job has failed that did not get to this run; it is told once why, if it was submitted and not cancelled.
                if not group.get("told") and not submission.ending():
                    why = submission.why_refused(group["groupid"]) or "its job ended before these runs began or could say why"  # fmt: skip
                    see = "".join(f", see {os.path.relpath(log)}" for log in group["aux_logs"][:1])
                    self._fails(submission.trained_by(group["groupid"]), f"{why}{see}", slurm_job)
                group["told"] = True
                return
        elif submission.ending():
            return
        else:
            reason = None
        # All that sbatch was called with follows its words.
        said = (given["rule_msg"] or "").partition("\n    sbatch call:")[0]
        reason = reason or said or _last_words(logs)
        if run:
            self._fails(logs[0], reason, slurm_job)
        else:
            see = f", see {os.path.relpath(logs[0])}" if logs else ""
            self.say(f"failed: {given['rule_name']}{see}\n{textwrap.indent(reason, '    ')}")

    def _fails(self, what: str, reason: str, slurm_job: str | None) -> None:
        """Say what failed and why, in a line."""
        job = f" (SLURM job {slurm_job})" if slurm_job else ""
        self.say(f"failed: {os.path.relpath(what)}: {' '.join(reason.split())}{job}")

    def _plan(self, stats: str) -> None:
        """What a dry run says, once: the jobs by rule, then the runs by study, why, and for how many node-hours."""
        if self._begun:
            return
        self.say(stats.rstrip())
        self.begin()
        if self._progress and self._reasons:
            parts = (part.partition(":")[0] for why in self._reasons.values() for part in why.split("; "))
            why = (
                f"{reason[:1].lower()}{reason[1:]} ({count})"
                for reason, count in Counter(parts).most_common(3)
            )
            self.say("\n".join([*self._progress.planned(), f"why: {', '.join(why)}"]))
        self.say("This was a dry run (-n); with -p it shows each job in full.")

    def _refresh(self, now: bool = False) -> None:
        """Say how far those studies are of which another part is over.

        With tens of thousands of runs that takes some time, so it is not done whenever one has ended, but `now`.
        """
        start = time.monotonic()
        if not self._begun or self._progress is None or (start < self._rests and not now):
            return
        for line in self._progress.lines():
            part = PARTS * line.over // line.runs
            if part > self._parts.get(line.study, 0):
                self._parts[line.study] = part
                self._tell(line.text)
        self._rests = time.monotonic() + 20 * (time.monotonic() - start) - 0.1


def _last_words(logs: Sequence[str]) -> str:
    """Why a job failed, by the end of the first of its logs that says anything."""
    from ketscale.jobs.supervise import explain

    for log in filter(os.path.exists, logs):
        if lines := Path(log).read_text(errors="replace").splitlines()[-200:]:
            return explain(lines, 1, None)
    return "it said nothing"
