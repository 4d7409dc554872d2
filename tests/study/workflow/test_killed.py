"""After Snakemake was killed the next call works, and a second one beside it is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ketscale.jobs import driver, locks
from ketscale.jobs.locks import Lock
from tests import ROOT
from tests.conftest import NO_CLUSTER, SLURM
from tests.study.workflow.project import LOCAL, RUNS, record

PATIENCE_S = 120


def start(project: Path, *command: str, seconds: int = 0) -> subprocess.Popen[str]:
    """A program itself, no fork of one, whose jobs take so long."""
    variables = {
        **os.environ,
        "PATH": f"{project / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "workflow"),
        "STAND_IN_SECONDS": str(seconds),
    }
    program = [sys.executable, "-m", *command]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(program, cwd=project, env=variables, start_new_session=True, **piped)


def run(project: Path, *command: str, status: int = 0) -> str:
    process = start(project, *command)
    message = process.communicate(timeout=PATIENCE_S)[0]
    assert process.returncode == status, message
    return message


@pytest.fixture
def without_programs(tmp_path: Path) -> str:
    """A PATH on which there is all that this one has, but for SLURM's programs."""
    folders = []
    for number, folder in enumerate(map(Path, os.get_exec_path())):
        if not any((folder / name).exists() for name in SLURM):
            folders.append(folder)
            continue
        folders.append(tmp_path / f"bin{number}")
        folders[-1].mkdir()
        for program in folder.iterdir():
            if program.name not in SLURM:
                (folders[-1] / program.name).symlink_to(program)
    return os.pathsep.join(map(str, folders))


@pytest.fixture
def killed(fresh: Path) -> Path:
    """A project whose Snakemake was killed, with all that it had started, while a run was training."""
    process = start(fresh, "snakemake", *LOCAL, seconds=600)
    end = time.monotonic() + PATIENCE_S
    while not any((fresh / record(one)).with_name("train.log").exists() for one in RUNS):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return fresh


def test_the_next_call_works_and_says_so_in_one_line(killed: Path) -> None:
    last = locks.last(killed / driver.FOLDER)
    assert last is not None and last.until is None and locks.holder(killed / driver.FOLDER) is None
    output = run(killed, "snakemake", *LOCAL)
    message = [line for line in output.splitlines() if line.startswith("ketscale: ")]
    assert message == [f"ketscale: the last Snakemake here was killed ({last})"]
    assert all((killed / record(one)).exists() for one in RUNS)
    holder = locks.last(killed / driver.FOLDER)
    assert holder is not None and holder.finished


def test_a_second_call_is_told_who_works_here(killed: Path) -> None:
    lock = Lock(killed / driver.FOLDER)
    assert lock.acquire()
    result = run(killed, "snakemake", *LOCAL, status=1)
    assert f"another Snakemake works in this folder (process {os.getpid()} on " in result
    lock.release()


@pytest.mark.parametrize("installed", [True, False])
def test_a_call_that_the_cluster_refuses_at_once_was_not_killed(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, without_programs: str, installed: bool
) -> None:
    if not installed:
        monkeypatch.setenv("PATH", without_programs)
    result = run(fresh, "snakemake", "--profile", "slurm", status=1)
    why = f"failed: sinfo: fatal: {NO_CLUSTER}" if installed else "does not answer ("
    (error,) = (line for line in result.splitlines() if line.startswith("Error: "))
    assert error.startswith(f"Error: sinfo {why}")
    assert "killed" not in run(fresh, "snakemake", *LOCAL)
