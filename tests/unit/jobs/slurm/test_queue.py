"""What SLURM's commands say, read from stand-ins that answer as SLURM 22.05 does."""

import os

import pytest

from ketscale.errors import UserError
from ketscale.jobs.slurm import queue
from tests.conftest import NO_CLUSTER

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Makes a command of SLURM that prints something."""

    def answer(command: str, out: str = "", error: str = "", status: int = 0) -> None:
        path = tmp_path / command
        path.write_text(f"#!/bin/sh\ncat <<'E'\n{out}\nE\ncat >&2 <<'E'\n{error}\nE\nexit {status}\n")
        path.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return answer


def test_the_jobs_of_a_folder_are_those_that_its_snakemake_submitted(slurm, tmp_path):
    line = "{job}|{state}|{name}|{comment}|None|{folder}"
    ours = {"name": UUID, "folder": tmp_path}
    slurm(
        "squeue",
        "\n".join(
            line.format(**one)
            for one in (
                ours | {"job": 1, "state": "RUNNING", "comment": "rule_timed-n1-0_train"},
                ours | {"job": 2, "state": "PENDING", "comment": "rule_prepare_wildcards_sentences"},
                ours
                | {"job": 3, "state": "RUNNING", "comment": "rule_timed-n1-1_train", "folder": "/elsewhere"},
                ours
                | {"job": 4, "state": "RUNNING", "comment": "rule_timed-n1-1_train", "name": "my-own-job"},
                ours | {"job": 5, "state": "RUNNING", "comment": "(null)"},
                ours | {"job": 6, "state": "PENDING", "comment": "rule_prepare_wildcards_digits.s0"},
                ours | {"job": 7, "state": "RUNNING", "comment": "rule_try_wildcards_my-data"},
            )
        ),
    )
    found = queue.jobs(tmp_path)
    assert [(job.id, job.state, job.pack) for job in found] == [
        ("1", "RUNNING", "timed-n1-0"),
        ("2", "PENDING", "prepare"),
        ("6", "PENDING", "prepare"),
        ("7", "RUNNING", "try"),
    ]


@pytest.mark.parametrize(
    "out, error, status, over",
    [
        ("RUNNING", "", 0, False),
        ("COMPLETING", "", 0, False),
        ("COMPLETED", "", 0, True),
        ("", "slurm_load_jobs error: Invalid job id specified", 1, True),
        ("", "slurm_load_jobs error: Unable to contact slurm controller", 1, None),
        ("", "", 0, None),
    ],
)
def test_a_job_is_over_when_slurm_says_so_and_unknown_where_it_says_nothing(slurm, out, error, status, over):
    slurm("squeue", out, error, status)
    assert queue.job_over("7") is over


def test_a_job_is_read_where_slurm_answers(slurm):
    slurm("scontrol", "JobId=7 JobState=RUNNING Reason=None Restarts=3 MinMemoryNode=1.5G Features=x")
    assert queue.restarts("7") == 3
    assert queue.memory_mb("7") == 1536
    assert queue.state("7") == "RUNNING None"
    slurm("scontrol", error="Invalid job id", status=1)
    assert queue.restarts("7") is None
    assert queue.memory_mb("7") is None
    assert queue.state("7") == ""


@pytest.mark.parametrize(
    "told, minutes",
    [("1:00:00", 60), ("30:00", 30), ("2-00:00:00", 2880), ("1-12:30:00", 2190), ("infinite", float("inf")), ("UNLIMITED", float("inf"))],
)  # fmt: skip
def test_time_limits_are_read(told, minutes):
    assert queue.seconds(told) == 60 * minutes


def test_the_times_of_a_job_are_those_of_one_that_snakemake_has_submitted(slurm):
    slurm("squeue", f"{UUID}|1:30|2:00:00")
    assert queue.times("7") == (90, 7200)
    slurm("squeue", "my-own-job|1:30|2:00:00")
    assert queue.times("7") is None
    slurm("squeue", error="slurm_load_jobs error: Invalid job id specified", status=1)
    assert queue.times("7") is None


@pytest.mark.parametrize(
    "error, available",
    [
        (f"squeue: error: fetch_config: DNS SRV lookup failed\nsqueue: fatal: {NO_CLUSTER}", False),
        ("slurm_load_jobs error: Unable to contact slurm controller", True),
    ],
)
def test_a_program_that_finds_no_cluster_is_none_where_nothing_was_submitted(
    slurm, tmp_path, error, available
):
    slurm("squeue", error=error, status=1)
    assert queue.available(tmp_path) is available
    submitted = tmp_path / queue.TRAINS
    submitted.parent.mkdir(parents=True)
    submitted.touch()
    assert queue.available(tmp_path)
    with pytest.raises(UserError):
        queue.jobs(tmp_path)
