"""The clock: which steps are steady, and the cores are watched from the first of them on."""

import torch

from ketscale.measure.clock import Clock
from ketscale.measure.host import layouts


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
    with timed.loop():
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


def test_steps_with_a_smaller_batch_are_no_steady_ones_and_the_next_is_sampled_for_them() -> None:
    clock = Clock(torch.device("cpu"), 1, frozenset({3}))
    recorders = []
    for step in range(6):
        recorders.append(clock.start_step(step, partial=step % 2 == 1))
        clock.stop_step()
    assert [step for step, recorder in enumerate(recorders) if recorder] == [4]
    assert (clock.taken, len(clock.sampled_s), len(clock.steady_s)) == (6, 1, 1)
