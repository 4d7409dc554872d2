"""What sacct says of a folder's jobs: which of them count, and what is made of its answer."""

import os
from pathlib import Path

import pytest

from ketscale.errors import UserError
from ketscale.jobs.slurm import accounting, queue
from ketscale.jobs.slurm.accounting import Account
from tests.conftest import NO_CLUSTER

OURS = "821b9131-a4af-418f-8841-2ecb90bcfcf7"


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def says(*lines, status=0):
    Path("bin").mkdir(exist_ok=True)
    text = "\n".join(lines)
    Path("bin/sacct").write_text(f"#!/bin/sh\ncat << 'END'\n{text}\nEND\nexit {status}\n")
    Path("bin/sacct").chmod(0o755)


def line(elapsed, nodes, waited, name=OURS, where=None):
    return f"{elapsed}|{nodes}|2026-01-01T10:00:00|2026-01-01T10:{waited:02}:00|{name}|{where or os.getcwd()}"


def test_every_attempt_of_this_folders_jobs_counts():
    says(
        line(3600, 2, 10),
        line(1800, 1, 30),
        line(900, 1, 20),  # an attempt that was requeued has a line of its own
        line(7200, 1, 0, name="my-own-job"),
        line(7200, 1, 0, where="/elsewhere"),
        f"0|0|2026-01-01T10:00:00|Unknown|{OURS}|{os.getcwd()}",  # pending
        f"0|0|Unknown|None|{OURS}|{os.getcwd()}",  # cancelled before it started
    )
    assert accounting.of_folder(Path()) == Account(jobs=3, node_hours=2.75, wait_s=1200.0)


def test_without_sacct_there_is_no_account(monkeypatch):
    monkeypatch.setenv("PATH", os.path.abspath("bin"))
    assert accounting.of_folder(Path()) is None


def test_a_sacct_that_finds_no_cluster_is_none_unless_jobs_were_submitted():
    says(NO_CLUSTER, status=1)
    assert accounting.of_folder(Path()) is None
    queue.TRAINS.parent.mkdir(parents=True)
    queue.TRAINS.touch()
    with pytest.raises(UserError, match="SLURM's programs find no cluster"):
        accounting.of_folder(Path())


@pytest.mark.parametrize(
    ("lines", "status", "why"),
    [
        (["error: not allowed"], 0, "sacct answered 'error: not allowed'"),
        (["Slurm accounting storage is disabled"], 1, "sacct failed: Slurm accounting storage is disabled"),
    ],
)
def test_an_answer_that_is_none_is_an_error_in_a_line(lines, status, why):
    says(*lines, status=status)
    with pytest.raises(UserError, match=why):
        accounting.of_folder(Path())
