"""A timed run that was stopped starts anew; that others go on as if nothing were is in `tests/property/test_resume.py`."""

import itertools
import math

import pytest

from ketscale.training import checkpoint
from ketscale.training.loop import Stopped
from tests.toys import classification, trainer

KEY = "h" * 64


def trained(folder, protocol, steps=math.inf):
    """By a new trainer that goes on from the checkpoint, if there is one, and is asked to stop after so many steps."""
    numbers = itertools.count()
    loop = trainer(
        classification(),
        protocol,
        save=lambda state: checkpoint.save(folder, KEY, state),
        stop_requested=lambda: next(numbers) >= steps,
    )
    saved = checkpoint.load(folder, KEY)
    if saved is not None:
        loop.restore(saved)
    loop.run()
    return loop


@pytest.mark.parametrize("protocol", [{"steps": 18}, {"epochs": 4}])
def test_a_timed_run_starts_anew_and_its_times_are_whole(tmp_path, protocol):
    """Its times are what it is for: nobody has timed all of a run whose rest was trained later."""
    protocol = {**protocol, "timed": True, "checkpoint_steps": 1}
    complete = trained(tmp_path, protocol)
    for steps in (13, 4):
        message = rf"stopped at step {steps + 1}; a timed run has no checkpoints, so the same command"
        with pytest.raises(Stopped, match=message):
            trained(tmp_path, protocol, steps)
    assert not list(tmp_path.rglob("*.pt"))
    anew = trained(tmp_path, protocol)
    assert (anew.weights_hash(), anew.losses) == (complete.weights_hash(), complete.losses)
    full = [step for step in range(2, complete.step) if (step + 1) % complete.steps_per_epoch]
    assert len(anew.clock.steady_s) == len(complete.clock.steady_s) == len(full)
