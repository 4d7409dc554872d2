"""Variables that a shell, a launcher or a scheduler has left: no rank takes them for its own, and none is a traceback."""

import os
import subprocess
import sys

import pytest

from ketscale import process
from ketscale.errors import UserError
from ketscale.jobs import host_lock, launch
from ketscale.parallel import world
from tests.toys import run_at

OF_TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "15000",
}


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """Whatever runs these tests, nothing but a test sets such variables."""
    for name in list(os.environ):
        if launch._OF_RANKS.fullmatch(name) or name.startswith("SLURM"):
            monkeypatch.delenv(name)


def set_all(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("name", ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_one_rank_refuses_the_world_of_others(monkeypatch, name):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for value in ("", "1"):
        monkeypatch.setenv(name, value)
        world.check_variables(run_at("cpu-n1r1t1"))
    monkeypatch.setenv(name, "2")
    with pytest.raises(
        UserError, match=rf"needs 1 rank.* a world of 2 \({name}=2\).*unset {name}.*ketscale launch"
    ):
        world.check_variables(run_at("cpu-n1r1t1"))
    if name.startswith("SLURM"):  # it counts only in a job
        monkeypatch.delenv("SLURM_JOB_ID")
        world.check_variables(run_at("cpu-n1r1t1"))


def test_a_rank_of_torchrun_refuses_another_world(monkeypatch):
    run, name = run_at("ddp-cpu-n1r2t1"), "WORLD_SIZE"
    set_all(monkeypatch, OF_TORCHRUN)
    world.check_variables(run)
    for value in (None, "", "0", "3", "70000", "abc"):
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
        with pytest.raises(UserError, match=f"{name}|torchrun --nproc-per-node 2"):
            world.check_variables(run)


def test_what_a_launch_starts_has_no_variables_of_other_ranks(monkeypatch):
    left = {
        **OF_TORCHRUN, "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "ROLE_RANK": "1", "TORCHELASTIC_RUN_ID": "x",
        "PET_NNODES": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "MPI_LOCALRANKID": "1",
        "PMI_RANK": "1", "PMI_SIZE": "2",
    }  # fmt: skip
    environment = {
        "PMIX_RANK": "0",
        "SLURM_LOCALID": "1",
        "SLURM_JOB_ID": "7",
        "OMPI_MCA_btl": "self",
        "MY_RANK": "1",
    }
    set_all(monkeypatch, left | environment)
    result = launch.environment()
    assert not left.keys() & result.keys()
    assert {name: result.get(name) for name in environment} == environment
    assert result.keys() == os.environ.keys() - left.keys()


def test_outside_of_a_job_a_node_has_its_own_name(monkeypatch):
    """Otherwise two timed runs of one host would take two locks."""
    here = host_lock.path()
    set_all(monkeypatch, {"SLURMD_NODENAME": "elsewhere", "SLURM_JOB_ID": ""})
    assert process.slurm_job() is None and host_lock.path() == here
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert process.node_name() == "elsewhere"


def test_a_job_id_without_slurm_is_said(monkeypatch, tmp_path):
    set_all(monkeypatch, {"SLURM_JOB_ID": "abc", "PATH": str(tmp_path)})
    with pytest.raises(UserError, match=r"SLURM_JOB_ID is abc.* no srun on the PATH: unset SLURM_JOB_ID"):
        launch.prefix_here(run_at("cpu-n1r1t1"))


def test_figures_are_drawn_whatever_backend_a_notebook_left():
    code = (
        "from ketscale import cli; cli.main(['report', '--study', '{}']); import matplotlib; "
        "print(matplotlib.get_backend())"
    )
    built = os.environ | {"MPLBACKEND": "abc"}
    done = subprocess.run([sys.executable, "-c", code], env=built, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "agg"
