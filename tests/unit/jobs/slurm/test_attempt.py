"""Whether a job has SLURM requeue it before its time limit: if this attempt got further, by stand-ins of SLURM's commands."""

import os

import pytest
import torch

from ketscale.jobs.slurm import attempt
from ketscale.jobs.slurm.attempt import Attempt
from ketscale.training import checkpoint

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
KEY = "a" * 64


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The folder of a run, and what a job's times are made by; what it asks of SLURM is noted in a file."""
    bin_folder, log = tmp_path / "bin", tmp_path / "asked"
    bin_folder.mkdir()
    for name, does in (("squeue", f"cat {tmp_path}/left"), ("scontrol", f"echo $@ >> {log}; exit $(cat {tmp_path}/refuses 2>&-)")):  # fmt: skip
        (bin_folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (bin_folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(attempt, "_RETRY_S", 0.0)
    monkeypatch.setattr(attempt, "_SOON_S", 0.0)

    class Job:
        folder = tmp_path / "run"

        def look(self, attempt, left, name=UUID):
            """What it has asked for, by now."""
            (tmp_path / "left").write_text(f"{name}|{left}")
            attempt.look()
            return log.read_text().splitlines() if log.exists() else []

        def refuse(self):
            (tmp_path / "refuses").write_text("1")

        def reach(self, step):
            checkpoint.save(self.folder, KEY, {"step": step, "x": torch.zeros(3)})

    return Job()


def test_a_job_is_requeued_before_its_limit_if_it_got_further(job):
    job.reach(100)
    begun = Attempt(job.folder, "7")
    assert job.look(begun, "0:19") == []
    job.reach(100)
    assert job.look(begun, "0:19") == []
    job.reach(200)
    assert job.look(begun, "1:00:00") == []
    assert job.look(begun, "0:19") == ["requeue 7"]
    assert job.look(begun, "0:18") == ["requeue 7"]


def test_a_job_of_the_users_own_and_one_without_a_limit_are_left_alone(job):
    begun = Attempt(job.folder, "7")
    job.reach(1)
    assert job.look(begun, "0:19", name="mine") == []
    assert job.look(begun, "UNLIMITED") == []


def test_a_slurm_that_does_not_requeue_is_told_and_the_attempt_counts(job, capsys):
    begun = Attempt(job.folder, "7")
    job.reach(1)
    job.refuse()
    assert job.look(begun, "0:19") == ["requeue 7"]
    message = "cannot be requeued before its time limit, so this attempt counts: scontrol failed"
    assert message in capsys.readouterr().err


def test_the_steps_of_checkpoints_are_read(tmp_path):
    assert attempt.step(tmp_path) == 0
    checkpoint.save(tmp_path, KEY, {"step": 5, "x": torch.zeros(3)})
    checkpoint.save(tmp_path, "b" * 64, {"step": 3})
    (tmp_path / "checkpoint" / "c.pt").write_bytes(b'{"key": "of an older version"}\n...')
    assert attempt.step(tmp_path) == 5
