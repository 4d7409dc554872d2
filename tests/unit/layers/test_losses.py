"""The compiled cross-entropy is torch's, with its gradient, and for what is not finite too."""

import pytest
import torch
from torch.nn import functional

from ketscale.layers.losses import cross_entropy, cross_entropy_vjp


def reference(logits, labels):
    """Sum and gradient by torch's own operators."""
    logits = logits.clone().requires_grad_()
    loss = functional.cross_entropy(logits, labels, reduction="sum")
    return loss.detach().reshape(1), *torch.autograd.grad(loss, logits)


def compiled(logits, labels, classes):
    """Sum and gradient, which must come from the compiled operator."""
    logits = logits.clone().requires_grad_()
    loss = cross_entropy(logits, labels, classes)
    assert loss.grad_fn.name() == "_SummedBackward"
    return loss.detach(), *torch.autograd.grad(loss, logits, torch.ones(1, dtype=loss.dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "classes"), [(1, 2), (64, 10), (17, 3), (33, 1), (100, 1000)])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 30.0, 1e4])
def test_it_is_torchs(dtype, rows, classes, scale):
    torch.manual_seed(0)
    logits, labels = scale * torch.randn(rows, classes, dtype=dtype), torch.randint(0, classes, (rows,))
    eps = torch.finfo(dtype).eps
    for mine, expected in zip(compiled(logits, labels, classes), reference(logits, labels), strict=True):
        torch.testing.assert_close(mine, expected, rtol=8 * eps, atol=4 * eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("at", [0, 2, slice(None)])
def test_what_is_not_finite_is_passed_on_as_torch_does(dtype, wrong, at):
    """A loss that is NaN or infinite must not become finite: a run diverges by it."""
    logits, labels = torch.randn(20, 4, dtype=dtype), torch.full((20,), 2)
    logits[5, at] = wrong
    mine, expected = compiled(logits, labels, 4)[0], reference(logits, labels)[0]
    assert torch.equal(mine.isnan(), expected.isnan()) and torch.equal(mine.isfinite(), expected.isfinite())
    if expected.isfinite():
        torch.testing.assert_close(mine, expected)


def test_members_under_vmap_have_their_own():
    logits = torch.randn(3, 20, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 4, (3, 20))
    sums = torch.func.vmap(lambda x, y: cross_entropy(x, y, 4))(logits, labels)
    (gradient,) = torch.autograd.grad(sums.sum(), logits)
    direct = cross_entropy_vjp(logits.detach(), labels, 4)
    assert torch.equal(direct.value, sums)
    assert torch.equal(direct.back(torch.ones(3, 1, dtype=torch.float64), None), gradient)
    for member in range(3):
        expected = reference(logits[member].detach(), labels[member])
        torch.testing.assert_close((sums[member], gradient[member]), expected, rtol=1e-13, atol=1e-15)


def test_a_label_beyond_the_logits_is_an_error():
    """As of a model that was made for fewer classes than the data have."""
    with pytest.raises(IndexError):
        cross_entropy(torch.randn(4, 3), torch.full((4,), 3), 4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_torchs(dtype):
    logits, labels = torch.randn(5, 3).to(dtype), torch.tensor([0, 1, 2, 0, 1])
    assert torch.equal(cross_entropy(logits, labels, 3), reference(logits, labels)[0])
    assert cross_entropy_vjp(logits, labels, 3) is None
