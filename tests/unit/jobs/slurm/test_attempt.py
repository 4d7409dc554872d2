"""Whether a job has SLURM requeue it before its time limit: if this attempt got further, by stand-ins of SLURM's commands."""

import json
import os
import time
from datetime import UTC, datetime

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
    bin_folder, asked = tmp_path / "bin", tmp_path / "asked"
    bin_folder.mkdir()
    for name, does in (("squeue", f"cat {tmp_path}/times"), ("scontrol", f"echo $@ >> {asked}; exit $(cat {tmp_path}/refuses 2>&-)")):  # fmt: skip
        (bin_folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (bin_folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(attempt, "_AGAIN_S", 0.0)
    monkeypatch.setattr(attempt, "_SOON_S", 0.0)
    folder = tmp_path / "results/runs/w/m/seed0"
    folder.mkdir(parents=True)

    class Job:
        def __init__(self):
            self.folder = folder

        def look(self, attempt, used, limit="1:00:00", name=UUID):
            """Whether it asked for a requeue, by now."""
            (tmp_path / "times").write_text(f"{name}|{used}|{limit}")
            attempt.look()
            return asked.read_text().splitlines() if asked.exists() else []

        def refuse(self):
            (tmp_path / "refuses").write_text("1")

        def reach(self, step):
            checkpoint.save(folder, KEY, {"step": step, "x": torch.zeros(3)})

    return Job()


def test_a_job_is_requeued_before_its_limit_if_it_got_further(job):
    job.reach(100)
    begun = Attempt(job.folder, "7")
    assert job.look(begun, "10:00") == []
    job.reach(200)
    assert job.look(begun, "59:00") == []
    assert job.look(begun, "59:31") == ["requeue 7"]


def test_an_attempt_without_progress_counts_also_if_it_saves_what_it_began_with(job):
    job.reach(100)
    begun = Attempt(job.folder, "7")
    job.reach(100)
    assert job.look(begun, "59:31") == []
    job.reach(101)
    assert job.look(begun, "59:35") == ["requeue 7"]


def test_a_limit_that_was_raised_is_heeded(job):
    begun = Attempt(job.folder, "7")
    job.reach(1)
    assert job.look(begun, "59:31", limit="2:00:00") == []


def test_a_short_job_has_three_quarters_of_its_time(job):
    begun = Attempt(job.folder, "7")
    job.reach(1)
    assert job.look(begun, "0:44", limit="1:00") == []
    assert job.look(begun, "0:46", limit="1:00") == ["requeue 7"]


def test_a_job_of_the_users_own_and_one_that_slurm_does_not_know_are_left_alone(job):
    begun = Attempt(job.folder, "7")
    job.reach(1)
    assert job.look(begun, "59:31", name="mine") == []
    assert job.look(begun, "59:31", limit="UNLIMITED") == []


@pytest.mark.parametrize(
    "trained_by, ended_s, written_s, progress",
    [
        ("6", 60, 60, False),
        ("7", 7200, 7200, False),
        ("7", 7200, 60, False),
        ("7", 60, 60, True),
    ],
    ids=["another job", "attempt before", "attempt before, given back in this one", "this attempt"],
)
def test_another_run_that_this_attempt_has_finished_is_progress(
    job, trained_by, ended_s, written_s, progress
):
    now = time.time()
    record = job.folder.parent / "seed1" / "metrics.json"
    record.parent.mkdir()
    stopped = datetime.fromtimestamp(now - ended_s, UTC).isoformat()
    record.write_text(json.dumps({"slurm_job_id": trained_by, "stopped": stopped}))
    os.utime(record, (now - written_s, now - written_s))
    assert job.look(Attempt(job.folder, "7"), "59:31") == ["requeue 7"] * progress


def test_a_slurm_that_does_not_requeue_is_told_and_the_attempt_counts(job, capsys):
    begun = Attempt(job.folder, "7")
    job.reach(1)
    job.refuse()
    assert job.look(begun, "59:31") == ["requeue 7"]
    assert (
        "cannot be requeued before its time limit, so this attempt counts: scontrol failed"
        in capsys.readouterr().err
    )


def test_the_steps_of_checkpoints_are_read(tmp_path):
    assert checkpoint.steps(tmp_path) == {}
    checkpoint.save(tmp_path, KEY, {"step": 5, "x": torch.zeros(3)})
    checkpoint.save(tmp_path, "b" * 64, {"step": 3})
    (tmp_path / "checkpoint" / "c.pt").write_bytes(b'{"key": "of an older version"}\n...')
    assert checkpoint.steps(tmp_path) == {KEY: 5, "b" * 64: 3}
