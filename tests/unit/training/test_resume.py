"""Invariant: a run that was stopped and resumed ends with bitwise the parameters of one that was not."""

import math

import pytest

from ketscale.training import checkpoint
from ketscale.training.loop import Stopped
from tests.toys import classification, trainer


class StopAfter:
    """A stop request that comes when a run has taken so many steps."""

    def __init__(self, steps):
        self.left = steps

    def __call__(self):
        self.left -= 1
        return self.left < 0


def run_in_pieces(tmp_path, problem, protocol, pieces, batch=8):
    """Train with a stop after each number of steps, each piece a new trainer that resumes the checkpoint."""
    for steps in [*pieces, math.inf]:
        loop = trainer(
            problem(),
            protocol,
            batch,
            save=lambda state: checkpoint.save(tmp_path, "h" * 64, state),
            stop_requested=StopAfter(steps),
        )
        saved = checkpoint.load(tmp_path, "h" * 64)
        if saved is not None:
            loop.restore(saved)
        try:
            loop.run()
        except Stopped:
            continue
        return loop
    raise AssertionError("the last piece has no stop")


@pytest.mark.parametrize("protocol", [{"steps": 33}, {"epochs": 7}])
def test_a_timed_run_starts_anew_and_its_times_are_whole(tmp_path, protocol):
    """Its times are what it is for: nobody has timed all of a run whose rest was trained later."""
    protocol = {**protocol, "timed": True, "checkpoint_steps": 1}
    whole = trainer(classification(), protocol)
    whole.run()
    with pytest.raises(
        Stopped, match="stopped at step 14; a timed run has no checkpoints, so the same command"
    ):
        run_in_pieces_until_stopped(tmp_path, protocol, 13)
    assert not list(tmp_path.rglob("*.pt"))
    anew = run_in_pieces(tmp_path, classification, protocol, [4, 13])
    assert_the_same(anew, whole)
    assert len(anew.clock.steady_s) == len(whole.clock.steady_s) == whole.step - 2


def run_in_pieces_until_stopped(tmp_path, protocol, steps):
    loop = trainer(
        classification(),
        protocol,
        save=lambda state: checkpoint.save(tmp_path, "h" * 64, state),
        stop_requested=StopAfter(steps),
    )
    loop.run()


def assert_the_same(resumed, whole):
    assert resumed.weights_hash() == whole.weights_hash()
    assert resumed.losses == whole.losses
    drop = lambda row: {k: v for k, v in row.items() if k != "epoch_s"}  # noqa: E731
    assert [drop(row) for row in resumed.history] == [drop(row) for row in whole.history]
