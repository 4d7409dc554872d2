"""A run that has its result is not trained again, unless its call was told to train runs again."""

from dataclasses import replace

import pytest

from ketscale.grid import HISTORY, RECORD
from ketscale.jobs import finished, provenance
from tests import record_maker as maker

CONFIG = maker.config(one=maker.study(seed=0))
RUN = CONFIG.runs[0]
SETTINGS = CONFIG.settings(RUN)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run's folder with its record, of the call `one`."""
    monkeypatch.setenv("KETSCALE_CALL", "one")
    code = {"version": "0.3.0", "hash": provenance.code_hash(), "imported": "", "commit": None, "dirty": None}
    maker.write(tmp_path, SETTINGS, call="one", code=code)
    return tmp_path / RUN.folder


@pytest.fixture
def kept(folder):
    """The same, left by another run's job."""
    (folder / finished.KEPT).mkdir(parents=True)
    for name in (RECORD, HISTORY):
        (folder / name).rename(folder / finished.KEPT / name)
    return folder


def result(folder, settings=SETTINGS, features=maker.FEATURES):
    return finished.result(folder, settings, features) is not None


def test_what_another_job_has_kept_is_put_in_its_place(kept):
    assert finished.has_result(kept, SETTINGS, maker.FEATURES) and not (kept / RECORD).exists()
    assert result(kept)
    assert (kept / RECORD).exists() and (kept / HISTORY).exists() and not (kept / finished.KEPT).exists()
    assert result(kept)


@pytest.mark.parametrize("place", ["folder", "kept"])
def test_a_call_that_trains_again_takes_its_own_results_alone(request, monkeypatch, place):
    folder = request.getfixturevalue(place)
    monkeypatch.setenv(finished.AGAIN, "1")
    monkeypatch.setenv("KETSCALE_CALL", "two")
    assert not result(folder) and not finished.has_result(folder, SETTINGS, maker.FEATURES)
    monkeypatch.setenv("KETSCALE_CALL", "one")
    assert finished.has_result(folder, SETTINGS, maker.FEATURES) and result(folder)


def test_another_run_other_data_or_other_code_trains_anew(folder, monkeypatch):
    assert not result(folder, settings=replace(SETTINGS, run=replace(RUN, seed=1)))
    assert not result(folder, features="others")
    monkeypatch.setattr(provenance, "code_hash", lambda: "edited")
    assert not result(folder)
