"""What is written as CSV comes back."""

from __future__ import annotations

from pathlib import Path

from benchmarks import output
from ketscale import files
from ketscale.analysis.columns import Column, Table
from tests import records_factory as factory

NAMES = ["a=b", "it's", '=a,b\n"c"', "-0.5", "x\ny", "x\ry"]


def test_text_comes_back(tmp_path: Path) -> None:
    rows = [{"name": name, "x": name, "why": None} for name in [*NAMES, ""]]
    files.write_csv(tmp_path / "a.csv", rows, ("name", "x", "why"))
    assert files.read_csv(tmp_path / "a.csv") == [{**row, "why": ""} for row in rows]


def test_a_table_has_what_its_file_says() -> None:
    names = [*NAMES, "NA", "None", "1", "nan", "inf"]
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
    result = table.read(content, config)
    assert list(result.columns) == list(rows[0])
    for column in ("study", "why", "value", "whole"):
        assert result[column].tolist() == [row[column] for row in rows]
    assert result["quiet"].dropna().tolist() == [True] * len(rows[::3])
    assert result["flag"].isna().all()


def test_the_rows_of_a_benchmark_are_a_table() -> None:
    written = output.as_csv({"rows": [{"simulator": "x", "median_s": -0.5, "spans": {"a": 1}}]})
    assert written.decode() == 'simulator,median_s,spans\nx,-0.5,"{""a"": 1}"\n'


def test_csv_is_written_in_one_place() -> None:
    """Else a table could be forgotten."""
    package = Path(files.__file__).parent
    writers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(word in path.read_text() for word in ("csv.writer", "DictWriter", ".to_csv("))
    }
    assert writers == {"files.py"}
