"""The numbers of the five published trainings: `python -m docs._generate.readers` writes the pages that have them.

They are those of measurements/2026-11-readers.csv, which are read in the tables of five reports. The page of the same name is made
of them, and every number that is marked with a cell of that file (see `measured`), in README.md and docs/for-you.md, becomes that
cell. What has no cell is "not measured yet".
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

from docs._generate.markdown import table
from docs._generate.measured import DOCS, NUMBER

NAME = "2026-11-readers"
FILE = DOCS / "measurements" / f"{NAME}.csv"
INDEX = FILE.parent / "index.md"
PAGES = (DOCS.parent / "README.md", DOCS / "for-you.md")
MISSING = "not measured yet"
MARKED = re.compile(
    rf"(?:{MISSING}|{NUMBER}[^\d()|\n]{{0,16}}(?:\([^()\n]*\))?)(<!-- (?:\S*/)?{NAME}\.csv / (\S+) / (\S+) / shown -->)"
)
Rows = list[dict[str, str]]
TITLES = {
    "eeg": "Hydra on EEG",
    "mnist": "The 4-qubit classifier on MNIST",
    "gate": "A gate of six fluxoniums",
    "transformer": "The transformer of sentences",
    "control": "Meta-learned control",
}


def read(file: Path = FILE) -> Rows:
    """The rows of such a file."""
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def page(rows: Rows) -> str:
    """The page of all numbers."""
    parts = [
        "# Five published trainings, here",
        "What each of five published projects reports, and what the same takes on two cores: the numbers of "
        "[What it means for you](../for-you.md). The study of each is in `workflow/studies`: `eeg-published.yaml`, `mnist-published.yaml`, "
        "`gate-published.yaml`, `transformer-published.yaml` and `control-published.yaml` have the runs of these numbers, which "
        "`benchmarks.readers` of their commit trained; it is gone. Times are of typical seeds, with 95 % intervals where there are "
        "three; *published* ranges are the source's, and the file is named.",
    ]
    for name, title in TITLES.items():
        own = [row for row in rows if row["reader"] == name]
        parts += [f"## {title}"]
        if not any(row["n"] for row in own):
            parts += [f"Here: {MISSING}."]
        heads = ("what", "shown", "n", "source")
        parts += [table(heads, ([row[head] for head in heads] for row in own)), f"[CSV]({NAME}.csv)"]
    return "\n\n".join(parts) + "\n"


def filled(text: str, rows: Rows) -> str:
    """A page in which each marked number is that of its cell."""
    cells = {(row["reader"], row["number"]): row["shown"] for row in rows}
    return MARKED.sub(lambda found: cells.get((found[2], found[3]), MISSING) + found[1], text)


def listed(text: str, rows: Rows) -> str:
    """The list of measurements with the days, commits and machines of these."""
    here = [
        found
        for row in rows
        if row["n"]
        for found in re.findall(r"([^;,]+), \d+ cores?, commit (\w+), ([\d-]+)", row["source"])
    ]
    machines, commits, days = (sorted({found[part].strip() for found in here}) for part in (0, 1, 2))
    cells = (
        (", ".join(days), ", ".join(f"`{each}`" for each in commits), ", ".join(machines))
        if here
        else (MISSING, "", "")
    )
    return re.sub(
        rf"(\({NAME}\.md\)) \|[^|]*\|[^|]*\|[^|]*\|",
        lambda found: f"{found[1]} | {' | '.join(cells)} |",
        text,
    )


def files(rows: Rows) -> dict[Path, str]:
    """What every page has to have."""
    pages = {path: filled(path.read_text(), rows) for path in PAGES}
    return {FILE.with_suffix(".md"): page(rows), INDEX: listed(INDEX.read_text(), rows), **pages}


if __name__ == "__main__":
    for path, text in files(read()).items():
        path.write_text(text)
