"""`python -m benchmarks.claims FOLDER`: the verdicts on the published claims that a study of a results folder tests."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.claims.verdicts import judged, row
from ketscale import analysis, strict_json
from ketscale.analysis.analysed import CONFIG_FILE, read
from ketscale.errors import UserError
from ketscale.files import csv_of, write_atomic


def main() -> None:
    """Print a line for each claim, and write the table if it is asked for.

    Raises:
        UserError: the folder has no report of this version.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a results folder with its report")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the table")
    options = parser.parse_args()
    file = options.folder / CONFIG_FILE
    try:
        settings = strict_json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        raise UserError(f"{file}: missing or damaged; make the report of {options.folder} first") from None
    config = analysis.of({**settings, "partial": True}, placed=False)
    collected, _ = read(config, options.folder)
    table = [row(verdict) for verdict in judged(collected)]
    for each in table:
        print(f"{each['id']} {each['verdict']}: {each['statement']} ({each['reason']})")
    if not table:
        print(f"{options.folder}: its studies test no claim")
    elif options.csv:
        write_atomic(options.csv, csv_of(table, list(table[0])))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"Error: {error}")
