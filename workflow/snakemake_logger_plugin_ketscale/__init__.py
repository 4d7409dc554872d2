"""What Snakemake says on the terminal: the progress of each study and why something failed, in lines that fit.

Snakemake's own words, which name every file and all settings of each job, are in its log. Snakemake finds this package by
its name and imports it at every start, so it imports next to nothing.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from logging import WARNING, LogRecord
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

if TYPE_CHECKING:
    from ketscale.grid import Run
    from ketscale.jobs.status.progress import Line, Progress

# No line is longer, no message has more lines, and no more failures are told one by one.
WIDTH, LINES, FAILURES = 200, 12, 12
# In a log, a study has a line whenever another of so many parts of its runs is over.
_PARTS = 4
_PAGE = "report.html"
_RED, _GREEN, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"
# Snakemake says these without an event: the first are news, the second are said here in other words.
_NEWS = ("Nothing to be done", "Terminating processes on user request", "Will exit after finishing")
# This one begins what is said of a failed command, which is told as the failure of its job.
_FAILED = "RuleException:\nCalledProcessError"
_KNOWN = ("At least one job did not", "Exiting because a job", "--keep-incomplete mode")
_LOG = "Complete log(s): "
# How often a call looks whether runs of its own wait for their host.
_LOOK_S = 5.0
# What SLURM's executor says of a job group, whose log is in a folder of its name.
_SUBMITTED = re.compile(r"submitted with SLURM jobid (?P<job>\S+) \(log: .*/group_(?P<pack>\S+)_\w+/")


class _Job(NamedTuple):
    """What is kept of a job: the run that it trains, or the page that it writes."""

    run: Run | None
    page: str | None


class LogHandler(LogHandlerBase):
    """Prints what happens; on a terminal, the lines of studies stay at the bottom and change."""

    def __post_init__(self) -> None:
        common = self.common_settings
        # Options that ask for more get Snakemake's own words.
        self._full = common.verbose or common.printshellcmds or common.debug_dag
        self._stream: TextIO = sys.stdout if common.stdout else sys.stderr
        self._live = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._coloured = self._live and not common.nocolor
        self._progress: Progress | None = None
        self._planned: Callable[[], Mapping[Run, str]] = dict
        self._reasons: Mapping[Run, str] = {}
        self._jobs: dict[int, _Job] = {}
        self._before: list[str] = []
        self._parts: dict[str, int] = {}
        self._rows: list[str] = []
        self._drawn = self._failures = 0
        self._executing = self._begun = False
        self._page = self._log = ""
        self._rests = 0.0
        self._group: dict[str, Any] | None = None
        self._over = threading.Event()

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
        assert self.lock is not None
        with self.lock:
            if self._begun or self._full or self._progress is None:
                return
            self._begun = True
            self._reasons = self._planned()
            self._progress.begin(self._reasons)
            if self._reasons and not self.common_settings.dryrun and not self.common_settings.quiet:
                self._print(f"runs to train: {len(self._reasons)}")
                self._refresh()
                threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_S):
            self.say_who_waits()

    def say_who_waits(self) -> None:
        """Print, once each, which runs wait for their host and who holds it: the call would be silent."""
        assert self.lock is not None and self._progress is not None
        with self.lock:
            for text in self._progress.waiting(job.run for job in self._jobs.values() if job.run):
                self._print(text)

    def say(self, text: str) -> None:
        """Print a message, from any thread."""
        assert self.lock is not None
        with self.lock:
            self._print(text, _RED if "refuses" in text else "")

    def emit(self, record: LogRecord) -> None:
        try:
            if self._full:
                self._write(f"{self.format(record)}\n")
            else:
                self._take(record)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Say how the call ended."""
        self._over.set()
        assert self.lock is not None
        with self.lock:
            if self._before and not self._executing:
                self._print("\n".join(self._before))
                self._before.clear()
            if self._begun and not self.common_settings.dryrun:
                self._end()
                self._begun = False
        super().close()

    def _take(self, record: LogRecord) -> None:
        event, text, given = getattr(record, "event", None), record.getMessage(), vars(record)
        if event == LogEvent.WORKFLOW_STARTED:
            self._executing = True
        elif event == LogEvent.JOB_INFO:
            if not self.common_settings.dryrun:
                self._start(given)
        elif event == LogEvent.JOB_FINISHED:
            job = self._jobs.get(given["job_id"])
            if job and job.run and self._progress:
                self._progress.finish(job.run)
                self._refresh()
            elif job and job.page:
                self._page = job.page
        elif event == LogEvent.JOB_ERROR:
            self._fail(given)
        elif event == LogEvent.GROUP_ERROR:
            self._group = given
        elif event == LogEvent.RUN_INFO and self.common_settings.dryrun:
            self._plan(text)
        elif event == LogEvent.RUN_INFO:
            self.begin()
        elif record.levelno >= WARNING:
            if not (text.startswith(_FAILED) or any(known in text for known in _KNOWN)):
                self._print(text, _RED, LINES)
        elif event is None and text.startswith(_LOG):
            self._log = os.path.relpath(text.removeprefix(_LOG))
        elif event is None and text.startswith(_NEWS):
            self._print(text)
        elif event is None and not self._live and (submitted := _SUBMITTED.search(text)):
            from ketscale.jobs.slurm import submission

            # In a log, to find the job of a run.
            self._print(f"SLURM job {submitted['job']}: {submission.trained_by(submitted['pack'])}", wrap=0)
        elif event is None and not self._executing:
            self._before.append(text)

    def _start(self, given: dict[str, Any]) -> None:
        wildcards, run = given["wildcards"] or {}, None
        if "seed" in wildcards:
            from ketscale.grid import Run

            run = Run.of(wildcards)
        page = next((path for path in given["output"] if Path(path).name == _PAGE), None)
        self._jobs[given["jobid"]] = _Job(run, page)
        # A choice ends its trials, which are counted as runs: a large study has hundreds.
        counted = run is not None or "protocol" in wildcards
        if not counted and given["shellcmd"] and not self.common_settings.quiet:
            self._print(" ".join([given["rule_name"], *map(str, wildcards.values())]))

    def _fail(self, given: dict[str, Any]) -> None:
        from ketscale.jobs.slurm import submission

        job, group = self._jobs.get(given["jobid"]), self._group if given["indent"] else None
        # All that sbatch was called with follows its words.
        said = (given["rule_msg"] or "").partition("\n    sbatch call:")[0]
        slurm_job = (group or given["aux"]).get("external_jobid")
        run = job.run if job else None
        if not (run and self._progress):
            if not submission.ending():
                self._tell(given["rule_name"], given["log"], said or _last_words(given["log"]), slurm_job)
        elif reason := self._progress.reason(run, slurm_job):
            self._progress.fail(run)
            self._tell(None, given["log"], reason, slurm_job)
        elif group is None:
            self._progress.fail(run)
            self._tell(None, given["log"], said or _last_words(given["log"]), slurm_job)
        elif self._progress.has_record(run):
            # Snakemake says that every run of a failed job has failed, also those that had ended before.
            self._progress.finish(run)
        else:
            self._fail_of_group(run, group)
        self._refresh()

    def _fail_of_group(self, run: Run, group: dict[str, Any]) -> None:
        """A job has failed that did not get to this run; it is told once why."""
        from ketscale.jobs.slurm import submission

        assert self._progress is not None
        if submission.ending():
            return  # it was not submitted, or was cancelled
        self._progress.fail(run)
        if not group.get("told"):
            group["told"] = True
            pack, logs = group["groupid"], group["aux_logs"]
            reason = submission.why_refused(pack) or "its job ended before these runs began or could say why"
            where = f", see {os.path.relpath(logs[0])}" if logs else ""
            self._tell(None, [submission.trained_by(pack)], f"{reason}{where}", group.get("external_jobid"))

    def _tell(self, rule: str | None, logs: Sequence[str], reason: str, slurm_job: str | None) -> None:
        """Say that a run, or a rule that is no run's, failed and why; in a log a run has one line.

        On a terminal, say it unless too many have.
        """
        self._failures += 1
        where = os.path.relpath(logs[0]) if logs else ""
        if slurm_job:
            reason = f"{reason} (SLURM job {slurm_job})"
        if self._failures > FAILURES and self._live:
            if self._failures == FAILURES + 1:
                self._print("more fail; `ketscale status --failed` shows each with its reason", _RED)
        elif rule is None:
            self._print(f"failed: {where}: {' '.join(reason.split())}", _RED, wrap=WIDTH * self._live)
        else:
            see = f", see {where}" if where else ""
            self._print(f"failed: {rule}{see}\n{textwrap.indent(reason, '    ')}", _RED)

    def _plan(self, stats: str) -> None:
        """What a dry run says, once: the jobs by rule, then the runs by study, why, and for how many node-hours."""
        if self._begun:
            return
        self._print(stats.rstrip())
        self.begin()
        self._begun = True
        if self._progress and self._reasons:
            reasons = Counter(
                part.partition(":")[0] for why in self._reasons.values() for part in why.split("; ")
            )
            why = ", ".join(
                f"{reason[:1].lower()}{reason[1:]} ({count})" for reason, count in reasons.most_common(3)
            )
            self._print("\n".join([*self._progress.planned(), f"why: {why}"]))
        self._print("This was a dry run (-n); with -p it shows each job in full.")

    def _end(self) -> None:
        """Say how the call ended, and where everything is."""
        assert self._progress is not None
        # Snakemake says nothing of runs that were interrupted with it.
        for log, reason, job in self._progress.interrupted():
            self._tell(None, [log], reason, job)
        self._refresh(now=True)
        self._rows, self._drawn = [], 0  # what is shown of the studies stays
        ended = self._progress.end()
        # A call that was refused before its first job has said why.
        if ended and self._jobs:
            complete, text = ended
            self._print(text, _GREEN if complete else _RED)
        if self._page:
            self._answer()
            self._print(f"report: {self._page}")
        if self._log:
            self._print(f"log: {self._log}")

    def _answer(self) -> None:
        """Print what the new report says to each question."""
        from ketscale.analysis import analysed

        columns = shutil.get_terminal_size().columns - 1 if self._live else WIDTH
        self._print("\n".join(analysed.summary(Path(self._page).parent)), wrap=min(WIDTH, columns))

    def _refresh(self, now: bool = False) -> None:
        """Tell how far the studies are: on a terminal all of them, in a log those of which another part is over.

        Of tens of thousands of runs that takes some time, so it is not done whenever one has ended, but `now`.
        """
        start = time.monotonic()
        if not self._begun or self._progress is None or self.common_settings.quiet:
            return
        if start < self._rests and not now:
            return
        lines = self._progress.lines()
        self._rests = time.monotonic() + 20 * (time.monotonic() - start) - 0.1
        if self._live:
            size = shutil.get_terminal_size()
            # If there is no room for all, the first that are not over are shown.
            room = sorted(lines, key=lambda line: line.over == line.runs)[: max(1, size.lines - 2)]
            self._erase()
            self._rows = [
                self._in(_colour(line), line.text[: size.columns - 1]) for line in lines if line in room
            ]
            self._draw()
        else:
            for line in lines:
                part = _PARTS * line.over // line.runs
                if part > self._parts.get(line.study, 0):
                    self._parts[line.study] = part
                    self._print(line.text)

    def _print(self, text: str, colour: str = "", most: int | None = None, wrap: int = WIDTH) -> None:
        """Print a message, on a terminal above the lines of the studies.

        most: of its lines, if it may be long. wrap: their width, 0 for lines that are copied.
        """
        timed = self._begun and not self._live and not self.common_settings.dryrun
        lines: list[str] = []
        for line in f"{time.strftime('%H:%M:%S ') if timed else ''}{text}".splitlines():
            indent = " " * (len(line) - len(line.lstrip()))
            lines += textwrap.wrap(
                line, wrap or len(line), subsequent_indent=indent, break_on_hyphens=False
            ) or [""]
        if most and len(lines) > most:
            lines[most:] = [f"... and {len(lines) - most} more lines (-p prints all)"]
        self._erase()
        self._write("".join(f"{self._in(colour, line)}\n" for line in lines))
        self._draw()

    def _draw(self) -> None:
        self._write("".join(f"{row}\n" for row in self._rows))
        self._drawn = len(self._rows)

    def _erase(self) -> None:
        if self._drawn:
            self._write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            self._stream = io.StringIO()  # nobody reads any more

    def _in(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_PLAIN}" if colour and self._coloured else text


def _colour(line: Line) -> str:
    """The colour of a study: red if runs failed, green if all have a result, however they ended."""
    return _RED if line.failed else _GREEN if line.over == line.runs else ""


def _last_words(logs: Sequence[str]) -> str:
    """Why a job failed, by the end of the first of its logs that says anything."""
    from ketscale.jobs.supervise import explain

    for log in filter(os.path.exists, logs):
        if lines := Path(log).read_text(errors="replace").splitlines()[-200:]:
            return explain(lines, 1, None)
    return "it said nothing"
