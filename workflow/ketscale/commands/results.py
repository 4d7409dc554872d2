"""`ketscale report`, `compare` and `export`: what records say."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ketscale import grid
from ketscale.commands import Add, add_source, amount, json_object
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

    compare = command(
        "compare",
        _compare,
        "Compare two results folders: what became faster, slower, better or worse beyond noise",
        "Runs are paired by axes and seed, if their hosts and data agree. Exits with 1 if in B something is slower or "
        "worse, differs in its losses or no longer completes, else with 0.",
    )
    compare.add_argument("a", type=Path, metavar="A", help="the results folder to compare with")
    compare.add_argument("b", type=Path, metavar="B", help="the results folder that is judged")
    compare.add_argument(
        "--threshold",
        type=amount,
        default=1.05,
        metavar="RATIO",
        help="smallest change of a step time that counts (default: 1.05)",
    )
    for kind in ("json", "csv"):
        compare.add_argument(f"--{kind}", type=Path, metavar="FILE", help=f"write the comparison as {kind}")

    export = command(
        "export",
        _export,
        "Write the histories, settings and metrics of a results folder for TensorBoard or MLflow",
        "Records that cannot be used are omitted.",
    )
    export.add_argument("folder", type=Path, metavar="FOLDER", help="the results folder")
    export.add_argument("--to", choices=("tensorboard", "mlflow"), required=True, help="who shall read it")
    export.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="the folder to make")


def study(options: argparse.Namespace) -> tuple[Config, Path]:
    """The config that a report is made of, and its results folder."""
    from ketscale import analysis
    from ketscale.config import load

    settings = json_object(options.study, "--study") if options.study else load(options.config)
    partial = {"partial": True} if options.partial else {}
    if options.study and options.local:
        splits = analysis.of(settings, placed=False).splits
        blocks = dict(settings["workloads"])
        for workload, places in json_object(options.local, "--local").items():
            name = splits.get(workload, workload)
            if name not in blocks or not isinstance(places, dict):
                raise UserError(
                    f"--local: {name} is no workload of the study, or has no JSON object of its files"
                )
            blocks[name] = {**blocks[name], **places}
        settings = {**settings, "workloads": blocks}
    config = analysis.of({**settings, **partial}, placed=not options.study or options.local is not None)
    return config, Path(config.results)


def _report(options: argparse.Namespace) -> None:
    # Figures are files. The variable, which matplotlib reads on import, may name a window, or a notebook's backend that
    # is not installed here.
    os.environ["MPLBACKEND"] = "agg"
    from ketscale.analysis import analysed, report
    from ketscale.jobs import records
    from ketscale.words import counted

    config, results = study(options)
    try:
        (report.PARTS[options.only] if options.only else report.build)(config, results)
    except UserError as error:
        # The same call trains their runs again.
        aside = [] if config.partial else records.set_aside(results / run.path for run in config.runs)
        renamed = [f"{counted(len(aside), 'damaged record')}: renamed to {path.name}" for path in aside[:1]]
        raise UserError(*error.args, *renamed) from None
    if options.only:
        return
    print("\n".join([*analysed.summary(results), f"report: {results / report.PAGE}"]))


def _compare(options: argparse.Namespace) -> int:
    from ketscale.analysis import compare
    from ketscale.analysis.heavy import pd
    from ketscale.files import write_atomic, write_csv

    if options.threshold < 1:
        raise UserError(f"--threshold: {options.threshold:g} should be a ratio from 1 on, such as 1.05")
    result = compare.compare(options.a, options.b, options.threshold)
    if options.json:
        write_atomic(options.json, (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
    if options.csv:
        write_csv(options.csv, result["rows"], [*compare.COLUMNS])
    numbers = dict.fromkeys(("a", "b", "effect", "low", "high"), float)
    table = pd.DataFrame(result["rows"], columns=[*compare.COLUMNS]).astype(numbers)
    alike = [name for name in (*grid.POINT, "hardware") if table[name].nunique() == 1 < len(table)]
    text = table.drop(columns=alike).to_string(index=False, float_format="{:.4g}".format, na_rep="")
    counts = table["verdict"].value_counts()
    print(*result["notes"], text, ", ".join(f"{count} {word}" for word, count in counts.items()), sep="\n")
    return int(bool(result["failed"]) or any(word in compare.REGRESSIONS for word in counts.index))


def _export(options: argparse.Namespace) -> None:
    from ketscale.analysis import export

    print(export.run(options.folder, options.to, options.out))
