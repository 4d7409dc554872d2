#!/usr/bin/env python3
"""Stands in for `ketscale` in tests of the workflow: makes the files that each command declares, and says when."""

import json
import os
import sys
import time
from pathlib import Path

from ketscale import cli
from ketscale.analysis import analysed
from ketscale.analysis.analysed import CONFIG_FILE
from ketscale.analysis.columns import TABLES
from ketscale.analysis.figures import figures_of
from ketscale.analysis.report import PAGE
from ketscale.commands import results as of_study


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def main() -> None:
    start = time.monotonic()
    command = sys.argv[1]
    name = sys.argv[2] if command in ("launch", "fetch", "prepare") else command
    if os.environ.get("STAND_IN_FAILS", "\0") in name:
        sys.exit("told to fail")
    if command == "launch":
        time.sleep(float(os.environ.get("STAND_IN_SECONDS", "0")))
        write(name, option("--settings"))
        write(str(Path(name).with_name("history.csv")), "epoch,step\n")
    elif command in ("fetch", "prepare"):
        # The command itself reads these.
        json.loads(option("--local"))
        write(option("--out"), option("--settings"))
    else:
        # The command itself reads the config so, before it does anything; `--version` ends here.
        config, results = of_study.study(cli._parser().parse_args(sys.argv[1:]))
        part = option("--only")
        if part == "tables":
            made = {f"tables/{table}.csv": f"{'--partial' in sys.argv}\n" for table in TABLES}
            made |= {CONFIG_FILE: config.text, analysed.NOTE: analysed.digest(config, results)}
        elif part == "page":
            made = {PAGE: f"<!doctype html>{config.text}"}
        else:
            names = [each.name for each in figures_of(config)]
            made = {f"figures/{name}.svg": "<svg xmlns='http://www.w3.org/2000/svg'/>" for name in names}
        for path, text in made.items():
            write(str(results / path), text)
    with Path("calls.jsonl").open("a") as file:
        file.write(
            json.dumps({"command": command, "name": name, "start": start, "stop": time.monotonic()}) + "\n"
        )


main()
