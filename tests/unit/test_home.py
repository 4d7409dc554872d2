"""A user without a home folder: no HOME and no entry in the list of users, as in many containers."""

import os

import pytest

from ketscale import files
from ketscale.errors import UserError
from ketscale.jobs import doctor, launch
from tests.toys import run_at

HOMELESS = "set HOME to a folder of your own"


@pytest.fixture(autouse=True)
def homeless(monkeypatch, tmp_path):
    """As the process of a number that has no name here."""
    for name in ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME", "XDG_CACHE_HOME", "KETSCALE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 5)


def test_compiled_code_has_no_folder_until_one_is_named(monkeypatch, tmp_path):
    library = pytest.importorskip("ketscale.engines.compiled.library")
    with pytest.raises(UserError, match=HOMELESS):
        library.cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert library.cache_folder() == tmp_path / "ketscale"
    monkeypatch.setenv("KETSCALE_CACHE", str(tmp_path / "own"))
    assert library.cache_folder() == tmp_path / "own"


@pytest.mark.parametrize("path", ["~", "~/data"])
def test_a_path_below_home_is_refused(path):
    with pytest.raises(UserError, match=HOMELESS):
        files.expanded(path)


def test_other_paths_need_no_home(tmp_path):
    assert files.expanded(str(tmp_path)) == tmp_path
    with pytest.raises(UserError, match="there is no user nobody-here"):
        files.expanded("~nobody-here/data")


def test_mpi_needs_a_home_and_says_so():
    with pytest.raises(UserError, match=HOMELESS):
        launch.prefix_here(run_at("mpi-n1r2t1"))
    assert HOMELESS in doctor._two_ranks(run_at("mpi-n1r2t1"), "")[1]
    assert launch.prefix_here(run_at("ddp-cpu-n1r2t1"))
