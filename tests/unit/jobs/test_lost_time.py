"""The seconds that interruptions cost: what the process before did after the last checkpoint."""

import time
from datetime import UTC, datetime
from types import SimpleNamespace

import psutil
import pytest
import torch

from ketscale import process
from ketscale.grid import Run
from ketscale.jobs import results
from ketscale.jobs.locks import Holder
from ketscale.jobs.started import lost_s


def at(clock: str) -> str:
    return f"2026-01-02T{clock}Z"


def seconds(clock: str) -> float:
    return datetime.fromisoformat(at(clock)).timestamp()


@pytest.mark.parametrize(
    "since, last, saved, lost",
    [
        ("10:00:00", "10:05:00", "10:04:00", 60),
        ("10:00:00", "10:05:00", None, 300),
        # Five hours in the queue between the checkpoint and a life that saved none.
        ("15:00:00", "15:01:00", "10:00:00", 60),
        # It saved when it was told to stop; its sign of life has no fractions of a second.
        ("10:00:00", "10:05:00", "10:05:01", 0),
    ],
)
def test_time_after_the_last_checkpoint_is_lost(since, last, saved, lost):
    for until, written in ((at(last), 0.0), (None, seconds(last))):  # it stopped, or was killed
        lock = SimpleNamespace(former=Holder("a", 1, None, None, at(since), until), written=written)
        assert lost_s(lock, saved and seconds(saved)) == lost


def test_the_age_of_a_process_needs_no_time_of_day(monkeypatch):
    by_the_day = time.time() - psutil.Process().create_time()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert process.age_s() == pytest.approx(by_the_day, abs=2)


def test_hours_are_not_negative_when_the_time_of_day_steps_back():
    run = Run("w", "m", "q1", 1, "s", "cpu", 2, 2, 1, "p", 0)
    found = results.spent(datetime(2030, 1, 1, tzinfo=UTC), 36.0, run, torch.device("cpu"))
    assert found["node_hours"] == 0.02 and found["gpu_hours"] == 0
    assert (found["started"], found["stopped"]) == ("2030-01-01T00:00:00+00:00", "2030-01-01T00:00:36+00:00")
