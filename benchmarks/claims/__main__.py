"""`python -m benchmarks.claims FOLDER`: the verdicts on the published claims that a study of a results folder tests."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.claims.verdicts import Judgement, judged
from ketscale import analysis, strict_json
from ketscale.analysis.analysed import CONFIG_FILE, read
from ketscale.analysis.comparison import Collected
from ketscale.errors import UserError
from ketscale.files import csv_of, write_atomic

COLUMNS = "claim", "reading", "value", "low", "high", "seeds", "fault", "measured", "commit", "machine"


def rows(found: Judgement, collected: Collected) -> Iterator[dict[str, object]]:
    """A row of the file for each reading, with the start of the claim's first run, and its own commits and machines."""
    runs = [run for each in found.readings for run in each.runs]
    measured = min((collected.records[run].started.isoformat() for run in runs), default="")
    for each in found.readings:
        estimate, records = each.estimate, [collected.records[run] for run in each.runs]
        values = (estimate.value, estimate.low, estimate.high, estimate.n) if estimate else (None,) * 4
        commits = sorted({(record.code.commit or "unknown")[:10] for record in records})
        gpus = {gpu.name for record in records for gpu in record.machine.gpus}
        machines = sorted(gpus or {record.machine.cpu for record in records})
        cells = (
            found.claim.id,
            each.name,
            *values,
            each.fault,
            measured,
            " ".join(commits),
            " and ".join(machines),
        )
        yield dict(zip(COLUMNS, cells, strict=True))


def main() -> None:
    """Print a line for each claim, and write the readings if that is asked for.

    Raises:
        UserError: the folder has no report of this version.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a results folder with its report")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the readings")
    options = parser.parse_args()
    file = options.folder / CONFIG_FILE
    try:
        settings = strict_json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        raise UserError(f"{file}: missing or damaged; make the report of {options.folder} first") from None
    collected, _ = read(analysis.of({**settings, "partial": True}, placed=False), options.folder)
    found = judged(collected)
    for each in found:
        late = " (after the fact)" * each.after_the_fact
        print(
            f"{each.claim.id} {each.verdict}{late}, rests on {each.rests_on}: {each.claim.statement} ({each.reason})"
        )
    if not found:
        print(f"{options.folder}: its studies test no claim")
    elif options.csv:
        write_atomic(options.csv, csv_of([row for each in found for row in rows(each, collected)], COLUMNS))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"Error: {error}")
