"""Random numbers are functions of (key, sample), so masks do not depend on how samples are shared."""

import numpy as np
import torch
from torch import nn

from ketscale.problems import randomness
from ketscale.problems.dropout import SampleDropout, keyed


def splitmix64(state: int) -> int:
    """Reference in Python's integers (the published algorithm, one output for a state)."""
    mask = 2**64 - 1
    z = (state + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def test_fold_is_splitmix64():
    # The first output of splitmix64 seeded with 0, as published with the generator.
    assert randomness.fold(0) == splitmix64(0) == 0xE220A8397B1DCDAF


def test_as_many_are_kept_as_asked_and_neighbours_are_independent():
    kept = randomness.kept(7, torch.arange(2000), 50, 0.3).numpy()
    # 100,000 draws: five standard deviations of a binomial share.
    assert abs(kept.mean() - 0.7) < 5 * np.sqrt(0.3 * 0.7 / 1e5)
    correlations = np.corrcoef(kept, rowvar=False) - np.eye(50)
    assert abs(correlations).max() < 6 / np.sqrt(2000)
    assert randomness.kept(7, torch.arange(2000), 50, 0.0).all()


def test_what_is_kept_depends_on_the_sample_alone():
    samples = torch.tensor([3, 11, 5, 900000])
    whole = randomness.kept(1, samples, 70, 0.5)
    assert torch.equal(randomness.kept(1, samples[2:3], 70, 0.5), whole[2:3])
    assert torch.equal(randomness.kept(1, samples, 33, 0.5), whole[:, :33])
    assert not torch.equal(whole, randomness.kept(2, samples, 70, 0.5))
    assert len({tuple(row.tolist()) for row in whole}) == 4


def test_permutation_is_a_function_of_the_key():
    assert torch.equal(randomness.permutation(2**63 + 5, 100), randomness.permutation(2**63 + 5, 100))
    assert not torch.equal(randomness.permutation(1, 100), randomness.permutation(2, 100))
    assert sorted(randomness.permutation(3, 100).tolist()) == list(range(100))


def test_dropout_mask_is_the_same_however_the_batch_is_shared():
    layer, x = SampleDropout(0.3, stream=1), torch.ones(10, 4, 6)
    samples = torch.arange(10) * 7
    with keyed(1, 2, samples):
        whole = layer(x)
    with keyed(1, 2, samples[4:]):
        part = layer(x[4:])
    assert torch.equal(part, whole[4:])
    assert set(whole.unique().tolist()) == {0.0, torch.tensor(1 / 0.7).item()}
    with keyed(1, 3, samples):
        assert not torch.equal(layer(x), whole)
    with keyed(1, 2, samples):
        assert not torch.equal(SampleDropout(0.3, stream=2)(x), whole)


def test_dropout_keeps_the_right_share_and_is_off_in_evaluation():
    layer = SampleDropout(0.25, stream=0)
    with keyed(0, 0, torch.arange(1000)):
        kept = (layer(torch.ones(1000, 100)) > 0).float().mean()
    assert abs(kept - 0.75) < 0.01
    layer.eval()
    assert torch.equal(layer(torch.ones(3, 3)), torch.ones(3, 3))


def test_dropout_outside_a_run_is_torchs():
    torch.manual_seed(0)
    ours = SampleDropout(0.5, stream=0)(torch.ones(50))
    torch.manual_seed(0)
    assert torch.equal(ours, nn.functional.dropout(torch.ones(50), 0.5))
