"""No text in a CSV file is a formula to a spreadsheet, numbers stay numbers, and our readers find what was written."""

from __future__ import annotations

import csv
import io
import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks import output
from ketscale import files
from ketscale.analysis.columns import Column, Table
from tests import records_factory as factory

# What a spreadsheet evaluates, or evaluates once it has cut off the white space.
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
NAMES = [
    "=1+1", "+cmd|' /C calc'!A0", "-x", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1", "'=1", "''=1", "'", "''", "'x", "-", "- 1", "--1",
    "-1-1", "=", "a=b", "", "=HYPERLINK(\"http://x\",\"y\")", "-inf+1", "e", "1e", "-e3", "it's", "=a,b\n\"c\"",
]  # fmt: skip
NUMBERS = [-1, -0.5, -1e-3, float("-inf"), "-1", "-1e-3", "+2", "-inf", "-0.25", 10**20, -(10**20)]


def cells(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode(), newline="")))


def is_formula(cell: str) -> bool:
    """Whether a cell is neither a number nor plain text to a spreadsheet."""
    try:
        float(cell)
    except ValueError:
        return cell.startswith(FORMULAS)
    return False


def test_text_is_no_formula_and_comes_back(tmp_path: Path) -> None:
    rows = [{"name": name, "=x": name, "why": None} for name in NAMES]
    files.write_csv(tmp_path / "a.csv", rows, ("name", "=x", "why"))
    written = cells((tmp_path / "a.csv").read_bytes())
    assert not any(is_formula(cell) for row in written for cell in row)
    assert files.read_csv(tmp_path / "a.csv") == [{**row, "why": ""} for row in rows]


def test_any_text_comes_back() -> None:
    rng = random.Random(0)
    alphabet = "'=+-@\t\r\n1.e ainf\uff1d"
    some = ("".join(rng.choices(alphabet, k=rng.randint(1, 6))) for _ in range(20_000))
    for text in itertools.chain(map("".join, itertools.product("'=-1", repeat=5)), some):
        cell = files.as_cell(text)
        assert not is_formula(cell)
        assert files.of_cell(cell) == text


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_a_number_stays_one(number: Any) -> None:
    assert cells(files.csv_of([{"x": number}], ["x"])) == [["x"], [str(number)]]


def test_a_table_has_what_its_file_says() -> None:
    names = [*filter(None, NAMES), "NA", "None", "1", "nan", "inf"]
    rows = [
        {
            "study": name,
            "why": name,
            "quiet": None if i % 3 else True,
            "value": -i / 7,
            "whole": i,
            "flag": "",
        }
        for i, name in enumerate(names)
    ]
    table = Table("runs", "", [Column(name, "", text=name in ("study", "why", "flag")) for name in rows[0]])
    config = factory.default_config()
    content = table.csv(rows, config)
    found = table.read(content, config)
    assert list(found.columns) == list(rows[0])
    for column in ("study", "why", "value", "whole"):
        assert found[column].tolist() == [row[column] for row in rows]
    assert found["quiet"].dropna().tolist() == [True] * len(rows[::3])
    assert found["flag"].isna().all()
    assert not any(is_formula(cell) for row in cells(content) for cell in row)


def test_the_rows_of_a_benchmark_have_no_formula() -> None:
    written = cells(output.as_csv({"rows": [{"simulator": "=x", "median_s": -0.5, "spans": {"a": 1}}]}))
    assert written == [["simulator", "median_s", "spans"], ["'=x", "-0.5", '{"a": 1}']]


def test_csv_is_written_in_one_place() -> None:
    """Else a table could be forgotten."""
    package = Path(files.__file__).parent
    writers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(word in path.read_text() for word in ("csv.writer", "DictWriter", ".to_csv("))
    }
    assert writers == {"files.py"}
