#!/usr/bin/env python3
"""Stands in for `ketscale` in tests of the workflow: makes the files that each command declares, and says when."""

import json
import os
import sys
import time
from pathlib import Path

from ketscale import analysis
from ketscale.analysis.catalogue import CONFIG_FILE, FORMATS, TABLES, figures


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
        config = analysis.of(json.loads(option("--study")), placed=False)
        if command == "collect":
            for table in TABLES:
                write(f"{config.results}/tables/{table}.csv", f"{'--partial' in sys.argv}\n")
            write(f"{config.results}/{CONFIG_FILE}", config.text)
        elif command == "figures":
            for figure in figures(config):
                for form in FORMATS:
                    write(
                        f"{config.results}/figures/{figure}.{form}",
                        "<svg xmlns='http://www.w3.org/2000/svg'/>",
                    )
                write(f"{config.results}/figures/{figure}.rst", f"Says what {figure} shows.\n")
        elif command == "report":
            write(f"{config.results}/report.html", f"<!doctype html>{config.text}")
    with Path("calls.jsonl").open("a") as file:
        file.write(
            json.dumps({"command": command, "name": name, "start": start, "stop": time.monotonic()}) + "\n"
        )


main()
