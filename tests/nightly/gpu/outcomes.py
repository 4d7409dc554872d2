"""A plugin of pytest for `check`: writes each test's outcome as it ends, so that a limit loses none."""

from __future__ import annotations

import json
import os

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One JSON line for each test."""
    skipped = report.when == "setup" and report.skipped
    failed = report.when != "call" and report.failed
    if report.when == "call" or skipped or failed:
        row = {
            "test": report.nodeid.split("::", 1)[-1],
            "outcome": report.outcome,
            "seconds": round(report.duration, 3),
            "why": "" if report.passed else str(report.longrepr)[-600:],
            **dict(report.user_properties),
        }
        with open(os.environ["KETSCALE_GPU_OUT"], "a") as file:
            file.write(json.dumps(row) + "\n")
