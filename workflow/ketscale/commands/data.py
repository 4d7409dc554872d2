"""`ketscale fetch` and `prepare`: the data of a workload."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ketscale import grid
from ketscale.commands import Add, add_source, checked_config, json_object
from ketscale.errors import UserError

if TYPE_CHECKING:
    from ketscale.config import Workload


def add(command: Add) -> None:
    """Add the commands."""
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
            "--out", type=Path, metavar="FILE", help="the manifest to write (default: in the results folder)"
        )
    prepare.add_argument(
        "--fetched", type=Path, nargs="?", metavar="FILE", help="fetched.json of `ketscale fetch`"
    )


def _fetch(options: argparse.Namespace) -> None:
    from ketscale.problems import fetching

    workload, results = _workload(options)
    fetching.fetch(workload, options.out or results / grid.FETCHED.format(workload=options.workload))


def _prepare(options: argparse.Namespace) -> None:
    workload, results = _workload(options)
    out = options.out or results / grid.PREPARED.format(workload=options.workload)
    prepare(
        options.workload,
        workload,
        out,
        options.fetched or results / grid.FETCHED.format(workload=options.workload),
    )


def prepare(name: str, workload: Workload, out: Path, fetched: Path) -> None:
    """Prepare the data of a workload of this name.

    out: the manifest to write. fetched: that of what was fetched, if anything is.

    Raises:
        UserError: data are missing or damaged, do not fit, or the family has none.
    """
    from ketscale.jobs import prepared
    from ketscale.problems import fetching
    from ketscale.problems.registry import family_of

    family = family_of(workload)
    if family.prepare is None:
        raise UserError(f"workloads.{name}: the family {family.name} has no data to prepare")
    # Before they are read: what changes meanwhile is prepared again.
    sources = prepared.digest(workload.sources(), out)
    family.prepare(workload, out, fetching.folder_of(fetched) if workload.fetched else None)
    prepared.note(out, sources)
    shared = prepared.shared(out)
    if shared:
        print(
            f"ketscale: {name}: {shared:,} samples of validation and test have something in common with a part "
            "before theirs (docs/own-data.md)",
            file=sys.stderr,
        )


def _workload(options: argparse.Namespace) -> tuple[Workload, Path]:
    """The workload's settings, and the results folder of its config."""
    from ketscale.config import suggestion
    from ketscale.problems.registry import workload_of

    if options.settings:
        given = json_object(options.settings, "--settings") | json_object(options.local, "--local")
        return workload_of(given, f"workloads.{options.workload}"), Path("results")
    config = checked_config(options.config)
    if options.workload not in config.workloads:
        raise UserError(
            f"{options.config}: no workload is called {options.workload}{suggestion(options.workload, config.workloads)}"
        )
    return config.workloads[options.workload][1], Path(config.results)
