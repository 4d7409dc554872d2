"""Some of the eigenstates of Hermitian matrices, and their derivatives, of any order, by perturbation theory.

torch's own derivative of an eigendecomposition divides by the gaps between all levels. Here only the gaps beside the
levels that are asked for matter, so that pairs of levels far above may be degenerate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ketscale.autograd_function import applied
from ketscale.engines.derivatives import ByOperators
from ketscale.errors import UserError
from ketscale.private_torch import is_mapped, transforms_active

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
    """The energies (..., k) and states (..., m, k) of the levels `which` (int64, k), differentiable in the matrix.

    The phase of a state is that of `found`: the derivative of a state has no component along the state itself.

    Raises:
        UserError: a derivative is needed, and one of these levels is degenerate with another level.
    """
    if matrix.requires_grad:
        _check_separate(found.energies, which)
    energies, states = applied(_Eigenstates(), matrix, *found, which)
    return energies, states


def _check_separate(energies: torch.Tensor, which: torch.Tensor) -> None:
    gaps = energies.diff(dim=-1)
    edge = torch.full_like(gaps[..., :1], torch.inf)
    beside = torch.minimum(torch.cat([edge, gaps], -1), torch.cat([gaps, edge], -1))[..., which]
    alike = beside <= SEPARATION * energies.abs().amax(-1, keepdim=True)
    if not is_mapped(alike) and alike.any():
        raise UserError(
            "the states of a degenerate level have no derivatives: change the device's parameters, such as its spread, "
            "or do not train them"
        )


class _Eigenstates(ByOperators):
    """Some energies and states, by a matrix, all of them, and which."""

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        _, energies, states, which = tensors
        return energies[..., which], states[..., which]

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], _: object
    ) -> Sequence[torch.Tensor | None]:
        """See `Differentiable.pull`: first-order perturbation theory.

        dE_j = <j|dH|j>, d|j> = sum_{i != j} |i> <i|dH|j> / (E_j - E_i).
        """
        (matrix, energies, states, which), (to_energies, to_states) = tensors, cotangents
        if torch.is_grad_enabled() or transforms_active():
            # What is differentiated again does not go through the other levels, whose states have no derivatives where
            # they are degenerate.
            values, vectors = applied(self, *tensors)
            mixed = _mixed(matrix, values, vectors, to_states) + to_energies[..., None, :] * vectors
            gradient = mixed @ vectors.mH
        else:
            gaps = energies[..., None, which] - energies[..., :, None]
            itself = torch.arange(gaps.shape[-2], device=gaps.device)[:, None] == which
            mixing = (states.mH @ to_states) / gaps.masked_fill(itself, torch.inf)
            mixing = mixing + itself * to_energies[..., None, :]
            gradient = states @ mixing @ states[..., which].mH
        return (gradient + gradient.mH) / 2, None, None, None

    def push(
        self, tensors: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor, ...]:
        values, vectors = applied(self, *tensors)
        tangent = tangents[0]
        assert tangent is not None
        moved = (tangent + tangent.mH) / 2 @ vectors
        return (vectors.conj() * moved).sum(-2).real, _mixed(tensors[0], values, vectors, moved)


def _mixed(
    matrix: torch.Tensor, energies: torch.Tensor, states: torch.Tensor, given: torch.Tensor
) -> torch.Tensor:
    """sum_{i != j} |i> <i|v_j> / (E_j - E_i) for the columns v of what is given, (..., m, k); see `eigenstates`.

    It solves (E_j - H) x + mu |j> = v_j with <j|x> = 0.
    """
    hermitian, vectors = ((matrix + matrix.mH) / 2)[..., None, :, :], states.mT[..., None]
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    above = torch.cat([energies[..., None, None] * identity - hermitian, vectors], -1)
    below = torch.cat([vectors.mH, torch.zeros_like(vectors[..., :1, :])], -1)
    right = torch.cat([given.mT[..., None], torch.zeros_like(vectors[..., :1, :])], -2)
    found = torch.linalg.solve(torch.cat([above, below], -2), right)
    return found[..., :-1, 0].mT
