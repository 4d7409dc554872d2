"""`ketscale init`, `fetch` and `prepare`: the data of a workload."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ketscale import grid
from ketscale.commands import Add, add_source, json_object, load_config
from ketscale.errors import UserError
from ketscale.words import say

if TYPE_CHECKING:
    from ketscale.config import Workload


def add(command: Add) -> None:
    """Add the commands."""
    init = command(
        "init",
        _init,
        "Write a first config for your own data, with comments, that trains at once",
        "It is a start to edit: a model and its control, their accuracies, and what trains the model fastest.",
    )
    init.add_argument(
        "data",
        type=Path,
        nargs="?",
        help="a .csv or .npz file, or a folder with a folder of images for each class",
    )
    init.add_argument(
        "--scaling",
        action="store_true",
        help="write a study of how a step scales over the threads, ranks and GPUs of this machine; without data, of digits",
    )
    init.add_argument(
        "--model", metavar="FILE.py", help="your own model; FILE.py:CLASS if the file has several classes"
    )
    init.add_argument(
        "--target", default="", metavar="NAMES", help="the columns of a table that are to be predicted"
    )
    init.add_argument("--kind", help="the kind of workload, where several read such a file")
    init.add_argument(
        "--out", type=Path, metavar="FILE", help="the config to write (default: the data's name, with .yaml)"
    )

    fetch = command(
        "fetch",
        _fetch,
        "Download what a workload needs, and verify checksums",
        "Only data sets and weights that no folder named in the config provides.",
    )
    prepare = command(
        "prepare",
        _prepare,
        "Convert a workload's data, once, to the form that runs read",
        "What that is depends on the workload's family. Data that are complete already are kept.",
    )
    for parser in (fetch, prepare):
        parser.add_argument("workload", help="the workload's name in the config")
        add_source(parser, "--settings", "the workload's settings as JSON, instead of a config")
        parser.add_argument(
            "--local",
            default="{}",
            help="with --settings: where the workload's files are on this machine, as JSON",
        )
        parser.add_argument(
            "--out", type=Path, metavar="FILE", help="the file to write (default: in the results folder)"
        )
    prepare.add_argument(
        "--fetched", type=Path, nargs="?", metavar="FILE", help="fetched.json of `ketscale fetch`"
    )


def _init(options: argparse.Namespace) -> None:
    from ketscale.jobs import driver
    from ketscale.problems import draft

    data: Path | None = options.data
    if data is None and not options.scaling:
        raise UserError("init needs your data, a file or a folder; without data, give --scaling")
    out = options.out or Path(f"{data.absolute().stem if data else 'scaling'}.yaml")
    targets = tuple(filter(None, options.target.split(",")))
    command = driver.command(out)
    text, notes = draft.drafted(data, command, options.kind, targets, options.model, options.scaling)
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"{out}: is there already; name another file with --out") from None
    for note in notes:
        print(f"{data}: {note}")
    print(f"{out}: written; next: {command}")


def _fetch(options: argparse.Namespace) -> None:
    from ketscale.problems import store

    workload, results = _workload(options)
    store.fetch(workload, options.out or results / grid.FETCHED.format(workload=options.workload))


def _prepare(options: argparse.Namespace) -> None:
    workload, results = _workload(options)
    out = options.out or results / grid.PREPARED.format(workload=options.workload)
    fetched = options.fetched or results / grid.FETCHED.format(workload=options.workload)
    prepare(options.workload, workload, out, fetched)


def prepare(name: str, workload: Workload, out: Path, fetched: Path) -> None:
    """Prepare the data of a workload of this name.

    out: the manifest to write. fetched: that of what was fetched, if anything is.

    Raises:
        UserError: data are missing or damaged, do not fit, or the family has none.
    """
    from ketscale.jobs import prepared
    from ketscale.problems import store
    from ketscale.problems.registry import family_of

    family = family_of(workload)
    if family.prepare is None:
        raise UserError(f"workloads.{name}: the family {family.name} has no data to prepare")
    try:
        # Before they are read: files that change in the meantime are prepared again.
        sources = prepared.digest(workload.sources(), out)
        family.prepare(workload, out, store.fetched(fetched) if workload.fetched else None)
    except UserError as error:
        # With the lines of the user's own code, if there is some.
        raise UserError(f"workloads.{name}: {error}").with_traceback(error.__traceback__) from None
    prepared.note(out, sources)
    shared = prepared.shared(out)
    if shared:
        say(
            f"{name}: {shared:,} samples of validation and test have something in common with a part before theirs "
            "(docs/own-data.md)"
        )


def _workload(options: argparse.Namespace) -> tuple[Workload, Path]:
    """The workload's settings, and the results folder of its config."""
    from ketscale.problems.registry import workload_of
    from ketscale.words import suggestion

    if options.settings:
        settings = json_object(options.settings, "--settings") | json_object(options.local, "--local")
        return workload_of(settings, f"workloads.{options.workload}"), Path("results")
    config = load_config(options.config)
    if options.workload not in config.workloads:
        raise UserError(
            f"{options.config}: no workload is called {options.workload}{suggestion(options.workload, config.workloads)}"
        )
    return config.workloads[options.workload][1], Path(config.results)
