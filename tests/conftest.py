"""Fixtures shared by all tests: features of digits from hardly trained weights, made once a session."""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ketscale.process import THREAD_VARIABLES
from tests import shapes
from tests.tiny_study import TINY

# Until all tests are collected, as in `ketscale.process.uncollected`: what they import takes a fifth longer otherwise.
# (Where tests run side by side, the process that hands them out collects nothing, and stays without.)
gc.disable()

# `ketscale`, mpirun and Python of this environment, however pytest was started.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

# Tests that run side by side get one thread each, set before torch is imported: with as many threads as cores in each
# of them they would wait for each other's, which took seven times as long. What several threads do is tested by name;
# a thread or a rank of theirs that waits for another one lets go of its core, which the other tests need.
SIDE_BY_SIDE = "PYTEST_XDIST_WORKER" in os.environ
if SIDE_BY_SIDE:
    os.environ.update(
        dict.fromkeys(THREAD_VARIABLES, "1"), OMP_WAIT_POLICY="PASSIVE", OMPI_MCA_mpi_yield_when_idle="1"
    )

shapes.install()

# A user's programs of SLURM, and what they say where there is no cluster (22.05).
SLURM = ("sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")
NO_CLUSTER = "Could not establish a configuration source"

DIGITS = TINY["images"]["workloads"]["digits"]


def pytest_configure(config: pytest.Config) -> None:
    """A lock of the host for each process that runs tests beside others: a timed run would wait for these."""
    if SIDE_BY_SIDE:
        folder = tempfile.mkdtemp(prefix="ketscale-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["TMPDIR"] = tempfile.tempdir = folder


def pytest_collection_finish() -> None:
    """The tests themselves are run with the garbage collector, which need not look at what was collected."""
    gc.freeze()
    gc.enable()
    # Else libraries say at the end that what only a collector frees has leaked.
    atexit.register(gc.unfreeze)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """No test can show what a flush is for, a machine that fails, and each takes milliseconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def without_cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SLURM's programs as they are on a machine of no cluster: each ends with the same words."""
    folder = tmp_path_factory.mktemp("without_cluster")
    for name in SLURM:
        message = f"{name}: error: fetch_config: DNS SRV lookup failed\n{name}: fatal: {NO_CLUSTER}"
        (folder / name).write_text(f"#!/bin/sh\necho '{message}' >&2\nexit 1\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def slurm_of_this_machine(monkeypatch: pytest.MonkeyPatch, without_cluster: Path) -> None:
    """None, whatever is installed and configured here; tests/nightly/slurm has a cluster of its own instead."""
    monkeypatch.setenv("PATH", f"{without_cluster}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture(scope="session")
def digits_features(tmp_path_factory) -> Path:
    """features.json of digits, made once for all workers; two steps of pre-training give real if poor features."""
    if not SIDE_BY_SIDE:
        return prepared_digits(tmp_path_factory.mktemp("features"))
    shared = tmp_path_factory.getbasetemp().parent
    folder = shared / "features"
    folder.mkdir(exist_ok=True)
    with (shared / "features.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = folder / "features.json"
        return result if result.exists() else prepared_digits(folder)


def prepared_digits(folder: Path) -> Path:
    """Pre-train, and compute the features into the folder, whose features.json is written last."""
    from ketscale.problems.images.features import prepare
    from ketscale.problems.images.specification import Digits

    prepare(Digits(**DIGITS), folder / "features.json", None)
    return folder / "features.json"


@pytest.fixture
def one_thread(monkeypatch):
    """The environment of a rank with one thread."""
    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, "1")
