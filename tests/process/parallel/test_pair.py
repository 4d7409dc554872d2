"""Two ranks end together, whichever of them is told to; a world of another size is refused; and what Gloo's ranks need."""

import functools
import json
import math
import os

import numpy as np
import pytest
import torch

from ketscale.errors import UserError
from ketscale.parallel.world import open_world
from tests.process.parallel import worlds
from tests.toys import run_at

PLACES = ["mpi-n1r2t1", "ddp-cpu-n1r2t1"]
# On which rank time is over, and from which step on.
CASES = [(0, 1), (0, 5), (0, 23), (1, 5)]


@functools.cache
def pair(where):
    """What each of the two ranks has found."""
    return worlds.printed(where, f"tests.process.parallel.pair {where} '{json.dumps(CASES)}'")


@pytest.mark.parametrize("where", PLACES)
def test_time_that_is_over_by_rank_0s_clock_ends_all_ranks_after_the_same_step(where):
    actual, expected = (rank["ends"] for rank in pair(where))
    assert actual == expected
    for (_, late_step), (status, step, reason) in zip(CASES[:3], actual[:3], strict=True):
        # They agree at most ten steps later, at the end of an epoch, or sooner.
        assert status == "timed_out" and late_step <= step < late_step + 10
        assert reason == f"its time of 1800 s (limit_s) was over after step {step} of 40"
    # The clock of another rank decides nothing.
    assert actual[3] == ["completed", 40, None]


@pytest.mark.parametrize("where", PLACES)
def test_a_request_that_one_rank_has_heard_stops_all_at_the_same_iteration(where):
    for rank in pair(where):
        assert rank["stopped"].startswith("stopped at step 3; l-bfgs has no checkpoints")


@pytest.mark.parametrize("where", PLACES)
def test_a_world_of_another_size_is_refused(where):
    for rank in pair(where):
        larger, of_two_nodes, single = rank["refused"]
        assert "needs 3 rank(s), but this process" in larger and "asks for 2 node(s)" in of_two_nodes
        assert "needs 1 rank(s), but this process" in single


def test_one_process_is_no_world_of_two():
    with pytest.raises(UserError, match=r"needs 2 rank\(s\), but this process"):
        open_world(run_at("ddp-cpu-n1r2t1"))


def test_gloos_thread_for_messages_does_not_interrupt_those_that_compute():
    for threads, own, message in (rank["gloo"] for rank in pair(PLACES[1])):
        assert (threads, own) == ({"gloo_tcp_loop": os.SCHED_BATCH}, os.SCHED_OTHER)
        assert ["Gloo's messages may take milliseconds" in each for each in message] == [True]


def test_a_layer_under_distributed_data_parallel_has_the_gradient_of_all_ranks_samples():
    torch.manual_seed(0)
    expected = torch.rand(1, dtype=torch.float64).item() * 2 * math.pi
    for weight, slope in (rank["layer"] for rank in pair(PLACES[1])):
        assert weight == expected
        assert slope == pytest.approx(-np.sin(np.linspace(0, 1, 8) + weight).mean(), rel=1e-12)
