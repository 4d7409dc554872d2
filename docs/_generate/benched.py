"""The tables of docs/benchmarks.md that `ketscale bench` measured, from its JSON.

`python -m docs._generate.benched gates.json dynamics.json dynamics-4096.json pulses.json` writes the part between
`<!-- measured: gates -->` and `<!-- end: gates -->`, and so on, from all files of that name, whatever is behind a hyphen, and
each table's CSV file.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docs._generate import measured

from benchmarks.command import BENCHMARKS
from benchmarks.output import hardware

PAGE = measured.DOCS / "benchmarks.md"


def written(page: str, name: str, parts: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """The page with one benchmark's part; `parts` has the stems of files and their results."""
    blocks = [_block(BENCHMARKS[name], stem, result) for stem, result in parts]
    made, count = re.subn(
        rf"(?s)(<!-- measured: {name} -->\n).*?(<!-- end: {name} -->)",
        lambda found: found[1] + "\n" + "\n\n".join(blocks) + "\n\n" + found[2],
        page,
    )
    if count != 1:
        raise SystemExit(f"{PAGE}: has no part for {name}")
    return made


def _block(benchmark: Any, stem: str, result: dict[str, Any]) -> str:
    table = "\n".join(benchmark.table(result["rows"]))
    # Results of before 27 November 2026 do not know their command.
    known = (f"{result['day']}, `{result['command']}`",) if "command" in result else ()
    said = ", ".join((hardware(result["machine"]), *known))
    return f"Machine: {said}.\n\n{table}\n\n[CSV](measurements/bench-{stem}.csv)"


def whole(table: measured.Table) -> str:
    """A table as its CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(table.rows)
    return text.getvalue()


def main(files: Sequence[str]) -> None:
    """Write what the files say."""
    text, found = PAGE.read_text(), dict[str, list[tuple[str, dict[str, Any]]]]()
    for file in map(Path, files):
        found.setdefault(file.stem.partition("-")[0], []).append((file.stem, json.loads(file.read_text())))
    for name, parts in found.items():
        text = written(text, name, parts)
    PAGE.write_text(text)
    for table in measured.tables(PAGE):
        if table.file is not None and table.file.name.startswith("bench-"):
            table.file.write_text(whole(table))


if __name__ == "__main__":
    main(sys.argv[1:])
