"""The clock: steps that were preempted on any rank are left out, and the cores are watched from the first steady step on."""

import torch

from ketscale.config import Protocol
from ketscale.measure.clock import Clock, next_pass, repeats
from ketscale.measure.host import layouts


def clock(*seconds, preempted=()):
    result = Clock(torch.device("cpu"), 0, frozenset())
    result.steady_s.extend(seconds)
    result.preempted = bytearray(number in preempted for number in range(len(seconds)))
    return result


def test_steps_that_were_preempted_on_any_rank_are_left_out():
    result = clock(1.0, 9.0, 2.0, 3.0, 8.0, preempted={1})
    result.join([bytes(clock(*[1.0] * 5, preempted={4}).preempted)])
    assert result.excluded == 2
    assert result.step() == {"median_s": 2.0, "q25_s": 1.5, "q75_s": 2.5, "mean_s": 2.0, "count": 3}


def test_if_most_were_preempted_all_count():
    result = clock(1.0, 2.0, 9.0, preempted={0, 2})
    assert result.excluded is None
    assert result.step()["median_s"] == 2.0 and result.step()["count"] == 3
    assert clock().step()["count"] == clock().excluded == 0


class Counted:
    """A watch that counts its beginnings."""

    begun = 0

    def begin(self):
        self.begun += 1

    def usage(self):
        return {"begun": self.begun}


def test_the_cores_are_watched_from_the_first_steady_step_to_the_end_of_the_loop():
    watch = Counted()
    timed, starts = Clock(torch.device("cpu"), 2, frozenset(), watch), []
    with timed.loop():
        for step in range(4):
            timed.start_step(step)
            starts.append(watch.begun)
            timed.stop_step()
    assert starts == [0, 0, 1, 1] and timed.usage == {"begun": 1} and len(timed.steady_s) == 2


def test_ranks_decide_alike_whether_steps_are_taken_again():
    """Each has a time of training of its own; a limit must leave time for a pass twice as slow."""
    usage = {
        "own_s": 1.0,
        "busy_s": 4.0,
        "steal_s": 0.0,
        "capacity_s": 9.0,
        "cpus": [0],
        "throttled_share": None,
    }
    ranks = [{"host": "a", "seen": {**usage, "oversubscribed": False}}]
    for limit_s, expected in ((None, True), (19.0, True), (17.0, False)):
        for train_s in (1.0, 100.0):
            timed = clock()
            timed.usage = usage
            passes = [next_pass([], timed, ranks, train_s)]
            settings = {"precision": "fp32", "steps": 3, "learning_rate": 0.1, "limit_s": limit_s}
            assert repeats(passes, Protocol(**settings, timed=True)) == expected
            assert not repeats(passes, Protocol(**settings, timed=False))


def test_a_machine_offers_threads_and_ranks_up_to_its_cores():
    result = layouts(6, 0)
    assert [one for one in result if one.startswith("cpu")] == [f"cpu-n1r1t{n}" for n in (1, 2, 4, 6)]
    assert [one for one in result if one.startswith("ddp-cpu")] == [f"ddp-cpu-n1r{n}t1" for n in (2, 4, 6)]
    assert layouts(1, 0) == ["cpu-n1r1t1"]
    assert layouts(1, 4) == ["cpu-n1r1t1", "gpu-n1r1t1", "ddp-n1r2t1", "ddp-n1r4t1"]


def test_steps_with_a_smaller_batch_are_no_steady_ones_and_the_next_is_sampled_for_them() -> None:
    clock = Clock(torch.device("cpu"), 1, frozenset({3}))
    recorders = []
    for step in range(6):
        recorders.append(clock.start_step(step, partial=step % 2 == 1))
        clock.stop_step()
    assert [step for step, recorder in enumerate(recorders) if recorder] == [4]
    assert (clock.count, len(clock.sampled_s), len(clock.steady_s)) == (6, 1, 1)
