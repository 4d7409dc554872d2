"""Invariant: one record a run, written last and atomically, or none; and one validator says whether it can be trusted."""

import json
import os
from dataclasses import asdict, replace

import pytest

from ketscale import files, grid
from ketscale.measure import record
from tests.unit import record_maker as maker

CONFIG = maker.config(one=maker.study(seed=0))
RUN = CONFIG.runs[0]
SETTINGS = CONFIG.settings(RUN)


def made(**changes):
    return maker.of(SETTINGS, **changes)


def check(path, run=RUN, settings_hash=SETTINGS.hash, features=maker.FEATURES):
    return record.check(path, run, settings_hash, features)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a" / "metrics.json"


@pytest.mark.parametrize(
    "status, reason", [("completed", None), ("diverged", "NaN at step 3"), ("out_of_memory", "no room")]
)
def test_what_was_written_is_read_and_its_status_is_its_state(path, status, reason):
    record.write(path, made(status=status, reason=reason))
    assert check(path) == record.Checked(status, reason or "", made(status=status, reason=reason))
    assert check(path).record
    assert os.listdir(path.parent) == ["metrics.json"]


@pytest.mark.parametrize(
    "change",
    [
        {"status": "fine"},
        {"surprise": 1},
        {"resumed": -1},
        {"losses": [0.1] * 21},
        {"run": None},
        {"machine": {}},
        {"quality": {"epochs": 1}},
        {"config": {"run": {}}},
        {"family": "eeg"},
        {"machine": {**made()["machine"], "ranks": [{}]}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_record_that_breaks_its_types_is_neither_written_nor_trusted(path, change):
    with pytest.raises(ValueError, match="not a record"):
        record.write(path, made(**change))
    assert not path.exists()
    path.parent.mkdir()
    path.write_text(json.dumps(made(**change)))
    found = check(path)
    assert found.state == "refused" and found.record is None
    assert "its record does not have the form that this version writes" in found.why


def test_settings_that_are_not_those_of_the_hash_beside_them_are_refused(path):
    other = made(config=SETTINGS.content | {"family": "eeg"})
    path.parent.mkdir()
    path.write_text(json.dumps(other))
    assert check(path).state == "refused"
    assert "do not match its config hash" in check(path).why
    # Even where the hash is the one that is looked for.
    assert check(path, settings_hash=grid.config_hash(other["config"])).state == "refused"


def test_a_part_that_is_missing_is_named(path):
    whole = made()
    del whole["timing"]["step"]
    with pytest.raises(ValueError, match=r"step.*\$\.timing"):
        record.write(path, whole)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_nan_is_no_number_of_a_record(path, number):
    with pytest.raises(ValueError, match=r"not JSON compliant|not a record"):
        record.write(path, made(node_hours=number))
    assert not path.exists()
    path.parent.mkdir()
    path.write_text(json.dumps(made(losses=[number])))
    assert check(path).state == "refused" and "is not a JSON number" in check(path).why


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"{} {}"])
def test_a_damaged_file_is_refused(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    assert check(path).state == "refused" and "cannot be read" in check(path).why


def test_what_cannot_be_opened_is_refused(path):
    path.mkdir(parents=True)
    assert check(path).state == "refused" and "Is a directory" in check(path).why


def test_an_absent_record_is_missing(path):
    assert check(path) == record.Checked("missing")


@pytest.mark.parametrize("content", ['{"schema": 2}', "[1]", "{}", "3"])
def test_a_record_of_another_version_is_stale(path, content):
    path.parent.mkdir()
    path.write_text(content)
    assert check(path).state == "stale" and "this version reads 3" in check(path).why


def test_a_record_of_another_run_is_refused(path):
    other = replace(RUN, seed=1)
    record.write(path, made(run=asdict(other)))
    assert check(path).state == "refused" and "axes in the record" in check(path).why
    assert check(path, run=other).state == "completed"


def test_a_record_of_other_settings_is_stale(path):
    record.write(path, made())
    found = check(path, settings_hash="0" * 64)
    assert found.state == "stale" and "other settings" in found.why


def test_a_record_of_other_features_is_stale_where_those_in_use_are_known(path):
    record.write(path, made())
    found = check(path, features="0" * 64)
    assert found.state == "stale" and "other features" in found.why
    assert check(path, features=None).record


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "metrics.json"
    files.write_atomic(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space"):
        files.write_atomic(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["metrics.json"]
