"""A run that was finished in a call of Snakemake is given back in that call, and in no other."""

from dataclasses import replace

import pytest

from ketscale import analysis, grid
from ketscale.jobs import provenance
from ketscale.jobs.ownership import finished
from ketscale.problems.registry import FAMILIES
from tests import record_maker as maker
from tests import tiny_study

CONFIG = maker.config(one=maker.study(seed=0))
RUN = CONFIG.runs[0]
SETTINGS = CONFIG.settings(RUN)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run's folder whose record and history were copied, and then deleted as Snakemake does."""
    monkeypatch.setenv("KETSCALE_CALL", "one")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    path = tmp_path / RUN.folder
    code = {"version": "0.3.0", "hash": provenance.code_hash(), "imported": "", "commit": None, "dirty": None}
    maker.write(tmp_path, SETTINGS, call="one", code=code)
    (path / "history.csv").write_text("epoch,step\n")
    (copy,) = finished.copies(path, together=False)
    copy.mkdir(parents=True)
    for name in (grid.RECORD, "history.csv"):
        (path / name).rename(copy / name)
    return path


def test_the_same_call_gets_the_record_and_the_history_back(folder):
    assert finished.restore(folder, SETTINGS, maker.FEATURES)
    found = finished.of_this_code(folder, SETTINGS, maker.FEATURES)
    assert found is not None and found.call == "one"
    assert (folder / "history.csv").read_text() == "epoch,step\n"


def test_a_run_with_curves_is_given_back_with_them(tmp_path, monkeypatch, one_thread):
    from ketscale.jobs import session

    monkeypatch.setenv("KETSCALE_CALL", "one")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    config = analysis.of(tiny_study.config(FAMILIES["pulses"].tiny))
    settings = config.settings(next(run for run in config.runs if run.protocol == "quality"))
    folder = tmp_path / settings.run.folder
    session.train(settings, folder, None, None)
    left = (grid.RECORD, grid.HISTORY, grid.CURVES)
    contents = {name: (folder / name).read_bytes() for name in left}
    for name in left:
        (folder / name).unlink()
    assert finished.restore(folder, settings, None)
    assert {name: (folder / name).read_bytes() for name in left} == contents


@pytest.mark.parametrize("what", ["call", "by hand", "settings", "features", "code"])
def test_anything_else_trains_anew(folder, monkeypatch, what):
    settings, features = SETTINGS, maker.FEATURES
    if what == "call":
        finished.begin_call()
    elif what == "by hand":
        monkeypatch.delenv("KETSCALE_CALL")
    elif what == "settings":
        other = replace(RUN, seed=1)
        settings = replace(SETTINGS, run=other)
    elif what == "features":
        features = "others"
    else:
        monkeypatch.setattr(provenance, "code_hash", lambda: "edited")
    assert not finished.restore(folder, settings, features)
    assert not (folder / grid.RECORD).exists()
    # The copy is gone too.
    monkeypatch.setenv("KETSCALE_CALL", "one")
    assert not finished.restore(folder, SETTINGS, maker.FEATURES)


@pytest.mark.parametrize(
    "call, job, together, copied",
    [
        (True, True, False, True),
        (True, False, True, True),
        (True, False, False, False),
        (False, True, True, False),
    ],
)
def test_what_another_job_or_a_retry_may_delete_is_copied(tmp_path, monkeypatch, call, job, together, copied):
    for name, there in (("KETSCALE_CALL", call), ("SLURM_JOB_ID", job)):
        monkeypatch.delenv(name, raising=False)
        if there:
            monkeypatch.setenv(name, "7")
    assert bool(finished.copies(tmp_path, together)) == copied
