"""The clock: steps that were preempted on any rank are left out, and the cores are watched from the first steady step on."""

import pytest
import torch

from ketscale.measure import clock
from ketscale.measure.clock import Clock, Durations
from ketscale.measure.host import layouts


def durations(*seconds, preempted=()):
    found = Durations()
    for number, each in enumerate(seconds):
        found.append(each, number in preempted)
    return found


def test_steps_that_were_preempted_on_any_rank_are_left_out():
    found = durations(1.0, 9.0, 2.0, 3.0, 8.0, preempted={1})
    found.join([bytes(durations(*[1.0] * 5, preempted={4}).preempted)])
    assert found.left_out == 2
    assert found.quartiles() == {"median_s": 2.0, "q25_s": 1.5, "q75_s": 2.5, "mean_s": 2.0, "count": 3}


def test_if_most_were_preempted_all_count():
    found = durations(1.0, 2.0, 9.0, preempted={0, 2})
    assert found.left_out is None
    assert found.quartiles()["median_s"] == 2.0 and found.quartiles()["count"] == 3
    assert durations().quartiles()["count"] == durations().left_out == 0


def test_a_sample_of_many_keeps_which_were_preempted(monkeypatch):
    monkeypatch.setattr(clock, "_KEPT", 100)
    found = durations(*[1.0, 2.0] * 500, preempted=set(range(1, 1000, 2)))
    assert {bool(one): s for one, s in zip(found.preempted, found.kept, strict=True)} == {
        False: 1.0,
        True: 2.0,
    }
    assert found.left_out == pytest.approx(500, abs=200) or found.left_out is None


class Counted:
    """A watch that counts its beginnings."""

    begun = 0

    def begin(self):
        self.begun += 1

    def seen(self):
        return {"begun": self.begun}


def test_the_cores_are_watched_from_the_first_steady_step_to_the_end_of_the_loop():
    watch = Counted()
    timed, begun = Clock(torch.device("cpu"), 2, frozenset(), watch), []
    with timed.loop(alone=True):
        for step in range(4):
            timed.start_step(step)
            begun.append(watch.begun)
            timed.stop_step()
    assert begun == [0, 0, 1, 1] and timed.seen == {"begun": 1} and len(timed.steady_s) == 2


def test_a_machine_offers_threads_and_ranks_up_to_its_cores():
    found = layouts(6, 0)
    assert [one for one in found if one.startswith("cpu")] == [f"cpu-n1r1t{n}" for n in (1, 2, 4, 6)]
    assert [one for one in found if one.startswith("ddp-cpu")] == [f"ddp-cpu-n1r{n}t1" for n in (2, 4, 6)]
    assert layouts(1, 0) == ["cpu-n1r1t1"]
    assert layouts(1, 4) == ["cpu-n1r1t1", "gpu-n1r1t1", "ddp-n1r2t1", "ddp-n1r4t1"]
