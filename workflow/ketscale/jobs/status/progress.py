"""How the runs of a call of Snakemake go: a line for each study, what is left of it, and why a run failed."""

from __future__ import annotations

import os
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ketscale import process
from ketscale.files import read_bytes
from ketscale.grid import RECORD, RUNS, Run
from ketscale.jobs import supervise
from ketscale.jobs.slurm import site as sites
from ketscale.words import aligned, counted, duration, rounded

if TYPE_CHECKING:
    from ketscale.config import Config
    from ketscale.jobs.costs import Forecast

# Early ends in words. A run that the limit of its protocol ends has done what was asked for.
ENDS = {"timed_out": "ended by limit_s", "diverged": "diverged", "out_of_memory": "ran out of memory"}
# A dry run of no more runs names them.
_NAMED = 10


class Result(msgspec.Struct):
    """What is read of the record of a run that has just finished; the rule that collects records checks all of it."""

    status: str
    node_hours: float


class Line(NamedTuple):
    """A study of a call: how many runs it has there, how many of them are over, and that in words."""

    study: str
    runs: int
    over: int
    text: str


class Progress:
    """The runs of a call: which are left, which have a result, and which failed."""

    def __init__(self, config: Config, site: sites.Site, configfiles: Sequence[Path] = ()) -> None:
        """configfiles: the one that the call names, if it names one."""
        self._config = config
        self._site = site
        named = f" --config {shlex.quote(os.path.relpath(configfiles[0]))}" if configfiles else ""
        self._status = f"ketscale status{named}"
        self._called: dict[Run, int] = {}
        self._studies: dict[str, list[Run]] = {}
        self._forecasts: dict[Run, Forecast] = {}
        self._together: dict[Run, Sequence[Run]] = {}
        self._results: dict[Run, Result] = {}
        self._failed: set[Run] = set()
        self._began_s = 0.0

    def begin(self, called: Iterable[Run]) -> None:
        """Take note of the runs that the call trains. Records of earlier calls may tell what they cost."""
        wanted = set(called)
        # In the order in which they start; those that only the command line names come last.
        order = dict.fromkeys(run for run in (*self._config.runs, *sorted(wanted)) if run in wanted)
        self._called = {run: place for place, run in enumerate(order)}
        whole = {study.name: self._config.runs_of(study) for study in self._config.studies}
        parts = {name: [run for run in order if run in runs] for name, runs in whole.items()}
        self._studies = {name: runs for name, runs in parts.items() if runs}
        folder = Path(self._config.results)
        if wanted and any((folder / RUNS).rglob(RECORD)):
            from ketscale.jobs.costs import Call, Costs

            self._forecasts = Call(Costs.of(folder), self._config, order, Path()).forecasts()
        self._began_s = time.monotonic()

    def train_together(self, cohorts: Iterable[Sequence[Run]]) -> None:
        """Take note of the runs that one process trains."""
        self._together = {run: cohort for cohort in cohorts for run in cohort}

    def finish(self, run: Run) -> None:
        """Take note that a run has left its record."""
        self._failed.discard(run)
        try:
            self._results[run] = msgspec.json.decode(read_bytes(self._path(run)), type=Result)
        except (OSError, msgspec.MsgspecError):
            # The rule that collects records says what is wrong with it.
            self._results[run] = Result("unknown", 0.0)

    def fail(self, run: Run) -> None:
        """Take note that a run's job has failed; another try may end well."""
        self._failed.add(run)

    def has_record(self, run: Run) -> bool:
        """Whether the run has left its record."""
        return self._path(run).exists()

    def reason(self, run: Run, job: str | None = None) -> str | None:
        """Why the run failed in this call, as it has noted (in this SLURM job, if one is named); None if it has not."""
        note = self._note(run)
        return str(note.get("reason")) if note and job in (None, note.get("job")) else None

    def interrupted(self) -> Iterator[tuple[str, str, str | None]]:
        """The log, the reason and the SLURM job of each other run that failed; now it counts as such."""
        for run in self._called:
            if run not in self._results and run not in self._failed and (note := self._note(run)):
                self.fail(run)
                yield str(self._path(run).with_name("train.log")), str(note.get("reason")), note.get("job")

    def _note(self, run: Run) -> dict[str, Any] | None:
        """What the run has noted of its failure in this call."""
        note = supervise.read_note(self._path(run).parent)
        return note if note and note.get("call") == process.call() else None

    def lines(self) -> list[Line]:
        """How far each study of the call is."""
        until = self._until()
        lines, width = [], max(map(len, self._studies), default=0)
        for name, runs in self._studies.items():
            done = [self._results[run] for run in runs if run in self._results]
            failed = sum(run in self._failed for run in runs)
            left = [run for run in runs if run not in self._results and run not in self._failed]
            words = [f"{len(done)} of {counted(len(runs), 'run')}", *_ends(done)]
            words += [f"{failed} failed"] if failed else []
            last = max(left, key=lambda run: self._called[run], default=None)
            if last in until:
                words.append(f"about {duration(until[last], 2)} left")
            lines.append(Line(name, len(runs), len(done) + failed, f"{name:{width}}  {', '.join(words)}"))
        return lines

    def end(self) -> str:
        """How many runs of the call have a result, and what to type if not all have one; '' for a call that trains none."""
        done, runs = len(self._results), len(self._called)
        if not runs:
            return ""
        words = [f"{done} of {counted(runs, 'run')} ended with a result", *_ends(self._results.values())]
        words += [f"{len(self._failed)} failed"] if self._failed else []
        text = f"{', '.join(words)}; {duration(time.monotonic() - self._began_s, 2)}"
        return (
            text
            if done == runs
            else f"{text}\n`{self._status}` shows what is left; the same command runs it again."
        )

    def planned(self) -> list[str]:
        """What a dry run says: the runs by study, and their node-hours."""
        whole = {study.name: len(self._config.runs_of(study)) for study in self._config.studies}
        rows = [(f"  {name}", f"{len(runs)} of {whole[name]}") for name, runs in self._studies.items()]
        others = len(self._called.keys() - self._config.run_set)
        rows += [("  in no study", str(others))] if others else []
        head = f"{counted(len(self._called), 'run')} to train, by study (one may be in several):"
        paths = [f"  {self._path(run)}" for run in self._called] if len(self._called) <= _NAMED else []
        return [head, *aligned(rows, right=[1]), *paths, *self._hours()]

    def _hours(self) -> list[str]:
        """The node-hours of the call: a forecast for the runs that have one, and a bound for the others."""
        lines = []
        known = [self._forecasts[run] for run in self._called if run in self._forecasts]
        if known:
            from ketscale.jobs.costs import longest, total

            hours = total(one.node_hours for one in known)
            lines.append(
                f"planned: about {rounded(hours.middle)} node-hours ({rounded(hours.low)} to {rounded(hours.high)}) for "
                f"{counted(len(known), 'run')}, as learned from records"
            )
            lines.append(f"the longest run: {longest(self._config, known)}")
        unknown = [run for run in self._called if run not in self._forecasts]
        if unknown:
            most = sum(self._site.minutes(run) * run.nodes for run in unknown) / 60
            lines.append(
                f"planned: on a cluster at most {rounded(most)} node-hours for {counted(len(unknown), 'run')}, by the "
                f"time limits in {sites.PATH.name}; no record tells what they take"
            )
        return lines

    def _until(self) -> dict[Run, float]:
        """The seconds until each run that is left has ended, for those that come before the first of unknown cost.

        At the pace so far, in node-hours of results in the time since the beginning.
        """
        points: dict[object, list[float]] = {}
        for run, result in self._results.items():
            points.setdefault(run.without("seed"), []).append(result.node_hours)
        done = sum(result.node_hours for result in self._results.values())
        if not done:
            return {}
        s_per_hour = (time.monotonic() - self._began_s) / done
        until: dict[Run, float] = {}
        hours = 0.0
        for run in self._called:
            members = [
                one
                for one in self._together.get(run, [run])
                if one not in self._results.keys() | self._failed
            ]
            if run in until or run not in members:
                continue
            # None of a cohort ends long before the others.
            for one in members:
                forecast = self._forecasts.get(one)
                if alike := points.get(one.without("seed")):
                    hours += fmean(alike)
                elif forecast and not forecast.beyond:
                    hours += forecast.node_hours.middle
                else:
                    return until
            until |= dict.fromkeys(members, hours * s_per_hour)
        return until

    def _path(self, run: Run) -> Path:
        return Path(self._config.results, run.path)


def _ends(results: Iterable[Result]) -> list[str]:
    """How many ended early, in words."""
    number = Counter(result.status for result in results)
    return [f"{number[status]} {words}" for status, words in ENDS.items() if number[status]]
