"""`ketscale try`, `status`, `plan` and `recommend`: the runs of a study, done and left."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ketscale import grid
from ketscale.commands import Add, add_config, add_source, amount, json_object, load_config
from ketscale.errors import UserError, in_words

if TYPE_CHECKING:
    from ketscale.config import Config


def add(command: Add) -> None:
    """Add the commands."""
    tries = command(
        "try",
        _try,
        "Take one step of each model on each workload and simulator of a study, at the smallest size",
        "It takes seconds and reports what would fail later. Data that are not prepared yet are prepared.",
    )
    tries.add_argument("workload", nargs="?", help="only this workload")
    add_source(tries, "--study", "the whole config as JSON, instead of a file")
    tries.add_argument(
        "--features", type=Path, nargs="?", metavar="FILE", help="features.json of the workload"
    )
    tries.add_argument(
        "--out", type=Path, metavar="FILE", help="the note to write (default: in the results folder)"
    )

    status = command(
        "status",
        _status,
        "Show the state of every run of a study, and how much is left",
        "A run is done (it has a record, however it ended), running, queued in SLURM, failed (it says "
        "why), interrupted (it was killed), stale (its record is of other settings, data or versions), refused (its record is "
        "damaged, or contradicts others) or missing. It changes nothing and may be called at any time.",
    )
    add_config(status)
    status.add_argument(
        "--follow",
        type=amount,
        nargs="?",
        const=30.0,
        metavar="SECONDS",
        help="stay on the terminal and look again so often (default: every 30), until Ctrl-C",
    )
    status.add_argument(
        "--failed",
        action="store_true",
        help="list only runs that failed, were interrupted, or are stale or refused, each with the command that runs it again",
    )

    plan = command(
        "plan",
        _plan,
        "Say what the missing runs of a study will cost, and which to do first on a budget",
        "Time and node-hours are learned from records; the plan says nothing about what no run has "
        "measured. It changes nothing.",
    )
    add_config(plan)
    plan.add_argument(
        "--node-hours",
        type=amount,
        metavar="NUMBER",
        help="the budget (default: none)",
    )
    plan.add_argument(
        "--records",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="another results folder to learn costs from; may be repeated",
    )
    text = "print only the runs to do first, as targets of Snakemake"
    plan.add_argument("--targets", action="store_true", help=text)

    recommend = command(
        "recommend",
        _recommend,
        "Try which simulator and layout of this machine train a run fastest, and say how sure that is",
        "Short trainings of all candidates take turns, up to five rounds.",
    )
    recommend.add_argument(
        "record",
        help="path of a run's record; its simulator, layout and seed do not count: results/runs/.../metrics.json",
    )
    add_config(recommend)
    recommend.add_argument(
        "--minutes",
        type=amount,
        default=3.0,
        metavar="NUMBER",
        help="minutes that the trials may take (default: 3)",
    )
    for name in ("simulators", "layouts"):
        recommend.add_argument(
            f"--{name}", metavar="NAMES", default="", help=f"only these {name}, separated by commas"
        )


def _try(options: argparse.Namespace) -> int:
    from ketscale import analysis
    from ketscale.words import suggestion

    if options.study:
        config = analysis.of(json_object(options.study, "--study"), placed=False)
    else:
        config = load_config(options.config)
    names = (
        [options.workload] if options.workload else [*dict.fromkeys(map(config.first_split, config.studied))]
    )
    for name in names:
        if name not in config.studied:
            raise UserError(f"no study has the workload {name}{suggestion(name, config.studied)}")
    if len(names) == 1:
        _try_workload(config, names[0], options)
        return 0
    # A process for each, so that none sees what the code of another one has changed.
    source = ["--study", options.study] if options.study else ["--config", str(options.config)]
    command = [sys.executable, "-P", "-m", "ketscale", "try", *source]
    codes = [subprocess.run([*command, name]).returncode for name in names]
    return max(128 - status if status < 0 else status for status in codes)


def _try_workload(config: Config, name: str, options: argparse.Namespace) -> None:
    from ketscale.commands.data import prepare
    from ketscale.jobs import prepared, tried

    results, workload = Path(config.results), config.workloads[name][1]
    manifest = options.features or prepared.manifest(config, results, name)
    there = prepared.features_hash(manifest) is not None and not prepared.outdated(config, results, name)
    if manifest is not None and not options.features and not there:
        prepare(name, workload, manifest, results / grid.FETCHED.format(workload=name))
    from ketscale.jobs import first_step
    from ketscale.words import counted, say

    for leak in prepared.leaks(results, [name]):
        say(leak)
    trials: dict[str, tried.Tried] = {}
    failed: dict[str, list[str]] = {}
    for key, settings in tried.smallest(config, name).items():
        try:
            trials[key] = one = first_step.take(settings, manifest)
            print(f"{settings.run.name}: {one}", flush=True)
        except (Exception, SystemExit) as error:
            if (message := in_words(error)) is None:
                raise
            failed.setdefault(message, []).append(settings.run.name)
    if failed:
        lines = []
        for message, (first, *others) in failed.items():
            more = f", and of {counted(len(others), 'other')}" if others else ""
            lines.append(f"{message} (the first step of {first}{more})")
        raise UserError(*lines)
    note = options.out or results / grid.TRIED.format(workload=name)
    tried.write(note, prepared.features_hash(manifest), trials)


def _status(options: argparse.Namespace) -> None:
    from ketscale.jobs.status import as_text
    from ketscale.problems.registry import read_config

    config = read_config(options.config)
    if options.follow is None:
        print(as_text(config, options.config, Path(), options.failed))
        return
    if not sys.stdout.isatty():
        raise UserError("--follow needs a terminal; elsewhere call `ketscale status` again and again")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            text = as_text(config, options.config, Path(), options.failed)
            # On an empty screen, from its first line.
            print(f"\x1b[2J\x1b[H{text}\n\n{time.strftime('%H:%M:%S')}; Ctrl-C ends", flush=True)
            time.sleep(max(1.0, options.follow))


def _plan(options: argparse.Namespace) -> None:
    from ketscale.analysis.advice import plan
    from ketscale.problems.registry import read_config

    config = read_config(options.config)
    for folder in options.records:
        if not (folder / grid.RUNS).is_dir():
            raise UserError(f"--records {folder}: not a results folder; it has no folder {grid.RUNS}")
    current = plan.make(config, options.config, options.node_hours, options.records)
    print(plan.as_targets(current) if options.targets else plan.as_text(current))


def _recommend(options: argparse.Namespace) -> None:
    from ketscale.analysis.advice import recommend
    from ketscale.measure import host
    from ketscale.problems.registry import read_config

    config, point, machine = read_config(options.config), grid.Run.parse(options.record), host.describe()
    every = [*config.simulators] if point.simulator != "none" else ["none"]
    simulators = options.simulators.split(",") if options.simulators else every
    layouts = (
        options.layouts.split(",")
        if options.layouts
        else host.layouts(machine["cores"], len(machine["gpus"]))
    )
    runs = recommend.candidates(config, point, simulators, layouts)
    print(recommend.recommend(config, runs, 60 * options.minutes))
