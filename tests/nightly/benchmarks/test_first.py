"""The benchmark of first calls measures every case, every way, and says what a search took."""

import sys

import pytest

from benchmarks import first


def test_a_short_one_measures_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(first, "CASES", [(2, 1, 2)])
    monkeypatch.setattr(first, "STRUCTURES", 2)
    monkeypatch.setattr(first, "SIZES", [4])
    monkeypatch.setenv("KETSCALE_CACHE", "")  # the benchmark sets one of its own
    monkeypatch.setattr(sys, "argv", ["first", "--repeats", "1", "--structures", "2"])
    first.main()
    message = capsys.readouterr().out
    rows = [
        line.split("|")
        for line in message.splitlines()
        if line.startswith(("| 1 layers", *(f"| {x}" for x in first.OTHERS)))
    ]
    assert [row[1].strip() for row in rows] == ["1 layers", "1 layers", *first.OTHERS]
    assert all(float(row[column]) > 0 for row in rows for column in (7, 8))
    assert message.count("2 structures, one step each") == 2
