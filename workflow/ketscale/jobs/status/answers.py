"""The answers of a report in a few lines, for the terminal."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from ketscale.files import read_bytes
from ketscale.words import counted

TABLE = "tables/answers.csv"
# No more studies are told.
MOST = 12


def told(results: Path) -> list[str]:
    """The question of each study in the tables of a results folder and, indented below it, the answer.

    Raises:
        OSError: there are no such tables.
    """
    table = csv.DictReader(io.StringIO(read_bytes(results / TABLE).decode(), newline=""))
    rows = {(row.get("study"), row.get("on")): row for row in table if row.get("answer")}
    lines = []
    for row in list(rows.values())[:MOST]:
        host = f" (on {row['on']})" if row["on"] else ""
        lines += [f"{row['question']}{host}", f"    {row['answer']}"]
    left = len(rows) - MOST
    return [*lines, f"... and {counted(left, 'more answer')} in the report"] if left > 0 else lines
