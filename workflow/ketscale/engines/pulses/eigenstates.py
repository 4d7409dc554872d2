"""Some of the eigenstates of Hermitian matrices, and their first derivatives by perturbation theory.

torch's own derivative of an eigendecomposition divides by the gaps between all levels. Here only the gaps beside the
levels that are asked for matter, so that pairs of levels far above may be degenerate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ketscale.engines.derivatives import first_derivatives_only
from ketscale.errors import UserError

# The smallest gap beside a level, relative to the largest energy, at which its state still has a derivative.
SEPARATION = 1e-11
# Rows of matrices that one thread diagonalises in less than about a second.
ALONE = 1024


class Eigensystem(NamedTuple):
    """All energies in ascending order, (..., m), and their states as columns, (..., m, m), without gradients."""

    energies: torch.Tensor
    states: torch.Tensor


def eigensystem(matrix: torch.Tensor) -> Eigensystem:
    """Diagonalise Hermitian matrices (..., m, m).

    Up to `ALONE` rows by one thread, so that the result does not depend on how many there are: a pulse turns the rounding
    of energies into phases.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if matrix.shape[-1] <= ALONE else threads)
    try:
        return Eigensystem(*torch.linalg.eigh(matrix.detach()))
    finally:
        torch.set_num_threads(threads)


def eigenstates(
    matrix: torch.Tensor, found: Eigensystem, which: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The energies (..., k) and states (..., m, k) of the levels `which` (int64, k), differentiable in the matrix once.

    The phase of a state is that of `found`: the derivative of a state has no component along the state itself.

    Raises:
        UserError: a derivative is needed, and one of these levels is degenerate with another level.
    """
    if matrix.requires_grad:
        _check_separate(found.energies, which)
    energies, states = _Eigenstates.apply(matrix, *found, which)
    return energies, states


def _check_separate(energies: torch.Tensor, which: torch.Tensor) -> None:
    gaps = energies.diff(dim=-1)
    edge = torch.full_like(gaps[..., :1], torch.inf)
    beside = torch.minimum(torch.cat([edge, gaps], -1), torch.cat([gaps, edge], -1))[..., which]
    if (beside <= SEPARATION * energies.abs().amax(-1, keepdim=True)).any():
        raise UserError(
            "the states of a degenerate level have no derivatives: change the device's parameters, such as its spread, "
            "or do not train them"
        )


class _Eigenstates(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, matrix: torch.Tensor, energies: torch.Tensor, states: torch.Tensor, which: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(energies, states, which)
        return energies[..., which], states[..., which]

    @staticmethod
    def backward(
        ctx: Any, to_energies: torch.Tensor, to_states: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        first_derivatives_only("a device's state")
        # First-order perturbation theory: dE_j = <j|dH|j>, d|j> = sum_{i != j} |i> <i|dH|j> / (E_j - E_i).
        energies, states, which = ctx.saved_tensors
        gaps = energies[..., None, which] - energies[..., :, None]
        itself = torch.arange(gaps.shape[-2], device=gaps.device)[:, None] == which
        mixing = (states.mH @ to_states) / gaps.masked_fill(itself, torch.inf)
        mixing = mixing + itself * to_energies[..., None, :]
        gradient = states @ mixing @ states[..., which].mH
        return (gradient + gradient.mH) / 2, None, None, None
