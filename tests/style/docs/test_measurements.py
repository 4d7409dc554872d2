"""Measurements in the documentation: numbers are those of the CSV files, and what stands in brackets is said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs._generate import claims, measured, readers

from tests import ROOT
from tests.style.docs.pages import DOCS, named

FOLDER = DOCS / "measurements"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(FOLDER.rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_table_is_an_excerpt_of_the_csv_file_that_it_names(page: Path) -> None:
    for table in measured.tables(page):
        if table.file is not None:
            assert measured.strangers(table) == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_marked_number_is_that_of_its_cell(page: Path) -> None:
    values = list(measured.marks(page))
    assert {mark.said: why for mark in values if (why := measured.wrong(mark))} == {}
    # Every comment that names a CSV file marks a number, or what has none yet.
    message = re.findall(rf"(?<!{readers.MISSING})<!-- [^>]*\.csv ", measured.prose(page))
    assert len(values) == len(message)


def test_a_mark_that_is_wrong_is_found(tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text(
        'case,way,"a call, ms"\n4 x 1,ours,1.254 (1.2 to 1.31)\n4 x 1,theirs,"1,200"\n'
    )
    page = tmp_path / "page.md"

    def said(text: str) -> list[str | None]:
        page.write_text(text)
        return [measured.wrong(mark) for mark in measured.marks(page)]

    cell = "<!-- some.csv / 4 x 1 / ours / a call, ms -->"
    assert said(f"takes 1.25 ms{cell}, 1.254 ms (1.2 to 1.3){cell}") == [None, None]
    assert said(f"1.26 ms{cell} and 1.25 (1.2 to 1.4){cell}") == ["the file has 1.254 (1.2 to 1.31)"] * 2
    assert said("1,200<!-- some.csv / 4 x 1 / theirs / a call, ms -->") == [None]
    assert said("1<!-- some.csv / 4 x 1 / a call, ms -->") == ["2 rows and 1 columns of this name"]


def test_the_pages_of_the_readers_have_their_numbers() -> None:
    for page, text in readers.files(readers.read()).items():
        assert page.read_text() == text, "python -m docs._generate.readers"


def test_the_verdicts_on_claims_are_those_of_the_recorded_readings() -> None:
    for page, text in claims.files().items():
        assert page.read_bytes().decode() == text, "python -m docs._generate.claims"


def test_a_marked_number_becomes_that_of_its_reader() -> None:
    cell = "<!-- measurements/2026-11-readers.csv / eeg / step / shown -->"
    rows = [{"reader": "eeg", "number": "step", "shown": "14.2 ms (13 to 15)"}]
    for before in ("not measured yet", "9 ms", "12 s (11.5 to 13)", "2e-05"):
        assert (
            readers.filled(f"| it takes {before}{cell} |", rows) == f"| it takes 14.2 ms (13 to 15){cell} |"
        )
        assert readers.filled(f"8 of {before}{cell}", []) == f"8 of not measured yet{cell}"


def test_a_row_that_is_not_in_the_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("case,time,error\na,1,2\nb,3,4\n")
    page = tmp_path / "page.md"
    page.write_text("| time | case |\n|---|---|\n| `3` | b |\n| 1 | b |\n\n[CSV](some.csv)\n")
    (table,) = measured.tables(page)
    assert measured.strangers(table) == [["1", "b"]]
    page.write_text("| speed |\n|---|\n| 3 |\n\n[CSV](some.csv)\n")
    assert measured.strangers(next(measured.tables(page))) == [["speed"]]


def test_every_csv_file_is_linked_and_every_long_table_has_one() -> None:
    linked = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"\]\(([^)\s]+\.csv)\)", measured.prose(page))
    }
    assert linked == {file for file in DOCS.rglob("*.csv") if "_build" not in file.parts}
    for page in FOLDER.rglob("*.md"):
        for table in measured.tables(page):
            assert table.file or len(table.rows) <= 8 or page.name == "index.md", table.rows[0]


def test_the_lists_of_measurements_name_the_commits_of_their_pages() -> None:
    for page in FOLDER.rglob("2*.md"):
        index = (page.parent / "index.md").read_text()
        (row,) = [line for line in index.splitlines() if line.startswith("| ") and f"({page.name})" in line]
        commits = re.findall(r"`([0-9a-f]{7,10})`", row)
        assert commits or readers.MISSING in row
        assert all(commit in page.read_text() for commit in commits), page.name
