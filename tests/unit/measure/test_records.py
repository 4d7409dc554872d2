"""Invariant: one record a run, written last and atomically, or none; and one validator says whether it can be trusted."""

import json
import os
from dataclasses import replace

import msgspec
import pytest

from ketscale import grid
from ketscale.measure import record
from tests import record_maker as maker

CONFIG = maker.config(one=maker.study(seed=0))
RUN = CONFIG.runs[0]
SETTINGS = CONFIG.settings(RUN)


def of(settings=SETTINGS, **changes):
    return maker.of(settings, **changes)


def check(path, settings=SETTINGS, features=maker.FEATURES):
    return record.check(path, settings, features)


@pytest.fixture
def path(tmp_path):
    """The path of a record, whose history is there."""
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / grid.HISTORY).write_text(maker.NO_EPOCHS)
    return folder / grid.RECORD


@pytest.mark.parametrize(
    "status, reason",
    [("completed", None), ("diverged", "NaN"), ("out_of_memory", "no room"), ("timed_out", "too slow")],
)
def test_what_was_written_is_read_and_its_status_is_its_state(path, status, reason):
    record.write(path, SETTINGS, of(status=status, reason=reason))
    value = check(path)
    assert (value.state, value.why) == (status, reason or "")
    assert msgspec.structs.replace(value.record, digest="") == maker.typed(of(status=status, reason=reason))
    assert sorted(os.listdir(path.parent)) == [grid.HISTORY, grid.RECORD]


def test_a_timed_run_that_went_on_from_a_checkpoint_counts_as_missing(path):
    """Nobody has timed all of it. Earlier versions wrote such records."""
    with pytest.raises(ValueError, match="its times are of the rest alone"):
        record.write(path, SETTINGS, of(resumed=1))
    path.write_text(maker.sealed(of(resumed=1)))
    result = check(path)
    assert (result.state, result.record) == ("missing", None) and "was stopped in between" in result.why
    assert record.outdated(path, SETTINGS, None)


def test_a_record_that_a_run_of_this_version_would_not_have_is_outdated_and_any_other_is_not(path):
    assert not record.outdated(path, SETTINGS, None)  # there is none
    others = ({"schema": 4}, {"config_hash": "0" * 64})
    for text, old in (
        (maker.sealed(of()), False),
        *((maker.sealed({**of(), **o}), True) for o in others),
    ):
        path.write_text(text)
        assert record.outdated(path, SETTINGS, None) == old
    path.write_text(maker.sealed({**of(), "features_hash": "a" * 64}))
    assert not record.outdated(path, SETTINGS, "a" * 64) and record.outdated(path, SETTINGS, "b" * 64)
    for text in ("", "{", '{"resumed": "x"}', "[]"):  # damaged
        path.write_text(text)
        assert record.outdated(path, SETTINGS, None)


def test_a_reader_finds_the_digest_by_itself(path):
    record.write(path, SETTINGS, of())
    written = json.loads(path.read_text())
    digest = written.pop("digest")
    assert digest == grid.config_hash(written)
    # Neither spaces nor the order of the keys are part of it.
    path.write_text(json.dumps({"digest": digest, **written}))
    assert check(path).record


@pytest.mark.parametrize(
    "damage, why",
    [
        (lambda history: history.unlink(), "its history.csv is missing"),
        (lambda history: history.write_text("epoch,step\n0,1\n"), "its history.csv is not the one"),
    ],
)
def test_a_record_vouches_for_its_history(path, damage, why):
    record.write(path, SETTINGS, of())
    damage(path.parent / grid.HISTORY)
    assert check(path).state == "refused" and why in check(path).why


def test_an_absent_record_is_missing(path):
    assert check(path) == record.State("missing")


def test_a_record_of_another_version_is_stale_and_one_that_had_probes_is_read(path):
    for content in ('{"schema": 3}', "3"):
        path.write_text(content)
        assert check(path).state == "stale" and "schema" in check(path).why
    path.write_text(maker.sealed(of() | {"trainability": {"qubits": 4}}))
    assert check(path).record.trainability == {"qubits": 4}


def test_a_record_of_another_run_is_refused(path):
    other = CONFIG.settings(replace(RUN, seed=1))
    record.write(path, other, of(other))
    assert check(path).state == "refused" and "axes in the record" in check(path).why
    assert check(path, other).state == "completed"


def test_a_record_of_other_settings_is_stale(path):
    record.write(path, SETTINGS, of())
    other = replace(SETTINGS, protocol=msgspec.structs.replace(SETTINGS.protocol, learning_rate=0.5))
    result = check(path, other)
    assert result.state == "stale" and "other settings" in result.why


def test_a_record_of_other_features_is_stale_where_those_in_use_are_known(path):
    record.write(path, SETTINGS, of())
    result = check(path, features="0" * 64)
    assert result.state == "stale" and "other features" in result.why
    assert check(path, features=None).record
