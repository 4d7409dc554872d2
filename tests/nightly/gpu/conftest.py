"""Tests that need a GPU say so by the mark `gpu`; elsewhere they are skipped."""

from __future__ import annotations

import os

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep every n-th test where n processes share them; skip what needs a GPU where torch sees none."""
    share, shares = map(int, os.environ.get("KETSCALE_GPU_SHARE", "0/1").split("/"))
    items[:] = items[share::shares]
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device here"))
