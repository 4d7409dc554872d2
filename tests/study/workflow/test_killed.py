"""After Snakemake was killed the next call works; where the lock is of another host, it says what to type."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ketscale.jobs import driver
from ketscale.jobs.slurm import queue
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
    said = process.communicate(timeout=PATIENCE_S)[0]
    assert process.returncode == status, said
    return said


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
    note = json.loads((killed / driver.NOTE).read_text())
    output = run(killed, "snakemake", *LOCAL)
    who = f"process {note['process']['pid']} on {note['process']['host']}"
    said = [line for line in output.splitlines() if line.startswith("ketscale: ")]
    assert said == [f"ketscale: the last Snakemake here ({who}) was killed: removed its lock"]
    assert all((killed / record(one)).exists() for one in RUNS)
    assert json.loads((killed / driver.NOTE).read_text())["process"] is None


def test_jobs_of_a_killed_call_are_not_forgotten_where_the_programs_find_no_cluster(killed: Path) -> None:
    (killed / queue.TRAINS).parent.mkdir()
    (killed / queue.TRAINS).write_text("{}")
    for command in (["snakemake", *LOCAL], ["ketscale", "recover"]):
        refused = run(killed, *command, status=1 if command[0] == "snakemake" else 2)
        said = refused[refused.index("SLURM's programs") :].splitlines()
        assert said == [
            f"SLURM's programs find no cluster on this machine (squeue: fatal: {NO_CLUSTER})",
            "if you know that no job of this folder is in the queue: ketscale recover --no-queue",
        ]
    run(killed, "ketscale", "recover", "--no-queue")
    run(killed, "snakemake", *LOCAL)


@pytest.mark.parametrize("installed", [True, False])
def test_a_call_that_the_cluster_refuses_at_once_was_not_killed(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, without_programs: str, installed: bool
) -> None:
    if not installed:
        monkeypatch.setenv("PATH", without_programs)
    refused = run(fresh, "snakemake", "--profile", "slurm", status=1)
    why = (
        f"SLURM's programs find no cluster on this machine (scontrol: fatal: {NO_CLUSTER})"
        if installed
        else "there is no sbatch on this machine"
    )
    advice = "run on the cluster's login node, or use `--profile profiles/local`"
    assert [line for line in refused.splitlines() if line.startswith("Error: ")] == [
        f"Error: profile slurm: {why}; {advice}"
    ]
    assert json.loads((fresh / driver.NOTE).read_text())["process"] is None
    assert "killed" not in run(fresh, "snakemake", *LOCAL)


def test_a_lock_of_another_host_is_kept_and_what_to_type_is_said(killed: Path) -> None:
    note = json.loads((killed / driver.NOTE).read_text())
    note["process"]["host"] = "elsewhere"
    (killed / driver.NOTE).write_text(json.dumps(note))
    refused = run(killed, "snakemake", *LOCAL, status=1)
    who = f"process {note['process']['pid']} on elsewhere"
    asked = f"locked by another Snakemake ({who}); if it no longer runs, type: ketscale recover"
    assert asked in refused
    said = run(killed, "ketscale", "recover", "--no-queue")
    assert said.splitlines()[0] == "removed the lock on the folder"
    command = said.splitlines()[-1].partition(": ")[2].split()
    assert command == ["snakemake", *LOCAL]
    run(killed, *command)
    assert all((killed / record(one)).exists() for one in RUNS)
