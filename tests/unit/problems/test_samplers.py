"""Samplers: which samples a step takes, as a function of seed, epoch and step."""

import pytest
import torch

from ketscale.errors import UserError
from ketscale.problems.samplers import All, Shuffled, Stream
from tests.toys import Columns, Tasks, trainer


def test_shuffled_takes_every_sample_once_an_epoch_in_the_order_of_its_seed():
    sampler = Shuffled(11)
    assert sampler.steps_per_epoch(4) == 3 and sampler.steps_per_epoch(11) == 1
    batches = list(sampler.batches(5, 2, 4))
    assert [len(batch) for batch in batches] == [4, 4, 3]
    # This order is that of every record since 0.4.0: another one would change all trajectories.
    assert torch.cat(batches).tolist() == [2, 6, 5, 10, 8, 3, 7, 9, 0, 1, 4]
    assert not torch.equal(torch.cat(batches), torch.cat(list(sampler.batches(5, 3, 4))))
    for actual, later in zip(batches[1:], sampler.batches(5, 2, 4, start=1), strict=True):
        assert torch.equal(actual, later)


def test_all_takes_every_sample_in_every_step():
    sampler = All(4)
    assert sampler.steps_per_epoch(4) == 1
    assert [batch.tolist() for batch in sampler.batches(0, 7, 4)] == [[0, 1, 2, 3]]


@pytest.mark.parametrize("batch", [1, 3, 5])
def test_all_refuses_another_batch(batch):
    with pytest.raises(UserError, match=r"batch: .*all 4 samples.*set batch to 4"):
        trainer(Columns(), {"steps": 2}, batch)


def test_stream_numbers_the_tasks_of_a_step():
    sampler = Stream(5)
    assert sampler.steps_per_epoch(3) == sampler.steps_per_epoch(300) == 5
    assert [batch.tolist() for batch in sampler.batches(1, 2, 3, start=3)] == [[0, 1, 2]] * 2


def test_tasks_of_a_stream_differ_from_step_to_step():
    problem = Tasks()
    loop = trainer(problem, {"steps": 8, "learning_rate": 1e-12}, batch=7)
    loop.run()
    assert len(set(loop.losses)) == 8
    assert [row["step"] for row in loop.history] == [6, 8]
    assert loop.samples_seen == 56
