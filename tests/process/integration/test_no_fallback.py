"""Invariant: what is asked for and missing is an error of a line or two, never a slower path, and leaves nothing."""

import pytest
import torch

from ketscale import cli
from ketscale.jobs import locks
from tests.process.integration import study


def leftovers(folder):
    """What is there but the config, the note that says why the run failed, and the lock that was let go."""
    expected = ("config.yaml", "failure.json", locks.LOCK, locks.HOLDER)
    return [path for path in folder.rglob("*") if path.is_file() and path.name not in expected]


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys, one_thread, digits_features):
    """What `ketscale train` says of a run that it refuses."""
    study.write_config(tmp_path)
    monkeypatch.chdir(tmp_path)

    def said(run, *options, features=digits_features):
        assert cli.main(["train", study.record(run), "--features", str(features), *options]) == 2
        error = capsys.readouterr().err
        assert len(error.splitlines()) <= 2
        return error

    return said


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_missing_here_is_an_error_and_leaves_nothing(tmp_path, digits_features):
    status, _, error = study.launched(tmp_path, study.run("gpu-n1r1t1"), digits_features)
    actual = [line for line in error.splitlines() if line.startswith("ketscale: ")]
    assert status != 0 and "torch sees no GPU here" in actual[0] and "Traceback" not in error
    assert leftovers(tmp_path) == []


def test_what_is_missing_or_does_not_fit_is_refused_and_leaves_nothing(tmp_path, refused, monkeypatch):
    assert "features.json" in refused(study.run(), features="features.json")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert "OMP_NUM_THREADS is 7 but the run has 1 thread(s) a rank" in refused(study.run())
    assert leftovers(tmp_path) == []
