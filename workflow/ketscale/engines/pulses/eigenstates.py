"""Some of the eigenstates of Hermitian matrices, and their derivatives by perturbation theory.

torch's own derivative of an eigendecomposition divides by the gaps between all levels. Here only the gaps next to the
levels that are asked for matter, so that pairs of levels far above may be degenerate.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ketscale.engines.derivatives import is_recorded
from ketscale.errors import UserError
from ketscale.private_torch import is_mapped

# The smallest gap next to a level, relative to the largest energy, at which its state still has a derivative.
SEPARATION = 1e-11
# Rows of matrices that one thread diagonalises in less than about a second.
SERIAL = 1024
# Orders of perturbation theory, to which derivatives are exact.
ORDERS = 7


class Eigensystem(NamedTuple):
    """All energies in ascending order, (..., m), and their states as columns, (..., m, m), without gradients."""

    energies: torch.Tensor
    states: torch.Tensor


def eigensystem(matrix: torch.Tensor) -> Eigensystem:
    """Diagonalise Hermitian matrices (..., m, m).

    Up to `SERIAL` rows by one thread, so that the result does not depend on how many there are: a pulse turns the rounding
    of energies into phases.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if matrix.shape[-1] <= SERIAL else threads)
    try:
        return Eigensystem(*torch.linalg.eigh(matrix.detach()))
    finally:
        torch.set_num_threads(threads)


def eigenstates(
    matrix: torch.Tensor, solution: Eigensystem, which: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The energies (..., k) and states (..., m, k) of the levels `which` (int64, k), differentiable in the matrix.

    Derivatives are exact to the order `ORDERS`. The phase of a state is that of `solution`: its overlap with
    the state there stays positive.

    Raises:
        UserError: a derivative is needed, and one of these levels is degenerate with another level.
    """
    energies, states = solution.energies[..., which], solution.states[..., which]
    if not is_recorded(matrix):
        return energies, states
    if matrix.requires_grad:
        _check_separate(solution.energies, which)
    gaps = energies[..., None, :] - solution.energies[..., :, None]
    itself = torch.arange(gaps.shape[-2], device=gaps.device)[:, None] == which
    inverse, hermitian, v = 1 / gaps.masked_fill(itself, torch.inf), (matrix + matrix.mH) / 2, states
    # (H - E) v = 0 with <j|v> = 1, to one order more each time: v <- v + sum_{i != j} |i> <i|(H - E) v> / (E_j - E_i).
    for _ in range(ORDERS):
        image = hermitian @ v
        residual = image - (states.conj() * image).sum(-2, keepdim=True).real * v
        v = v + solution.states @ (inverse * (solution.states.mH @ residual))
    changed = (states.conj() * (hermitian @ v)).sum(-2).real, v / v.norm(dim=-2, keepdim=True)
    # The values are those of `solution`: products of matrices depend on the number of threads.
    return tuple(old + (new - new.detach()) for old, new in zip((energies, states), changed, strict=True))


def _check_separate(energies: torch.Tensor, which: torch.Tensor) -> None:
    gaps = energies.diff(dim=-1)
    edge = torch.full_like(gaps[..., :1], torch.inf)
    gap = torch.minimum(torch.cat([edge, gaps], -1), torch.cat([gaps, edge], -1))[..., which]
    alike = gap <= SEPARATION * energies.abs().amax(-1, keepdim=True)
    if not is_mapped(alike) and alike.any():
        raise UserError(
            "the states of a degenerate level have no derivatives: change the device's parameters, such as its spread, "
            "or do not train them"
        )
