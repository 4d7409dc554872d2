"""Fixtures shared by all tests: features of digits from hardly trained weights, made once a session."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

# `ketscale`, mpirun and torchrun of this environment, however pytest was started.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

DIGITS = {"split_seed": 0, "weights": "selfsupervised", "image_size": 16}


def pytest_configure(config: pytest.Config) -> None:
    """Where tests run side by side, each side has a lock of the host to itself: a timed run would wait for the others."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = tempfile.mkdtemp(prefix="ketscale-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["TMPDIR"] = tempfile.tempdir = folder


@pytest.fixture(scope="session")
def digits_features(tmp_path_factory) -> Path:
    """features.json of digits; two steps of pre-training give real if poor features."""
    from ketscale.problems.images.features import compute
    from ketscale.problems.images.pretrain import pretrain
    from ketscale.problems.images.workloads import Digits

    folder = tmp_path_factory.mktemp("features")
    digits = Digits(**DIGITS)
    images, weights = digits.load(None), folder / "weights.safetensors"
    pretrain(images, digits.image_size, weights, steps=2)
    compute(digits, images, weights, folder / "features.json")
    return folder / "features.json"


@pytest.fixture
def one_thread(monkeypatch):
    """The environment of a rank with one thread."""
    from ketscale.jobs.launch import THREAD_VARIABLES

    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, "1")
