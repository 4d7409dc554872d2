"""A recorder's records give what the function gives, at other values too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ketscale.errors import UserError
from ketscale.interop.recorder import Looked, Recorder

OUTSIDE = torch.tensor([0.2, 0.4, 0.6], dtype=torch.float64)


def recorded(function: Callable[..., Any], *arguments: torch.Tensor) -> Any:
    recorder = Recorder(arguments, [OUTSIDE])
    with recorder:
        results = function(*arguments)
    return recorder.record(results)


def written_into(x: Any) -> Any:
    constant, zeros = torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3, dtype=x.dtype)
    zeros[1:] = x[1:]
    zeros[0].add_(x[2])
    constant[1] = x[0]
    return [zeros, constant * zeros]


def differentiated(x: Any) -> Any:
    leaf = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad((leaf.sin() * leaf.exp()).sum(), leaf)
    # Its gradient has parts that nobody asks for, which are None.
    normed = torch.nn.functional.layer_norm(leaf, (3,))
    (normed_slope,) = torch.autograd.grad((normed * leaf.exp()).sum(), leaf)
    return [
        slope,
        normed_slope,
        torch.func.grad(lambda y: y.square().sum())(x),
        torch.func.vmap(torch.cos)(x),
    ]


def reordered(x: Any) -> Any:
    largest, places = x.sort(descending=True)
    first, *others = x.split([1, 2])
    return [largest.index_select(0, places), torch.cat([*others, first]), torch.stack(x.unbind()[::-1])]


def from_outside(x: Any) -> Any:
    return [x * OUTSIDE, OUTSIDE[1:].cumsum(0), (x @ OUTSIDE).exp().reshape(1)]


@pytest.mark.parametrize("function", [written_into, differentiated, reordered, from_outside])
def test_a_record_gives_what_the_function_gives(function: Callable[..., Any]) -> None:
    x = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64)
    record = recorded(function, x.clone())
    for place in range(3):
        mine, theirs = (x.roll(place).requires_grad_() for _ in range(2))
        results, expected = record(mine, OUTSIDE), function(theirs)
        torch.testing.assert_close(results, expected, rtol=0, atol=0)
        if function is not differentiated:  # whose tensor is detached
            slopes = [
                torch.autograd.grad(sum(map(torch.sum, rows)), leaf)
                for rows, leaf in ((results, mine), (expected, theirs))
            ]
            torch.testing.assert_close(*slopes, rtol=0, atol=0)


def view_of_zeros(x: Any) -> Any:
    zeros = torch.zeros(2, dtype=x.dtype)
    first = zeros[0]
    zeros[0] = x[0]
    return [x * float(first)]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: [x * float(x[0])],
        lambda x: [x if torch.equal(x, OUTSIDE) else -x],
        lambda x: [x if OUTSIDE.sum() > 0 else -x],
        lambda x: [x * torch.rand(1).item()],
        view_of_zeros,
    ],
)
def test_values_that_change_are_not_looked_at(function: Callable[..., Any]) -> None:
    with pytest.raises(Looked):
        recorded(function, torch.rand(3, dtype=torch.float64))
    with pytest.raises(UserError, match="generator of random numbers"):
        recorded(lambda x: [x * torch.rand(1, generator=torch.Generator())], torch.rand(3))
