"""L-BFGS for separable problems: each part of the parameters has a memory and a line search of its own.

Two-loop recursion (Nocedal and Wright, Numerical Optimization, algorithm 7.4). The parts go in step but do not wait for
each other: in an evaluation each tries its own point, and either moves there or shortens its step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from ketscale.parallel.world import World

MEMORY = 10
# The share of the decrease that the slope predicts which a step must bring.
SUFFICIENT = 1e-4
# No number changes by more in one step: far away a loss may be flat, as that of a clamped control is.
LONGEST = 1.0


def minimise(
    parameters: Sequence[nn.Parameter],
    evaluate: Callable[[], torch.Tensor],
    iterated: Callable[[torch.Tensor], bool],
    iterations: int,
    world: World,
) -> None:
    """Minimise each part's loss, starting from the parameters' values; at the end they have the best that were found.

    Rank 0 searches and sends the others the points to evaluate.

    Args:
        parameters: real, the same on every rank, on one device; each is as many equal parts as there are losses.
        evaluate: returns the losses of all parts (parts,) at the parameters' values, and leaves the gradient of each
            loss in its part; collective.
        iterated: called after each evaluation with the parameters at the best points so far and their losses; False, on
            every rank, ends the search.
        iterations: the largest number of evaluations after the first; there are fewer if no part finds a better point.
    """
    losses = evaluate()
    count = len(losses)
    rounding = torch.finfo(losses.dtype).eps / 2
    search = Search(_rows(parameters, count), losses.double().cpu(), _gradients(parameters, count), rounding)
    for _ in range(iterations):
        place(parameters, world.of_rank_0(search.trial))
        losses = evaluate()
        search.take(losses.double().cpu(), _gradients(parameters, count))
        numbers = world.of_rank_0(
            torch.cat([search.x, search.f[:, None], search.finished[:, None].double()], 1)
        )
        place(parameters, numbers[:, :-2])
        if not iterated(numbers[:, -2]) or bool(numbers[:, -1].all()):
            return


def place(parameters: Sequence[nn.Parameter], rows: torch.Tensor) -> None:
    """Give the parameters the values of their parts (parts, n)."""
    with torch.no_grad():
        widths = [parameter.numel() // len(rows) for parameter in parameters]
        for parameter, part in zip(parameters, rows.split(widths, 1), strict=True):
            parameter.copy_(part.reshape(parameter.shape))


def _rows(tensors: Sequence[torch.Tensor], count: int) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(count, -1).double().cpu() for tensor in tensors], 1)


def _gradients(parameters: Sequence[nn.Parameter], count: int) -> torch.Tensor:
    return _rows([torch.zeros_like(p) if p.grad is None else p.grad for p in parameters], count)


class Search:
    """The searches of all parts: the point (parts, n) where each is, and the one that it tries next.

    x, f, g: points, losses (parts,) and gradients, fp64, all known to be finite. rounding: of the losses, relative to
        them or to 1; a part whose next step is predicted to bring less is finished.
    """

    def __init__(self, x: torch.Tensor, f: torch.Tensor, g: torch.Tensor, rounding: float) -> None:
        self.x, self.f, self.g, self._rounding = x, f, g, rounding
        self._steps = x.new_zeros(MEMORY, *x.shape)
        self._changes = x.new_zeros(MEMORY, *x.shape)
        self._curvatures = x.new_zeros(MEMORY, len(x))  # 1 / <step, change>; 0 where there is none
        self._scale = 1 / g.norm(dim=1).clamp(min=1)
        self._direction, self._length = torch.zeros_like(x), torch.ones_like(f)
        self._aim(torch.ones_like(f, dtype=torch.bool))

    @property
    def trial(self) -> torch.Tensor:
        """The points to evaluate next; a finished part stays where it is."""
        return torch.where(self.finished[:, None], self.x, self.x + self._length[:, None] * self._direction)

    def take(self, f: torch.Tensor, g: torch.Tensor) -> None:
        """Go on with the losses and gradients at the trial points."""
        trial = self.trial
        bound = self.f + SUFFICIENT * self._length * self._slope
        accepted = (f <= bound) & g.isfinite().all(1) & ~self.finished
        self._remember(trial - self.x, g - self.g, accepted)
        # The minimum of the parabola through what is known, within bounds; a half where the loss is not finite.
        bend = f - self.f - self._length * self._slope
        shorter = (-self._slope * self._length.square() / (2 * bend)).nan_to_num(nan=0.0)
        length = torch.maximum(0.1 * self._length, torch.minimum(0.5 * self._length, shorter))
        self._length = torch.where(accepted, self._length, length)
        self.x = torch.where(accepted[:, None], trial, self.x)
        self.g = torch.where(accepted[:, None], g, self.g)
        self.f = torch.where(accepted, f, self.f)
        self._aim(accepted)

    @property
    def finished(self) -> torch.Tensor:
        """The parts whose next step would change their loss by rounding only, bool (parts,)."""
        return -self._length * self._slope <= self._rounding * self.f.abs().clamp(min=1)

    def _remember(self, step: torch.Tensor, change: torch.Tensor, accepted: torch.Tensor) -> None:
        product, square = _dot(step, change), _dot(change, change)
        usable = accepted & (product > 1e-12 * square)
        for memory, new in ((self._steps, step), (self._changes, change)):
            memory[:, usable] = torch.cat([memory[1:, usable], new[None, usable]])
        self._curvatures[:, usable] = torch.cat([self._curvatures[1:, usable], 1 / product[None, usable]])
        self._scale = torch.where(usable, product / square, self._scale)

    def _aim(self, accepted: torch.Tensor) -> None:
        """New directions and whole steps for the parts that moved."""
        q, shares = self.g, []
        pairs = list(zip(self._steps, self._changes, self._curvatures, strict=True))
        for step, change, curvature in reversed(pairs):
            shares.append(curvature * _dot(step, q))
            q = q - shares[-1][:, None] * change
        q = self._scale[:, None] * q
        for (step, change, curvature), share in zip(pairs, reversed(shares), strict=True):
            q = q + (share - curvature * _dot(change, q))[:, None] * step
        q = q * (LONGEST / q.abs().amax(1)).clamp(max=1)[:, None]
        self._direction = torch.where(accepted[:, None], -q, self._direction)
        self._length = torch.where(accepted, 1.0, self._length)
        self._slope = _dot(self._direction, self.g)


def _dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a * b).sum(1)
