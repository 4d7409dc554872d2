"""Invariant: one record a run, written last and atomically, or none."""

import json
import os

import pytest

from ketscale import grid
from ketscale.errors import UserError
from ketscale.measure import records
from tests.unit import records_factory


def record():
    """A record as runs write it."""
    config = records_factory.default_config()
    return records_factory.record(config, grid.runs(config)[0])


def test_round_trip(tmp_path):
    path = tmp_path / "a" / "metrics.json"
    records.write(path, record())
    assert records.read(path) == record()
    assert os.listdir(path.parent) == ["metrics.json"]


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 1},
        {"status": "fine"},
        {"surprise": 1},
        {"resumed": -1},
        {"losses": [0.1] * 21},
        {"run": {"workload": "digits"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_record_that_breaks_its_schema_is_neither_written_nor_read(tmp_path, change):
    path = tmp_path / "metrics.json"
    with pytest.raises(ValueError, match=r"schema"):
        records.write(path, record() | change)
    assert os.listdir(tmp_path) == []
    path.write_text(json.dumps(record() | change))
    with pytest.raises(UserError, match=r"metrics\.json"):
        records.read(path)


def test_nan_is_no_number_of_a_record(tmp_path):
    with pytest.raises(ValueError, match=r"not JSON compliant"):
        records.write(tmp_path / "metrics.json", record() | {"node_hours": float("nan")})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe"])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "metrics.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"metrics\.json.*run it again"):
        records.read(path)


def test_an_absent_record_says_how_to_get_it(tmp_path):
    with pytest.raises(UserError, match=r"no such record; name it as a Snakemake target"):
        records.read(tmp_path / "metrics.json")


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "metrics.json"
    records.write_atomic(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space"):
        records.write_atomic(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["metrics.json"]
