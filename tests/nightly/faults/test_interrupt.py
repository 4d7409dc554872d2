"""Ctrl-C in the terminal of Snakemake: SIGINT to it and to everything that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from tests.nightly.faults.test_kills import MARK, PATIENCE_S, PLACES, Subject, of_mark
from tests.tiny_study import ROOT, TINY, environment

# One family is enough: what is interrupted are launchers.
FAMILY = "sentences"


@pytest.mark.parametrize("place", PLACES)
def test_an_interrupted_study_is_resumed(place: str, tmp_path: Path) -> None:
    subject = Subject(tmp_path, TINY[FAMILY], place)
    (run,) = subject.runs
    folder, results = subject.project.folder, subject.project.config["results"]
    mark = uuid.uuid4().hex
    command = ["snakemake", "-s", str(ROOT / "Snakefile"), "--profile", str(ROOT / "profiles" / "local")]
    target = f"{results}/{run.path}"
    with (folder / "said").open("wb") as message:
        driver = subprocess.Popen(
            [*command, target],
            cwd=folder,
            env=environment(ROOT / "workflow") | {MARK: mark},
            stdout=message,
            stderr=message,
            start_new_session=True,
        )
    (record,) = subject.records(results)
    checkpoints, end = record.parent / "checkpoint", time.monotonic() + 120
    while not list(checkpoints.glob("*.pt")):
        assert time.monotonic() < end and driver.poll() is None, subject.said()
        time.sleep(0.02)
    os.killpg(driver.pid, signal.SIGINT)
    assert driver.wait(PATIENCE_S) != 0, subject.said()
    end = time.monotonic() + PATIENCE_S
    while left := of_mark(mark):
        assert time.monotonic() < end, f"{left} did not end"
        time.sleep(0.05)
    # torchrun shows a traceback of its own.
    assert "KeyboardInterrupt" not in subject.said(), subject.said()
    told = f"failed: {Path(target).parent}/train.log: it was interrupted (Ctrl-C); "
    assert told in " ".join(subject.said().split())
    # mpirun gives its ranks one second, which may be too little for a step and a checkpoint on a busy machine.
    assert run.backend == "mpi" or "(Ctrl-C); stopped at step" in subject.said()
    assert not record.exists() and list(checkpoints.glob("*.pt"))
    subject.project.snakemake(target)
    (result,) = subject.checked(results)
    # tests/process/integration/test_killed.py says that what is resumed is bitwise the same.
    assert result.record.resumed == 1
