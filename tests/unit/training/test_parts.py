"""L-BFGS for separable problems: each part finds its own minimum, as it would alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import nn

from ketscale.parallel.single import Single
from ketscale.training import parts
from tests.toys import run_at

Losses = Callable[[torch.Tensor], torch.Tensor]
STARTS = torch.tensor([[-1.2, 1.0], [3.0, -2.0], [0.5, 0.5], [1.0, 1.0], [-2.0, 4.0]], dtype=torch.float64)


def rosenbrock(x: torch.Tensor) -> torch.Tensor:
    return (1 - x[:, 0]).square() + 100 * (x[:, 1] - x[:, 0].square()).square()


def walled(x: torch.Tensor) -> torch.Tensor:
    """Infinite on one side of its minimum at 0.1."""
    return (x - 0.1).square().sum(1) - x[:, 0].add(0.5).log() * 1e-3


def flat_far_away(x: torch.Tensor) -> torch.Tensor:
    """A clamped number: a step that goes too far finds no slope."""
    return 1e-3 * (x.clamp(-4, 4) - 0.3).square().sum(1)


def minimised(
    losses: Losses, starts: torch.Tensor, iterations: int = 200
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The final points, and the losses after each iteration."""
    parameter, calls = nn.Parameter(starts.clone()), []

    def evaluate() -> torch.Tensor:
        parameter.grad = None
        result = losses(parameter)
        result.sum().backward()
        return result.detach()

    def iterated(best: torch.Tensor) -> bool:
        torch.testing.assert_close(losses(parameter.detach()), best, rtol=0, atol=0)
        calls.append(best)
        return True

    parts.minimise([parameter], evaluate, iterated, iterations, Single(run_at("cpu-n1r1t1")))
    return parameter.detach(), calls


@pytest.mark.parametrize(
    ("losses", "starts", "minimum"),
    [
        (rosenbrock, STARTS, torch.ones(5, 2)),
        (walled, STARTS.abs(), None),
        (flat_far_away, STARTS, torch.full((5, 2), 0.3)),
    ],
)
def test_each_part_finds_its_minimum_and_never_goes_up(
    losses: Losses, starts: torch.Tensor, minimum: torch.Tensor | None
) -> None:
    result, points_of = minimised(losses, starts)
    if minimum is not None:
        torch.testing.assert_close(result, minimum.double(), rtol=0, atol=1e-6)
    gradient = result.clone().requires_grad_()
    losses(gradient).sum().backward()
    assert gradient.grad.abs().max() < 1e-6
    assert all((later <= earlier).all() for earlier, later in pairwise(points_of))
    assert len(points_of) < 200


def test_a_part_goes_where_it_would_go_alone() -> None:
    assert len(minimised(rosenbrock, STARTS, iterations=3)[1]) == 3
    joint, _ = minimised(rosenbrock, STARTS)
    for number in (1, 4):
        single, _ = minimised(rosenbrock, STARTS[number : number + 1])
        assert torch.equal(single[0], joint[number])
