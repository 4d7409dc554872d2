"""The compiled selective scan against the recurrence written out step by step, values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch.func import vmap

from ketscale.problems.eeg import selective_scan
from ketscale.problems.eeg.state_space import ClassicalHydra, ClassicalMamba, scanned

Tensors = tuple[torch.Tensor, ...]


def inputs(
    rows: int, steps: int, channels: int, state: int, dtype: torch.dtype, longest: float = 1.0
) -> Tensors:
    arguments = {"generator": torch.Generator().manual_seed(1), "dtype": torch.float64}
    tensors = (
        -4 * torch.rand(channels, state, **arguments),
        longest * torch.rand(rows, steps, channels, **arguments),
        *(torch.randn(rows, steps, size, **arguments) for size in (channels, state, state)),
    )
    return tuple(part.to(dtype).requires_grad_() for part in tensors)


def literally(
    rate: torch.Tensor, dt: torch.Tensor, x: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> torch.Tensor:
    h = torch.zeros(len(x), *rate.shape, dtype=x.dtype)
    y = []
    for t in range(x.shape[1]):
        h = torch.exp(dt[:, t, :, None] * rate) * h + x[:, t, :, None] * b[:, t, None, :]
        y.append((h * c[:, t, None, :]).sum(-1))
    return torch.stack(y, 1)


def gradients(y: torch.Tensor, tensors: Tensors) -> Tensors:
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
    return torch.autograd.grad((y * weights).sum(), tensors)


@pytest.mark.parametrize("longest", [1.0, 400.0], ids=["usual", "forgets at once"])
@pytest.mark.parametrize("rows, steps, channels", [(3, 17, 32), (1, 1, 16)])
def test_values_and_gradients(rows: int, steps: int, channels: int, longest: float) -> None:
    tensors = inputs(rows, steps, channels, 16, torch.float64, longest)
    expected, result = literally(*tensors), selective_scan.selective_scan(*tensors)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)
    for mine, reference in zip(gradients(result, tensors), gradients(expected, tensors), strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-11, atol=1e-11)


def test_single_precision() -> None:
    tensors = inputs(4, 60, 64, 16, torch.float32)
    doubles = tuple(part.detach().double().requires_grad_() for part in tensors)
    expected, result = literally(*doubles), selective_scan.selective_scan(*tensors)
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)
    for mine, reference in zip(gradients(result, tensors), gradients(expected, doubles), strict=True):
        torch.testing.assert_close(mine.double(), reference, rtol=1e-4, atol=1e-4)


def test_under_vmap_each_member_has_the_bits_that_it_has_alone() -> None:
    rate, dt, x, b, c = inputs(4, 20, 32, 16, torch.float32)
    rates = torch.stack([rate.detach(), 2 * rate.detach()]).requires_grad_()
    tensors = (rates, x, b, c)
    # The second dimension of dt is that of the members, who share x, b and c.
    pairs = torch.stack([dt.detach(), dt.detach() / 2], 1)
    result = vmap(selective_scan.selective_scan, (0, 1, None, None, None))(rates, pairs, x, b, c)
    single = torch.stack([selective_scan.selective_scan(rates[k], pairs[:, k], x, b, c) for k in range(2)])
    assert torch.equal(result, single)
    assert all(map(torch.equal, gradients(result, tensors), gradients(single, tensors)))


def test_any_number_of_threads_gives_the_same_bits() -> None:
    tensors, before, result = inputs(4, 30, 32, 16, torch.float32), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            y = selective_scan.selective_scan(*tensors)
            result.append([y, *gradients(y, tensors)])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for each in result[1:] for a, b in zip(result[0], each, strict=True))


def test_what_is_not_a_number_stays_so() -> None:
    rate, dt, *others = inputs(1, 6, 32, 16, torch.float32)
    broken = dt.detach().clone()
    broken[0, 3, 5] = float("nan")
    y = selective_scan.selective_scan(rate, broken, *others)
    assert y[0, 3:, 5].isnan().all()
    assert y[0, :3].isfinite().all() and y[..., :5].isfinite().all()


def test_no_rows_give_no_rows() -> None:
    tensors = inputs(0, 5, 32, 16, torch.float32)
    result = selective_scan.selective_scan(*tensors)
    assert result.shape == (0, 5, 32)
    assert all(torch.count_nonzero(part) == 0 for part in torch.autograd.grad(result.sum(), tensors))


@pytest.mark.parametrize("build", [ClassicalMamba, ClassicalHydra])
def test_models_compute_the_same_with_it_and_by_torch(build: type, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = build((5, 23), 2, 0.0).double()
    x = torch.randn(3, 5, 23, dtype=torch.float64)

    def loss_and_gradients() -> tuple[torch.Tensor, Tensors]:
        loss = model(x).square().sum()
        return loss.detach(), torch.autograd.grad(loss, tuple(model.parameters()))

    loss, result = loss_and_gradients()
    monkeypatch.setattr(selective_scan, "selective_scan", scanned)
    expected_loss, expected = loss_and_gradients()
    torch.testing.assert_close(loss, expected_loss, rtol=1e-11, atol=0)
    for mine, reference in zip(result, expected, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-9, atol=1e-10)
