"""Random numbers are functions of (key, sample), so masks do not depend on how samples are shared."""

import copy
import hashlib
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import nn

from ketscale.engines import randomness
from ketscale.engines.randomness import keyed
from ketscale.layers import masks
from ketscale.layers.dropout import MASKS, SampleDropout, name_dropouts
from ketscale.problems.samplers import ORDER
from tests.toys import TASKS


def test_fold_is_splitmix64():
    # The first output of splitmix64 seeded with 0, as published with the generator.
    assert randomness.fold(0) == 0xE220A8397B1DCDAF


def test_a_stream_is_numbered_by_its_name_alone_and_no_other_has_it():
    """So that keys do not depend on which streams there are, nor on the order in which modules are imported."""
    with pytest.raises(ValueError, match="'order': choose another name"):
        randomness.RandomStream("order")
    digest = hashlib.sha256(b"test tasks").hexdigest()
    assert TASKS.number == int(digest[:16], 16)
    assert TASKS.key(3, 5) == randomness.fold(TASKS.number, 3, 5)


def test_no_two_streams_seeds_and_steps_share_a_key():
    """As the order of an epoch and the masks of a model's second dropout once did."""
    places = [randomness.number_of(path) for path in ("dropout", "head.2", "head.5")]
    keys = [
        key
        for seed in range(5)
        for step in range(100)
        for key in (
            ORDER.key(seed, step),
            TASKS.key(seed, step),
            *(MASKS.key(seed, step, place) for place in places),
        )
    ]
    assert len(set(keys)) == len(keys) == 5 * 5 * 100


DRAWS: dict[str, Callable[[int, torch.Tensor, int], torch.Tensor]] = {
    "uniform": randomness.uniform,
    "kept": lambda key, samples, columns: randomness.keep_mask(key, samples, columns, 0.3),
}


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_are_functions_of_key_and_sample_and_neighbours_are_independent(name):
    draws, samples = DRAWS[name], torch.tensor([3, 11, 5, 900000])
    complete = draws(TASKS.key(1, 2), samples, 70)
    assert torch.equal(draws(TASKS.key(1, 2), samples[2:], 70), complete[2:])
    assert torch.equal(draws(TASKS.key(1, 2), samples, 33), complete[:, :33])
    assert len({tuple(row.tolist()) for row in complete}) == 4
    for other in (TASKS.key(2, 2), TASKS.key(1, 3), TASKS.key(2, 1)):
        assert not torch.equal(draws(other, samples, 70), complete)
    numbers = draws(7, torch.arange(2000), 50).numpy()
    correlations = np.corrcoef(numbers, rowvar=False) - np.eye(50)
    assert abs(correlations).max() < 6 / np.sqrt(2000)
    if name == "uniform":
        assert numbers.dtype == np.float64 and numbers.min() >= 0 and numbers.max() < 1
        assert kstest(numbers.ravel(), "uniform").pvalue > 1e-3
    else:
        # 100,000 draws: five standard deviations of a binomial share.
        assert abs(numbers.mean() - 0.7) < 5 * np.sqrt(0.3 * 0.7 / 1e5)
        assert randomness.keep_mask(7, samples, 50, 0.0).all()
    # A key of 64 bits orders samples, too.
    first, repeat, other = (randomness.permutation(key, 100).tolist() for key in (2**63 + 5, 2**63 + 5, 1))
    assert first == repeat != other and sorted(first) == list(range(100))


def test_dropout_without_a_name_is_refused_in_a_run_and_torchs_outside():
    with keyed(0, 0, torch.arange(5)), pytest.raises(RuntimeError, match="name_dropouts"):
        SampleDropout(0.3)(torch.ones(5, 3))
    torch.manual_seed(0)
    actual = SampleDropout(0.5)(torch.ones(50))
    torch.manual_seed(0)
    assert torch.equal(actual, nn.functional.dropout(torch.ones(50), 0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("columns", [1, 3, 16, 17, 128])
@pytest.mark.parametrize("p", [1e-9, 0.1, 0.5, 0.999999])
def test_a_compiled_mask_is_the_scaled_choice_of_the_samples(p, columns, dtype):
    key = randomness.fold(3, 2**63 + 5)
    samples = torch.tensor([0, 2**40, 7, -3, 2**62, 7])
    every_second = samples.repeat_interleave(2)[::2]
    expected = randomness.keep_mask(key, samples, columns, p).to(dtype) * (1 / (1 - p))
    device_key = torch.tensor(randomness.signed(key))
    for keys, rows in (([key], samples), ([key], every_second), ([device_key], samples)):
        result = masks.scaled(keys, rows, columns, p, dtype)
        assert result.dtype == dtype and torch.equal(result, expected)
    assert masks.scaled([key], samples[:0], columns, p, dtype).shape == (0, columns)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5, 4, 12), (3, 32), (7, 18), (900, 160)], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_dropout_multiplies_by_the_mask(dtype, shape, threads):
    """To the last bit, with first and second derivatives; by any threads."""
    dropout = SampleDropout(0.3)
    name_dropouts(nn.Sequential(dropout))
    x = torch.randn(shape, dtype=dtype).requires_grad_()
    samples = torch.arange(shape[0]) * 7
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with keyed(3, 11, samples):
            result = dropout(x)
    finally:
        torch.set_num_threads(before)
    columns = x[0].numel()
    mask = masks.scaled([MASKS.key(3, 11, dropout.number)], samples, columns, 0.3, dtype).reshape(shape)
    assert torch.equal(result, x * mask) and 0 < (mask == 0).double().mean() < 0.6
    assert torch.equal(copy.deepcopy(dropout).eval()(x), x)
    (first,) = torch.autograd.grad((result**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(first, 3 * (x * mask) ** 2 * mask)
    torch.testing.assert_close(second, 6 * (x * mask) * mask**2)
