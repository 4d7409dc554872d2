"""Cohorts: the runs of a call that one process trains together, since they have the same shape.

They differ in their seeds, and in settings of the protocol that change no shape. The call writes down its cohorts when
it starts. The first job of a cohort trains all of its runs that have no result yet, and keeps what they leave for their own jobs.
Imports next to nothing: `ketscale launch` asks here.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ketscale import process, strict_json
from ketscale.files import write_atomic
from ketscale.grid import BACKENDS, Run, canonical

if TYPE_CHECKING:
    from ketscale.config import Families, Settings

# Settings of a protocol in which the runs of a cohort may differ.
FREE = ("learning_rate", "weight_decay", "clip_norm", "plateau", "cosine", "early_stopping", "epochs")
# More runs make no step cheaper, and what they keep grows.
MOST = 32
# The folder of all calls' cohorts in that of the results, and the variable by which jobs find that of their call.
FOLDER = "cohorts"
VARIABLE = "KETSCALE_COHORTS"
# The file of each run's cohort there, by the path of its record.
_INDEX = "index.json"


def shape(settings: Settings) -> str | None:
    """What runs that are trained together have in common, as one text; None for a run that trains alone."""
    run, protocol, simulator = settings.run, settings.protocol, settings.simulator
    exclusive = (
        settings.model.stacks is False or not protocol.stepped,
        simulator is not None and not simulator.stacks,
        run.ranks > 1,
        # Not tried on a GPU yet.
        BACKENDS[run.backend].device != "cpu",
        protocol.timed,
        protocol.limit_s is not None,
        protocol.mistake is not None,
        protocol.precision == "amp",
        protocol.features != "cached",
        protocol.optimiser == "l-bfgs",
        protocol.parallel != "samples",
    )
    if any(exclusive):
        return None
    content = settings.content
    axes = {name: value for name, value in content["run"].items() if name not in ("seed", "protocol")}
    rest = {name: value for name, value in content["protocol"].items() if name not in FREE}
    # What a search chooses for another protocol may change a shape.
    searched = run.protocol if protocol.search else None
    return canonical(
        {**content, "run": axes, "protocol": rest, "by_epochs": protocol.by_epochs, "searched": searched}
    )


def plan(
    runs: Iterable[Settings],
    cores: int,
    place: Callable[[Run], str] = lambda run: "",
    missing: Container[Run] | None = None,
) -> list[list[Settings]]:
    """The cohorts among the runs of a config, each of at least two.

    cores: those on which jobs run at a time. Runs of one shape are spread over several cohorts where fewer would leave
        some of these idle.
    place: names what a run shares with others that may train in its process, such as its allocation.
    missing: the runs that are to be trained; None for all. The others are assigned too, so that those that remain after
        an interruption stay together.
    """
    alike: dict[tuple[str, str], list[Settings]] = {}
    others = 0
    for settings in runs:
        common = shape(settings)
        if common is None:
            others += 1
        else:
            alike.setdefault((place(settings.run), common), []).append(settings)
    dealt = []
    for of_shape in alike.values():
        places = max(1, cores // of_shape[0].run.threads - others)
        parts = max(math.ceil(places / len(alike)), math.ceil(len(of_shape) / MOST))
        # Jobs start in the order of the runs, and two of one cohort would wait for each other.
        dealt += [of_shape[part::parts] for part in range(parts)]
    rest = [[one for one in cohort if missing is None or one.run in missing] for cohort in dealt]
    return [cohort for cohort in rest if len(cohort) > 1]


def write(results: Path, cohorts: Sequence[Sequence[Settings]]) -> None:
    """Write down the cohorts of this call, for its jobs, which inherit the name of the folder."""
    folder, index = results / FOLDER / str(process.call()), dict[str, str]()
    for number, cohort in enumerate(cohorts):
        content = json.dumps([settings.content for settings in cohort])
        write_atomic(folder / f"{number}.json", content.encode())
        index |= {settings.run.path: f"{number}.json" for settings in cohort}
    if index:
        strict_json.write(folder / _INDEX, index)
    os.environ[VARIABLE] = str(folder.resolve())


def forget() -> None:
    """Delete what was written down, at the end of the call."""
    folder = os.environ.get(VARIABLE)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
        # Other calls in the same results may have theirs beside it.
        with contextlib.suppress(OSError):
            Path(folder).parent.rmdir()


def file_of(run: Run) -> Path | None:
    """The file of the cohort of a run in this call; None if it trains alone."""
    folder = os.environ.get(VARIABLE)
    name = strict_json.of_note(Path(folder, _INDEX)).get(run.path) if folder else None
    return Path(str(folder), name) if name else None


def read(file: Path, families: Families) -> list[Settings]:
    """The settings of a cohort's runs."""
    from ketscale.config import Settings

    return [Settings.of(content, families, str(file)) for content in json.loads(file.read_bytes())]
