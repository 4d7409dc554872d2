"""The answers of a report in a few lines, for the terminal. Imports nothing heavy, since the end of every call reads them."""

from __future__ import annotations

from pathlib import Path

from ketscale.files import read_csv
from ketscale.words import counted

TABLE = "tables/answers.csv"
# No more answers are told.
MOST = 12


def answers(results: Path) -> list[str]:
    """The question of each study in the tables of a results folder and, indented below it, the answer.

    Raises:
        OSError: there are no such tables.
    """
    found = read_csv(results / TABLE)
    lines = []
    for row in found[:MOST]:
        lines += [row["question"], f"    {row['answer']}"]
    left = len(found) - MOST
    return [*lines, f"... and {counted(left, 'more answer')} in the report"] if left > 0 else lines
