"""Minimises a loss from many starts at once: each start goes its own way, and all are evaluated together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch

from ketscale.shapes import Float

# Losses (n,) at parameters (n, size) of the starts with these numbers (n,).
Losses = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
# Called with the losses at the parameters that each start has reached, after each evaluation; False ends the search.
Reached = Callable[[torch.Tensor], bool]

# Steps (starts, size), changes of the gradient, and their weights (starts,), 0 where a start took no step.
Pairs = deque[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]

# Evaluations whose steps L-BFGS remembers.
MEMORY = 12
# The line search's least part of the linear decrease, and largest part of the slope that is left.
DECREASE, SLOPE = 1e-4, 0.9
# A start has ended where the gradient of its loss, which is of order 1, is no longer.
FLAT = 1e-9
# Evaluations of a line search, after which a start begins again along its gradient, or has ended if it was there.
TRIES = 20


def lbfgs(
    losses: Losses, start: Float[torch.Tensor, "starts size"], evaluations: int, reached: Reached
) -> Float[torch.Tensor, "starts size"]:
    """The parameters that L-BFGS reaches from each start (Nocedal and Wright, Numerical Optimization, algorithm 7.5).

    Steps meet the weak conditions of Wolfe, found by bisection (Lewis and Overton, Math. Program. 141, 135, 2013). Each
    evaluation is of all starts that have not ended, one at its next step, another in the middle of its line search. A loss
    that is not a number makes a step too long.
    """
    point, every = start.clone(), torch.arange(len(start))
    value, gradient = _evaluated(losses, point, every)
    pairs: Pairs = deque(maxlen=MEMORY)
    scale = torch.ones_like(value)
    direction, length = _downhill(gradient)
    low, high = torch.zeros_like(value), torch.full_like(value, torch.inf)
    tries, steepest, finished = torch.zeros_like(value), torch.ones_like(value).bool(), ~value.isfinite()
    for _ in range(evaluations):
        if not reached(value) or bool(finished.all()):
            break
        trial = point + length[:, None] * direction
        trial_value, trial_gradient = value.clone(), gradient.clone()
        going = every[~finished]
        trial_value[going], trial_gradient[going] = _evaluated(losses, trial[going], going)
        slope = _dot(gradient, direction)
        lower = trial_value <= value + DECREASE * length * slope
        flat = _dot(trial_gradient, direction) >= SLOPE * slope
        tries += 1
        accepted = lower & (flat | (tries > TRIES)) & ~finished
        # The next trial of the others.
        high, low = torch.where(lower, high, length), torch.where(lower, length, low)
        length = torch.where(high.isfinite(), (low + high) / 2, 2 * length)

        step, change = trial - point, trial_gradient - gradient
        curvature = _dot(step, change)
        learnt = accepted & (curvature > 0)
        step, change = (torch.where(learnt[:, None], each, 0) for each in (step, change))
        pairs.append((step, change, torch.where(learnt, 1 / curvature, 0)))
        scale = torch.where(learnt, curvature / change.square().sum(-1), scale)
        point, gradient = (
            torch.where(accepted[:, None], new, old)
            for new, old in ((trial, point), (trial_gradient, gradient))
        )
        value = torch.where(accepted, trial_value, value)

        stuck = ~accepted & (tries > TRIES)
        finished |= (stuck & steepest) | (gradient.norm(dim=-1) <= FLAT)
        for _, _, weight in pairs:
            weight[stuck] = 0
        steepest = (steepest | stuck) & ~accepted
        renewed = accepted | stuck
        first, first_length = _downhill(gradient)
        newton = -_inverse_hessian(pairs, scale, gradient)
        by_memory = (accepted & (_dot(newton, gradient) < 0))[:, None]
        direction = torch.where(renewed[:, None], torch.where(by_memory, newton, first), direction)
        length = torch.where(renewed, torch.where(by_memory[:, 0], 1, first_length), length)
        low, high = torch.where(renewed, 0, low), torch.where(renewed, torch.inf, high)
        tries = torch.where(renewed, 0, tries)
    else:
        reached(value)
    return point


def _evaluated(
    losses: Losses, point: torch.Tensor, numbers: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    point = point.clone().requires_grad_()
    value = losses(point, numbers)
    (gradient,) = torch.autograd.grad(value.sum(), point)
    return value.detach(), gradient


def _downhill(gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Along the gradient, and a first step that is no longer than 1."""
    return -gradient, 1 / gradient.norm(dim=-1).clamp(min=1)


def _inverse_hessian(pairs: Pairs, scale: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """The two loops of L-BFGS; a pair of weight 0 changes nothing."""
    parts = []
    for step, change, weight in reversed(pairs):
        part = weight * _dot(step, vector)
        vector = vector - part[:, None] * change
        parts.append(part)
    vector = vector * scale[:, None]
    for (step, change, weight), part in zip(pairs, reversed(parts), strict=True):
        vector = vector + (part - weight * _dot(change, vector))[:, None] * step
    return vector


def _dot(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one * other).sum(-1)
