"""`ketscale report`, `compare` and `export`: what records say."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ketscale.commands import Add, add_source, json_object
from ketscale.errors import UserError

if TYPE_CHECKING:
    from ketscale.config import Config


def add(command: Add) -> None:
    """Add the commands."""
    report = command(
        "report", _report, "Check all records of a study, and write its tables, figures and page"
    )
    add_source(report, "--study", "the whole config as JSON, instead of a file")
    report.add_argument(
        "--partial", action="store_true", help="use the runs that exist and list the missing ones"
    )
    report.add_argument(
        "--local", help="with --study: where the files of each workload are on this machine, as JSON"
    )

    report.add_argument(
        "--only",
        choices=("tables", "figures", "page"),
        help="make only these: the tables of the records, the figures of the tables, or the page of both",
    )
    report.add_argument(
        "--zip", action="store_true", help="also write report.zip, the report in one file to send"
    )
    report.add_argument(
        "--style",
        choices=("page", "paper"),
        default="page",
        help="paper: write the figures for papers, into the folder paper, and nothing else",
    )

    compare = command(
        "compare",
        _compare,
        "Compare two results folders: what became faster, slower, better or worse beyond noise",
        "Runs are paired if axes, seed, settings, data and hardware are the same. Exits with 1 if in B something is "
        "slower or worse, has other losses or no longer completes, else with 0.",
    )
    compare.add_argument("a", type=Path, metavar="A", help="the results folder to compare with")
    compare.add_argument("b", type=Path, metavar="B", help="the results folder that is judged")
    compare.add_argument(
        "--threshold",
        type=float,
        default=1.05,
        metavar="RATIO",
        help="smallest change of a step time that counts (default: 1.05)",
    )
    for kind in ("json", "csv"):
        compare.add_argument(f"--{kind}", type=Path, metavar="FILE", help=f"write the comparison as {kind}")

    export = command(
        "export",
        _export,
        "Write the histories and metrics of a results folder for TensorBoard or MLflow",
        "Their own libraries write, offline. Runs whose record cannot be used are left out and counted.",
    )
    export.add_argument("folder", type=Path, metavar="FOLDER", help="the results folder")
    export.add_argument("--to", choices=("tensorboard", "mlflow"), required=True, help="who shall read it")
    export.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="the folder to make")


def study(options: argparse.Namespace) -> tuple[Config, Path]:
    """The config that a report is made of, and its results folder."""
    from ketscale import analysis
    from ketscale.config import load

    given = json_object(options.study, "--study") if options.study else load(options.config)
    partial = {"partial": True} if options.partial else {}
    if options.study and options.local:
        splits = analysis.of(given, placed=False).splits
        blocks = dict(given["workloads"])
        for workload, places in json_object(options.local, "--local").items():
            name = splits.get(workload, workload)
            if name not in blocks or not isinstance(places, dict):
                raise UserError(
                    f"--local: {name} is no workload of the study, or has no JSON object of its files"
                )
            blocks[name] = {**blocks[name], **places}
        given = {**given, "workloads": blocks}
    config = analysis.of({**given, **partial}, placed=not options.study or options.local is not None)
    return config, Path(config.results)


def _report(options: argparse.Namespace) -> None:
    # Figures are files. The variable, which matplotlib reads on import, may name a window, or a notebook's backend that
    # is not installed here.
    os.environ["MPLBACKEND"] = "agg"
    from ketscale.analysis import report, terminal

    config, results = study(options)
    if options.style == "paper":
        report.papers(config, results)
        return
    if options.only:
        report.PARTS[options.only](config, results)
        return
    report.build(config, results, zipped=options.zip)
    print("\n".join([*terminal.answers(results), f"report: {results / report.PAGE}"]))


def _compare(options: argparse.Namespace) -> int:
    from ketscale.analysis import compare

    return compare.run(options.a, options.b, options.threshold, options.json, options.csv)


def _export(options: argparse.Namespace) -> None:
    from ketscale.analysis import export

    print(export.run(options.folder, options.to, options.out))
