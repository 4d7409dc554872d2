"""Parameters in one buffer: the same numbers as separate parameters, and a model that works as before."""

import io

import pytest
import torch
from torch import nn

from ketscale.training.flat import ALIGNED_BYTES, Flat, state_of


def model(seed, dtype=torch.float64):
    """A matrix, a vector, a scalar and complex numbers."""
    torch.manual_seed(seed)
    result = nn.Linear(5, 3, dtype=dtype)
    result.scale = nn.Parameter(torch.randn((), dtype=dtype))
    result.phases = nn.Parameter(torch.randn(4, dtype=dtype.to_complex()))
    return result


def loss(given, x):
    return given(x).square().sum() * given.scale + (given.phases * (1 + 2j)).sum().abs() ** 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_models_gradients_are_those_of_separate_parameters(dtype):
    """In the second step too, and those of a parameter that a step does not use are zero."""
    x = torch.randn(6, 5, dtype=dtype)
    actual, reference = model(0, dtype), model(0, dtype)
    flat = Flat([list(actual.parameters())])
    for used in (True, False):
        flat.clear()
        reference.zero_grad(set_to_none=False)
        for each in (actual, reference):
            (loss(each, x) if used else each(x).square().sum()).backward()
        flat.collect()
        result = flat.views(flat.gradients[0])
        for part, mine, expected in zip(result, actual.parameters(), reference.parameters(), strict=True):
            assert torch.equal(part, expected.grad) and torch.equal(mine.grad, expected.grad)
    assert not actual.phases.grad.any() and actual.weight.grad.any()


def test_each_members_norm_is_torchs():
    x = torch.randn(6, 5, dtype=torch.float64)
    models, references = [model(0), model(1)], [model(0), model(1)]
    flat = Flat([list(m.parameters()) for m in models])
    for mine, reference in zip(models, references, strict=True):
        loss(reference, x).backward()
        for a, b in zip(mine.parameters(), reference.parameters(), strict=True):
            a.grad.copy_(b.grad)
    norms = flat.norms()
    for norm, reference in zip(norms, references, strict=True):
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(reference.parameters(), 1.5))
    assert len(set(norms.tolist())) == 2
    assert all(
        p.data_ptr() % ALIGNED_BYTES == flat.values.data_ptr() % ALIGNED_BYTES
        for m in models
        for p in m.parameters()
    )


def test_a_models_state_is_saved_and_loaded_without_the_rest_of_the_buffer():
    models = [model(seed) for seed in range(16)]
    flat = Flat([list(m.parameters()) for m in models])
    state = state_of(models[3])
    flat.values.zero_()
    assert all(torch.equal(state[name], value) for name, value in model(3).state_dict().items())
    sizes = []
    for each in (state, model(3).state_dict()):
        buffer = io.BytesIO()
        torch.save(each, buffer)
        sizes.append(len(buffer.getvalue()))
    assert sizes[0] <= sizes[1]
    models[3].load_state_dict(state)
    assert torch.equal(flat.views(flat.values[3])[0], state["weight"])
    assert not flat.values[2].any()


def test_parameters_that_do_not_fit_together_are_refused():
    two, three = (nn.Parameter(torch.ones(size)) for size in (2, 3))
    with pytest.raises(ValueError, match="2 kinds of shapes"):
        Flat([[two], [three]])
    with pytest.raises(ValueError, match=r"float32.*float64"):
        Flat([[two, nn.Parameter(torch.ones(2).double())]])
