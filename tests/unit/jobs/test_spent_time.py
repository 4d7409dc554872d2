"""The time that a run takes, by a clock that nobody sets."""

import time
from datetime import UTC, datetime

import psutil
import pytest
import torch

from ketscale import process
from ketscale.grid import Run
from ketscale.jobs import results


def test_the_age_of_a_process_needs_no_time_of_day(monkeypatch):
    by_the_day = time.time() - psutil.Process().create_time()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert process.age_s() == pytest.approx(by_the_day, abs=2)


def test_hours_are_not_negative_when_the_time_of_day_steps_back():
    run = Run("w", "m", "q1", 1, "s", "cpu", 2, 2, 1, "p", 0)
    value = results.costs(datetime(2030, 1, 1, tzinfo=UTC), 36.0, run, torch.device("cpu"))
    assert value["node_hours"] == 0.02 and value["gpu_hours"] == 0
    assert (value["started"], value["stopped"]) == ("2030-01-01T00:00:00+00:00", "2030-01-01T00:00:36+00:00")
