"""The jobs of a config as Snakemake's rules ask for them: paths, inputs, settings and priorities.

Functions that take wildcards are input and param functions of rules. Snakemake decides by its notes and by times of files; where
contents say otherwise they have a file made again. Imports nothing heavy: Snakemake imports it at every start.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ketscale import analysis, grid
from ketscale.analysis import analysed
from ketscale.config import Config, Settings, load, merge, sources
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs import choice, prepared, tried
from ketscale.jobs import snakemake_internals as internals
from ketscale.measure import record

Wildcards = Any


class Jobs:
    """The jobs of a config.

    runs: in scheduling order, seed by seed. results, run, ...: patterns of paths. places: those of each workload's files on this
    machine; they change no number. host: units of the resource `host`, all for a timed run. in_job: whether this
    process is that of a job or a job group in an allocation: it runs the commands of its rules itself, one after the other.
    answers: gives the questions of the studies in the tables, with their answers.
    """

    def __init__(self, workflow: Any, settings: Mapping[str, Any]) -> None:
        """Read the config.

        settings: Snakemake's `config`, with what the command line adds.

        Raises:
            SystemExit: the config or a file that it names cannot be used; says why. (A WorkflowError would name a line of a
                rule file, but the mistake is in the config.)
        """
        self._workflow, self.in_job = workflow, not workflow.is_main_process
        try:
            self.config = _read(workflow, settings)
            self.places = grid.canonical(
                {name: workload.places() for name, (_, workload) in self.config.workloads.items()}
            )
            # Files that no run reads need not be there.
            for name in self.config.studied:
                sources(self.config, name)
        except UserError as error:
            sys.exit(f"Error in {', '.join(map(str, workflow.configfiles)) or 'the config'}: {error}")
        # A dry run writes nothing. Only when the jobs are planned does Snakemake know that it is one.
        prepared.may_note = lambda: not workflow.dryrun
        self.runs = self.config.runs
        self.results, self.partial = self.config.results, self.config.partial
        self.answers = functools.partial(analysed.summary, Path(self.results))
        self.run = f"{self.results}/{grid.RUNS}/{grid.PATTERN}"
        self.features = f"{self.results}/{grid.PREPARED}"
        self.fetched, self.tried = f"{self.results}/{grid.FETCHED}", f"{self.results}/{grid.TRIED}"
        # The first trials of all searches come first: they train the others with them, which would wait on other cores.
        first = sorted(
            self.runs, key=lambda run: self.config.trials.get(run.protocol, ("", len(self.runs)))[1]
        )
        self.order = {run: index for index, run in enumerate(first)}
        self.host = max([len(os.sched_getaffinity(0)), *(run.ranks * run.threads for run in self.runs)])
        # Inputs of the runs of a config with code of the user's, or with searches. Others are not asked, thousands of times.
        own = any(model.own_code for _, model in self.config.models.values())
        self.conditions = {"tried": self.tried_of} if own else {}
        self.conditions |= {"trials": self.trials_of} if self.config.trials else {}

    @functools.lru_cache(maxsize=4)  # noqa: B019  # there is one object of this class
    def run_of(self, wildcards: Wildcards) -> Run:
        """The run that wildcards name; Snakemake asks several functions about each run, one after the other."""
        return Run.of(wildcards)

    def record(self, run: Run) -> str:
        """The path of a run's record."""
        return f"{self.results}/{run.path}"

    def records(self, wildcards: Wildcards = None) -> list[str]:
        """The record of every run; for a partial report only the existing ones."""
        paths = map(self.record, self.runs)
        return [path for path in paths if not self.partial or Path(path).exists()]

    def text(self, wildcards: Wildcards) -> str:
        """The config as JSON. A function, so that braces in it are no wildcards."""
        return self.config.text

    # ------------------------------------------------------------------ data

    def workload_settings(self, wildcards: Wildcards) -> str:
        """Everything that determines a workload's data, as one canonical text."""
        return self.config.workload_text(wildcards.workload)

    def workload_places(self, wildcards: Wildcards) -> str:
        """The places of a workload's files on this machine."""
        return grid.canonical(self.config.workloads[wildcards.workload][1].places())

    def workload_sources(self, wildcards: Wildcards) -> str:
        """The digest of the names and contents of a workload's files: if it changes, its data are prepared again."""
        return self._digest(wildcards.workload)

    def fetched_of(self, wildcards: Wildcards) -> str | list[str]:
        """The manifest of what is fetched for a workload's data, which are prepared again if they are of others."""
        if self._data_outdated(wildcards.workload):
            self._remake(self.features.format(workload=wildcards.workload))
        fetches = self.config.workloads[wildcards.workload][1].fetched
        return self.fetched.format(workload=wildcards.workload) if fetches else []

    def data_of(self, wildcards: Wildcards) -> str | list[str]:
        """The manifest of a workload's data; empty if its family prepares none."""
        known = wildcards.workload in self.config.workloads
        prepares = known and self.config.family(wildcards.workload).prepared
        return self.features.format(workload=wildcards.workload) if prepares else []

    @functools.cache  # noqa: B019
    def _features_hash(self, workload: str) -> str | None:
        return prepared.features_hash(prepared.manifest(self.config, Path(self.results), workload))

    @functools.cache  # noqa: B019
    def _data_outdated(self, workload: str) -> bool:
        """Whether a workload's data are of other settings or sources."""
        return prepared.outdated(self.config, Path(self.results), workload)

    @functools.cache  # noqa: B019
    def _digest(self, workload: str) -> str:
        manifest = Path(self.features.format(workload=workload))
        with _in_words():
            return prepared.digest(sources(self.config, workload), manifest)

    # ------------------------------------------------------------------ runs

    @functools.cache  # noqa: B019
    def settings(self, run: Run) -> Settings:
        """The resolved settings of a run."""
        with _in_words():
            return self.config.settings(run)

    def run_settings(self, wildcards: Wildcards) -> str:
        """Everything that determines a run's numbers and timing, as one canonical text."""
        return self.settings(self.run_of(wildcards)).text

    def features_of(self, wildcards: Wildcards) -> str | list[str]:
        """The manifest of a run's data. Snakemake asks before it decides whether the run is done.

        By its notes and the times of files it would keep a record that no table uses.
        """
        run = self.run_of(wildcards)
        if not self.in_job:
            settings = self.settings(run)
            if settings.protocol.search and (pick := self._choice(replace(run, seed=0))):
                settings = settings.chosen(pick.chosen, pick.hash)
            if record.outdated(Path(self.results, run.path), settings, self._features_hash(run.workload)):
                self._remake(self.record(run))
        else:
            # Inputs are worked out before the scheduler of a job group is made, which reads its settings once.
            internals.complete_settings(self._workflow)
        return self.data_of(wildcards)

    def tried_of(self, wildcards: Wildcards) -> str | list[str]:
        """The note that a first step was taken, if the model is code of the user's and the run has to be trained.

        A finished run asks for none, so that a note which was deleted, or is made again for other runs, trains none again.
        """
        run = self.run_of(wildcards)
        settings = self.settings(run)
        # The smallest step of a study is for all its runs, with one split of its data; others are named by the command
        # line. The trials of a search have asked for it.
        if not settings.model.own_code or run.workload not in self.config.studied or settings.protocol.search:
            return []
        features, path = self._features_hash(run.workload), Path(self.results, run.path)
        trained = path.exists() and not record.outdated(path, settings, features)
        if trained and not self._data_outdated(run.workload):
            return []
        first = self.config.first_split(run.workload)
        note = self.tried.format(workload=first)
        if not tried.covers(Path(note), settings, self._features_hash(first)):
            self._remake(note)
        return note

    def trials_of(self, wildcards: Wildcards) -> list[str]:
        """The records of the trials of a run's search, if its protocol has one, by which the run chooses."""
        return [self.record(trial) for trial in self.config.trials_of(self.run_of(wildcards))]

    @functools.cache  # noqa: B019
    def _choice(self, run: Run) -> choice.Choice | None:
        """What the search of a run's point chooses; None before all of its trials have records, or if none can be chosen."""
        try:
            return choice.make(self.settings(run), Path(self.results), self._features_hash(run.workload))
        except UserError:
            return None

    def priority(self, wildcards: Wildcards) -> int:
        """Runs start seed by seed in the order of the grid; runs that only the command line names come last."""
        return len(self.runs) - self.order.get(self.run_of(wildcards), len(self.runs))

    def scheduled(self) -> bool:
        """Whether a job runs in an allocation of a scheduler; known when its resources are worked out."""
        return self.in_job or not self._workflow.local_exec

    def host_share(self, wildcards: Wildcards) -> int:
        """How much of the machine a run takes; inside an allocation all of it, since runs take turns there."""
        run = self.run_of(wildcards)
        exclusive = self.config.timed(run) or self.scheduled()
        return self.host if exclusive else min(run.ranks * run.threads, self.host)

    # ------------------------------------------------------------------ tables

    def records_of_tables(self, wildcards: Wildcards) -> list[str]:
        """The input of the tables; if they are there and are not what these records say now, they are made again."""
        if not self.in_job and self.tables_outdated():
            self._remake(f"{self.results}/{analysed.NOTE}")
        return self.records()

    @functools.cache  # noqa: B019
    def tables_outdated(self) -> str | None:
        """Why the tables must be made again although they are there; None if they must not."""
        why = analysed.outdated(self.config, Path(self.results))
        if why:
            print(f"ketscale: {why}; they are made again", file=sys.stderr)
        return why

    def _remake(self, path: str) -> None:
        # The jobs of a call skip this: their own process plans only its targets.
        if not self.in_job:
            internals.remake(self._workflow, path)


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    """In an input or param function: a `UserError` becomes Snakemake's own, of which it says the words alone."""
    try:
        yield
    except UserError as error:
        from snakemake.exceptions import WorkflowError  # type: ignore[import-untyped]

        raise WorkflowError(str(error)) from None


def _read(workflow: Any, raw: Mapping[str, Any]) -> Config:
    """The checked config of a call.

    Raises:
        UserError: it is wrong, or of several files.
    """
    if len(workflow.overwrite_configfiles or ()) > 1:
        first = os.path.relpath(workflow.overwrite_configfiles[0])
        raise UserError(
            "--configfile reads every name after it, and a study is one file. Put targets before --configfile; a file "
            f"that extends {first} says so itself (`over: {first}`)"
        )
    # `--config partial=true` arrives as text.
    texts = {"true": True, "false": False}
    switches = {name: texts.get(raw[name], raw[name]) for name in ("partial", "cohorts") if name in raw}
    # The files are read again: Snakemake's own reader takes the last of duplicate keys, and knows no `over`.
    full: dict[str, Any] = {}
    for path in workflow.configfiles:
        full = merge(load(path), full)
    options = {**raw, **switches}
    return analysis.of(merge(options, full) if "over" in options else options)
