"""What `ketscale bench` measured, from its JSON: a CSV file of the whole table, and its machine on a page of measurements.

`python -m docs._generate.benched gates.json dynamics.json dynamics-4096.json pulses.json` writes the part between
`<!-- measured: gates -->` and `<!-- end: gates -->`, and so on, from all files of that name, whatever is behind a hyphen. An
excerpt of the table by rule (`costs`) is there too; others stand outside of these parts, and `tests/style/docs` says when they are old.

`table-ways.json`, of the ways to `fused`, is for docs/library.md.
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
from docs._generate.markdown import table

from benchmarks.command import BENCHMARKS
from benchmarks.output import hardware

PAGE = measured.DOCS / "measurements" / "2026-11-bench.md"
WAYS = "table-ways"
# The ways to `fused` by their names in the benchmark: what a user calls each, and for what.
USES = {
    "from_qnode": ("[`from_qnode`](#a-qnode-converted-once)", "QNodes in torch"),
    "qnode-fused": ("[the device](#a-pennylane-device)", "any QNode, shots"),
    "qnode-fused-jit": ("the device in `jax.jit`", "QNodes in JAX"),
    "fused": ("[`Layer`](#a-circuit-as-a-layer-of-torch)", "models in torch"),
    "fused-jax": ("[`ketscale.jax`](#a-circuit-as-a-function-of-jax)", "models in JAX"),
}
SIZES = ("4 x 1", "4 x 64")


def written(page: Path, name: str, parts: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """The page with one benchmark's part; `parts` has the stems of files and their results."""
    folder = "" if page == PAGE else "measurements/"
    blocks = [_ways(result) if stem == WAYS else "" for stem, result in parts]
    blocks += [
        _block(f"{folder}bench-{stem}.csv", result, BENCHMARKS[name].excerpt(result["rows"]))
        for stem, result in parts
    ]
    made, count = re.subn(
        rf"(?s)(<!-- measured: {name} -->\n).*?(<!-- end: {name} -->)",
        lambda found: found[1] + "\n" + "\n\n".join(filter(None, blocks)) + "\n\n" + found[2],
        page.read_text(),
    )
    if count != 1:
        raise SystemExit(f"{page}: has no part for {name}")
    return made


def _block(file: str, result: dict[str, Any], table: Sequence[str]) -> str:
    # Results of before 27 November 2026 do not know their command.
    known = (f"{result['day']}, `{result['command']}`",) if "command" in result else ()
    said = ", ".join((hardware(result["machine"]), *known))
    link = f"[CSV]({file})"
    return "\n".join((f"Machine: {said}.", "", *table, "", link)) if table else f"Machine: {said}. {link}"


def _ways(result: dict[str, Any]) -> str:
    """A table of the ways to `fused`, whose numbers name their places in the CSV file."""
    _, _, *rows = map(measured.cells, BENCHMARKS["table"].table(result["rows"]))
    times = {(row[0], row[4]): row[7] for row in rows}
    lines = []
    for name, (called, use) in USES.items():
        marks = (f"<!-- measurements/bench-{WAYS}.csv / {size} / {name} / a call, ms -->" for size in SIZES)
        numbers = (f"{times[size, name]}{mark}" for size, mark in zip(SIZES, marks, strict=True))
        lines.append((called, *numbers, use))
    return table(("way", *SIZES, "for"), lines)


def whole(benchmark: Any, result: dict[str, Any]) -> str:
    """A benchmark's table as a CSV file."""
    heading, _, *rows = benchmark.table(result["rows"])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(measured.cells, (heading, *rows)))
    return text.getvalue()


def main(files: Sequence[str]) -> None:
    """Write what the files say."""
    found = dict[str, list[tuple[str, dict[str, Any]]]]()
    for file in map(Path, files):
        found.setdefault(file.stem.partition("-")[0], []).append((file.stem, json.loads(file.read_text())))
    for name, parts in found.items():
        page = measured.DOCS / "library.md" if name == "table" else PAGE
        page.write_text(written(page, name, parts))
        for stem, result in parts:
            (measured.DOCS / "measurements" / f"bench-{stem}.csv").write_text(whole(BENCHMARKS[name], result))


if __name__ == "__main__":
    main(sys.argv[1:])
