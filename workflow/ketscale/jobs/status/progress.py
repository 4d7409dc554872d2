"""The runs of a call of Snakemake: how far each study is, which have failed, and what a dry run says of them."""

from __future__ import annotations

import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ketscale import process
from ketscale.config import Config
from ketscale.grid import Run
from ketscale.jobs import driver, supervise
from ketscale.words import aligned, counted, duration

# A study has a line whenever another of so many parts of its runs is over.
_PARTS = 4


def option(configfile: Path) -> str:
    """The option by which a command of `ketscale` is about a config, as it is typed behind it."""
    return "" if configfile == Path("config.yaml") else f" --config {shlex.quote(str(configfile))}"


class Progress:
    """The runs of a call.

    results: the folder of its results. called: each run with Snakemake's reason to train it.
    """

    def __init__(
        self, config: Config, configfiles: Sequence[Path], planned: Callable[[], Mapping[Run, str]]
    ) -> None:
        """configfiles: the one that the call names, if it names one. planned: gives `called`, once that is known."""
        self._config, self._planned = config, planned
        self._option = option(Path(os.path.relpath(configfiles[0]))) if configfiles else ""
        self.results, self._ended = Path(config.results), dict[Run, bool]()
        self.called: Mapping[Run, str] = {}
        self._studies: dict[str, frozenset[Run]] = {}
        # How many runs of each study are over, and how many parts of it.
        self._over, self._parts, self._began_s = Counter[str](), Counter[str](), 0.0

    def begin(self) -> None:
        """Take note of the runs of the call."""
        self.called, self._began_s = self._planned(), time.monotonic()
        whole = {
            study.name: self._config.runs_of(study) & self.called.keys() for study in self._config.studies
        }
        self._studies = {name: frozenset(runs) for name, runs in whole.items() if runs}

    def folder(self, run: Run) -> Path:
        """The folder of a run."""
        return self.results / run.folder

    def is_new(self, path: Path) -> bool:
        """Whether a file is there, and was written since this call has begun."""
        return path.exists() and path.stat().st_mtime >= driver.BEGAN.stat().st_mtime

    def reason(self, run: Run, job: str | None = None) -> str:
        """Why the run failed in this call, as it has noted (in this SLURM job, if one is named); '' if it has not."""
        note = supervise.read_note(self.folder(run)) or {}
        own = note.get("call") == process.call() and job in (None, note.get("job"))
        return str(note.get("reason")) if own else ""

    def end(self, run: Run, result: bool) -> list[str]:
        """Take note that a run has ended; a line for each study of which another part is over."""
        new = run not in self._ended
        self._ended[run] = result
        lines, width = [], max(map(len, self._studies), default=0)
        for name, runs in self._studies.items():
            self._over[name] += new and run in runs
            part = _PARTS * self._over[name] // len(runs)
            if part > self._parts[name]:
                self._parts[name] = part
                over = [self._ended[one] for one in runs if one in self._ended]
                failed = f", {over.count(False)} failed" if False in over else ""
                lines.append(f"{name:{width}}  {sum(over)} of {counted(len(runs), 'run')}{failed}")
        return lines

    def summary(self) -> list[str]:
        """The runs that were interrupted with the call, how many have a result, and what to type if not all have."""
        whys = {run: self.reason(run) for run in self.called if run not in self._ended}
        lines = [f"failed: {self.folder(run)}/train.log: {why}" for run, why in whys.items() if why]
        done, failed = sum(self._ended.values()), [*self._ended.values()].count(False) + len(lines)
        said = f"{done} of {counted(len(self.called), 'run')} ended with a result"
        lines.append(
            f"{said}{f', {failed} failed' if failed else ''}; {duration(time.monotonic() - self._began_s, 2)}"
        )
        left = f"`ketscale status{self._option}` shows what is left; the same command runs it again."
        return [*lines, *[left] * (done < len(self.called))] if self.called else []

    def planned(self) -> list[str]:
        """What a dry run says: the runs by study, why, and their node-hours."""
        from ketscale.jobs.costs import remainder

        if not self.called:
            return []
        rows = [(f"  {name}", str(len(runs))) for name, runs in self._studies.items()]
        parts = (part.partition(":")[0] for why in self.called.values() for part in why.split("; "))
        why = ", ".join(
            f"{each[:1].lower()}{each[1:]} ({count})" for each, count in Counter(parts).most_common(3)
        )
        head = f"{counted(len(self.called), 'run')} to train, by study (one may be in several):"
        hours = remainder(self._config, [*self.called], Path())
        return [head, *aligned(rows, right=[1]), f"why: {why}", f"planned: {hours}"]
