"""`ketscale train` and `launch`: one run, on the ranks that are there or that it starts."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ketscale import grid
from ketscale.commands import Add, add_source, json_object, load_config
from ketscale.errors import UserError
from ketscale.words import say

if TYPE_CHECKING:
    from ketscale.config import Settings


RECORD_PATH = "the run's record: results/runs/.../metrics.json"


def add(command: Add) -> None:
    """Add the commands."""
    train = command(
        "train",
        _train,
        "Train one run and write its record",
        "It is the process of one rank; `launch` starts all ranks. A run that was stopped resumes from its checkpoint; a "
        "timed one starts again.",
    )
    launch = command(
        "launch",
        _launch,
        "Start all ranks of one run with their threads set, and train it",
        "Runs `ketscale train` under mpirun or torchrun, as the run's backend needs, or under srun inside a SLURM "
        "allocation.",
    )
    for parser in (train, launch):
        parser.add_argument("record", metavar="PATH", help=f"path of {RECORD_PATH}")
        add_source(parser, "--settings", "the run's resolved settings as JSON, instead of a config")
        parser.add_argument(
            "--features",
            type=Path,
            nargs="?",
            metavar="FILE",
            help="features.json of the workload (default: features/WORKLOAD/features.json in the results folder)",
        )
    train.add_argument(
        "--cohort",
        type=Path,
        metavar="FILE",
        help="runs to train together with this one, as a call of Snakemake writes them down",
    )


def _train(options: argparse.Namespace) -> NoReturn:
    from ketscale.jobs import provenance

    # Before what trains is imported: whatever happens to the sources from now on is none of this run's.
    provenance.snapshot()
    settings = _searched(options)
    from ketscale.process import THREAD_VARIABLES, end, permanent

    # A run that is started by hand may lack these. Thread pools read them on import; other values are rejected later.
    for name in THREAD_VARIABLES:
        os.environ[name] = os.environ.get(name) or str(settings.run.threads)
    with permanent():
        from ketscale.jobs.session import train
        from ketscale.training.loop import Stopped

    try:
        manifest = _manifest(options, settings)
        status = train(settings, _folder(options), manifest, options.cohort)
    except Stopped as stopped:
        say(stopped)
        end(143)
    else:
        print(f"{settings.run.folder}: {status}")
        end(0)


def _launch(options: argparse.Namespace) -> int:
    from ketscale.jobs import supervise
    from ketscale.process import call

    _run(options)  # a path that names no run gets no note
    try:
        return _launched(options)
    except UserError as error:
        # What is wrong with a call by hand is printed on its terminal only.
        if call() is not None and _folder(options).is_dir():
            supervise.leave_note_of("", _folder(options), str(error))
        raise


def _launched(options: argparse.Namespace) -> int:
    from ketscale.jobs import cohorts, finished, host_lock, launch, supervise, tried

    run, folder, settings = _run(options), _folder(options), options.settings
    # The ranks check them while they start; those of another run are rejected first.
    if not settings or json_object(settings, "--settings").get("run") != dataclasses.asdict(run):
        settings = _settings(options).text
    if _has_result(options, folder):
        return 0
    arguments = ["ketscale", "train", options.record, "--settings", settings]
    cohort = cohorts.file_of(run)
    if cohort and tried.is_single(folder, _searched(options).content):
        cohort = None
    for name, value in (("features", options.features), ("cohort", cohort)):
        if value:
            arguments += [f"--{name}", str(value)]
    with host_lock.hold(json_object(settings, "--settings")["protocol"]["timed"]):
        # Another process may have trained it in the meantime.
        if _has_result(options, folder):
            return 0
        if finished.AGAIN in os.environ:
            (folder / grid.RECORD).unlink(missing_ok=True)
        command = f"{launch.prefix_here(run)} {shlex.join(arguments)}"
        return supervise.run(command, folder, launch.environment())


def _has_result(options: argparse.Namespace, folder: Path) -> bool:
    """Whether the run need not be trained; then its record is in its place, and a message says so."""
    from ketscale.jobs import finished, supervise

    # Most have none, and need not import what checks it.
    if not any((place / grid.RECORD).exists() for place in (folder, folder / finished.KEPT)):
        return False
    from ketscale.jobs import prepared

    settings = _searched(options)
    features = prepared.features_hash(_manifest(options, settings))
    if finished.result(folder, settings, features) is None:
        return False
    (folder / supervise.NOTE).unlink(missing_ok=True)
    print(f"{_run(options).folder}: has its result; without its {grid.RECORD} it is trained again")
    return True


def _settings(options: argparse.Namespace) -> Settings:
    """The settings of the run that a record's path names. Settings that are given must belong to that run."""
    from ketscale.config import Settings
    from ketscale.problems.registry import FAMILIES

    run = _run(options)
    if not options.settings:
        return load_config(options.config).settings(run)
    settings = Settings.of(json_object(options.settings, "--settings"), FAMILIES, "--settings")
    if settings.run != run:
        raise UserError(
            f"--settings belong to {settings.run.path}, not to {run.path}; give the settings of the run in the path"
        )
    return settings


def _searched(options: argparse.Namespace) -> Settings:
    """The same with what a search has chosen for the run."""
    from ketscale.jobs import choice, prepared

    settings = _settings(options)
    if settings.protocol.search is None or settings.choice:
        return settings
    features = prepared.features_hash(_manifest(options, settings))
    pick = choice.make(settings, _results(options, settings), features)
    return settings.chosen(pick.chosen, pick.hash)


def _run(options: argparse.Namespace) -> grid.Run:
    """The run that a path names."""
    return grid.Run.parse(options.record)


def _results(options: argparse.Namespace, settings: Settings) -> Path:
    """The results folder that a path is in; `results` for one that is elsewhere."""
    own = settings.run.path
    return Path(options.record.removesuffix(own) or ".") if options.record.endswith(own) else Path("results")


def _folder(options: argparse.Namespace) -> Path:
    return Path(options.record.removesuffix(grid.RECORD))


def _manifest(options: argparse.Namespace, settings: Settings) -> Path | None:
    """The manifest of the run's data: as given, else in its results folder; None for a family without data."""
    if not settings.family.prepared:
        return None
    if options.features:
        return Path(options.features)
    return _results(options, settings) / grid.PREPARED.format(workload=settings.run.workload)
