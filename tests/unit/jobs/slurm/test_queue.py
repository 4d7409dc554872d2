"""What SLURM's commands say, read from stand-ins that answer as SLURM 22.05 does."""

import os

import pytest

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
    lines = (
        f"1|RUNNING|{UUID}|rule_timed-n1-0_train|None|{tmp_path}",
        f"2|PENDING|{UUID}|rule_prepare_wildcards_sentences|None|{tmp_path}",
        f"3|RUNNING|{UUID}|rule_timed-n1-1_train|None|/elsewhere",
        f"4|RUNNING|my-own-job|rule_timed-n1-1_train|None|{tmp_path}",
        f"5|RUNNING|{UUID}|(null)|None|{tmp_path}",
        "6|RUNNING|my-own-job|a comment",
        f"of two lines|None|{tmp_path}",
    )
    slurm("squeue", "\n".join(lines))
    assert queue.jobs(tmp_path) == [
        queue.Job("1", "RUNNING", "timed-n1-0", "None", "rule_timed-n1-0_train"),
        queue.Job("2", "PENDING", "prepare", "None", "rule_prepare_wildcards_sentences"),
    ]


def test_a_job_is_over_when_slurm_says_so(slurm):
    slurm("squeue", "COMPLETING")
    assert not queue.job_over("7")
    slurm("squeue")
    assert queue.job_over("7")
    slurm("squeue", error="slurm_load_jobs error: Invalid job id specified", status=1)
    assert queue.job_over("7")
    slurm("squeue", error="slurm_load_jobs error: Unable to contact slurm controller", status=1)
    assert not queue.job_over("7")


def test_a_job_is_read_where_slurm_answers(slurm):
    slurm("scontrol", "JobId=7 JobState=TIMEOUT Reason=TimeLimit Features=x")
    assert queue.state("7") == "TIMEOUT TimeLimit"
    slurm("scontrol", "JobId=7 JobState=RUNNING Reason=None")
    assert queue.state("7") == queue.state(None) == ""
    slurm("scontrol", error="Invalid job id", status=1)
    assert queue.state("7") == ""


@pytest.mark.parametrize(
    "words, minutes",
    [("1:00:00", 60), ("30:00", 30), ("2-00:00:00", 2880), ("1-12:30:00", 2190), ("infinite", float("inf"))],
)
def test_times_are_read(words, minutes):
    assert queue.seconds(words) == 60 * minutes


def test_the_time_left_is_that_of_a_job_that_snakemake_has_submitted(slurm):
    slurm("squeue", f"{UUID}|1:30")
    assert queue.remaining_s("7") == 90
    slurm("squeue", "my-own-job|1:30")
    assert queue.remaining_s("7") == float("inf")
    slurm("squeue", error="slurm_load_jobs error: Invalid job id specified", status=1)
    assert queue.remaining_s("7") == float("inf")


@pytest.mark.parametrize(
    "error, available",
    [
        (f"squeue: error: fetch_config: DNS SRV lookup failed\nsqueue: fatal: {NO_CLUSTER}", False),
        ("slurm_load_jobs error: Unable to contact slurm controller", True),
    ],
)
def test_a_program_that_finds_no_cluster_is_none(slurm, error, available):
    slurm("squeue", error=error, status=1)
    assert queue.available() is available
