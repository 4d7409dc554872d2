"""Linear recurrences over time without a loop over time: h[t] = a[t] h[t - 1] + u[t].

A recurrence is associative in (a, u), so pieces of the series are scanned side by side, each from zero, and
the state that enters each piece is added afterwards (Blelloch, CMU-CS-90-190). With pieces of about the square
root of the series' length, this takes two short loops over long vectors.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ketscale.engines.derivatives import first_derivatives_only
from ketscale.engines.members import one_by_one


def linear_scan(a: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Solve h[t] = a[t] h[t - 1] + u[t] from h[-1] = 0 for h; once differentiable.

    a, u and h: (batch, steps, ...).
    """
    result: torch.Tensor = _Scan.apply(a, u)
    return result


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(a: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return _scanned(a, u)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first_derivatives_only("a linear scan")
        # The adjoint recurrence runs backwards: g[t] = cotangent[t] + a[t + 1] g[t + 1].
        a, h = ctx.saved_tensors
        following = torch.zeros_like(a)
        following[:, :-1] = a[:, 1:]
        to_u = _scanned(following.flip(1), cotangent.flip(1)).flip(1)
        to_a = torch.zeros_like(a)
        torch.mul(to_u[:, 1:], h[:, :-1], out=to_a[:, 1:])
        return to_a, to_u

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: torch.Tensor) -> tuple[torch.Tensor, int]:
        return one_by_one(_Scan, info, in_dims, *inputs)


def _scanned(a: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    batch, steps, *rest = u.shape
    length = math.isqrt(steps - 1) + 1
    pieces = -(-steps // length)
    padding = pieces * length - steps

    def cut(x: torch.Tensor) -> torch.Tensor:
        padded = torch.cat([x, x.new_zeros(batch, padding, *rest)], dim=1)
        return padded.view(batch, pieces, length, *rest)

    h, carried = cut(u), cut(a)
    factor = carried.clone()
    for i in range(1, length):
        h[:, :, i].addcmul_(factor[:, :, i], h[:, :, i - 1])
        carried[:, :, i] *= carried[:, :, i - 1]
    for piece in range(1, pieces):
        h[:, piece].addcmul_(carried[:, piece], h[:, piece - 1, -1:])
    return h.flatten(1, 2)[:, :steps]
