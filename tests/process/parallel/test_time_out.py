"""Time that is over by rank 0's clock ends all ranks after the same step; by another rank's it does nothing."""

import functools
import json

import pytest

from tests.process.parallel import worlds

PLACES = ["mpi-n1r2t1", "ddp-cpu-n1r2t1"]
STEPS = [1, 5, 23]
# On which rank time is over, and from which step on.
CASES = [*((0, step) for step in STEPS), (1, 5)]


@functools.cache
def ends(where):
    """Status, last step and reason of each rank, by case."""
    done = worlds.start(
        where, f"{worlds.sys.executable} -m tests.process.parallel.time_out {where} '{json.dumps(CASES)}'"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (said,) = (line.partition("ENDS ")[2] for line in done.stdout.splitlines() if "ENDS " in line)
    return dict(zip(CASES, json.loads(said), strict=True))


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("late_step", STEPS)
def test_all_ranks_end_after_the_same_step(where, late_step):
    first, second = ends(where)[0, late_step]
    assert first == second
    status, step, reason = first
    # They agree at most ten steps later, at the end of an epoch, or sooner.
    assert status == "timed_out" and late_step <= step < late_step + 10
    assert reason == f"its time of 1800 s (limit_s) was over after step {step} of 40"


@pytest.mark.parametrize("where", PLACES)
def test_the_clock_of_another_rank_decides_nothing(where):
    assert ends(where)[1, 5] == [["completed", 40, None]] * 2
