"""Kets evolved by the eigenvectors of each segment's Hamiltonian, in a time that does not depend on the angle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from ketscale.autograd_function import applied
from ketscale.engines.derivatives import Rows, is_recorded, one_gradient
from ketscale.engines.dynamics import plain
from ketscale.engines.dynamics.generators import EXACT, Evolution, Generators
from ketscale.private_torch import transforms_active


def evolve(
    fixed: torch.Tensor,
    controls: torch.Tensor,
    initial: torch.Tensor,
    evolution: Evolution,
    trajectory: bool = False,
) -> torch.Tensor:
    """See `cpu.evolve`; of kets, computed in fp64. Its rounding adds up by segment, to some 1e-15 for each."""
    by = ByEigenvectors(evolution, trajectory, is_recorded(fixed, controls, initial))
    return applied(by, fixed, controls, initial)[0]


class ByEigenvectors(Rows):
    """The final coordinates, or those of the trajectory, with first derivatives of their own, and further ones by torch's operators.

    A segment's map is U = V exp(-i t E) V^+, and its derivative V (F o (V^+ dH V)) V^+, where F_ab is the divided difference of
    exp(-i t E), which is -i t exp(-i t (E_a + E_b) / 2) sinc(t (E_a - E_b) / 2) (Daleckii and Krein, 1951; Higham, Functions
    of Matrices, 2008, section 3.2).

    keeps: whether a call keeps what its gradient needs.
    """

    def __init__(self, evolution: Evolution, trajectory: bool, keeps: bool) -> None:
        self.evolution, self.trajectory, self.keeps = evolution, trajectory, keeps
        self.kept: Any = None

    def plainly(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `ByOperators.plainly`."""
        fixed, controls, initial = tensors
        return (plain.evolve(fixed, controls, initial, self.evolution, self.trajectory),)

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `ByOperators.__call__`."""
        fixed, controls, initial = tensors
        (drift, driven), levels = _terms(self.evolution.generators), initial.shape[-1] // 2
        # In real arithmetic, since coefficients are real.
        hamiltonians = controls.double() @ driven + (fixed.double() @ drift)[:, None]
        energies, vectors = torch.linalg.eigh(
            torch.view_as_complex(hamiltonians.unflatten(-1, (levels, levels, 2)))
        )
        bras, angles = vectors.mH, self.evolution.tau * energies
        # Too few digits of larger ones are right.
        angles = torch.where(angles.abs() < EXACT[torch.float64].largest, angles, math.nan)
        maps = (vectors * torch.exp(-1j * angles)[..., None, :]) @ bras
        states = [plain.columns_of(initial, self.evolution).to(torch.complex128)]
        for segment in maps.unbind(1):
            states.append(segment @ states[-1])
        self.kept = (angles, vectors, bras, maps, torch.stack(states[:-1], 1)) if self.keeps else None
        found = torch.stack(states, 1) if self.trajectory else states[-1]
        return (plain.coordinates_of(found, initial.ndim).to(initial.dtype),)

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], needed: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        """See `Differentiable.pull`."""
        one_gradient("a propagator", cotangents[0])
        if torch.is_grad_enabled() or transforms_active():
            return super().pull(tensors, cotangents, needed)
        if self.kept is None:
            self.keeps = True
            self(*tensors)
        (angles, vectors, bras, maps, states), self.kept = self.kept, None
        given = cotangents[0].flatten(0, 1) if self.trajectory else cotangents[0]
        given = plain.columns_of(given, self.evolution).to(torch.complex128).mH
        # Bras of cotangents, of which a trajectory has one at each end, and those after each segment.
        ends = given.unflatten(0, cotangents[0].shape[:2]).unbind(1) if self.trajectory else [given]
        bra, after = ends[-1], torch.empty_like(states.mT)
        for number in reversed(range(states.shape[1])):
            after[:, number] = bra
            bra = bra @ maps[:, number]
            if self.trajectory:
                bra = bra + ends[number]
        one, other = angles[..., None] / 2, angles[..., None, :] / 2
        divided = torch.polar(torch.sinc((one - other) / math.pi), -(one + other))
        inner = (bras @ states) @ (after @ vectors) * divided
        # The gradient with respect to the coefficient of a Hermitian matrix A is Re tr(M A): the sum of products of the real
        # and the imaginary parts of M and A.
        by_matrix = torch.view_as_real(vectors @ inner @ (-1j * self.evolution.tau * bras)).flatten(-3)
        drift, driven = _terms(self.evolution.generators)
        by_initial = plain.coordinates_of(bra.mH.resolve_conj(), tensors[2].ndim)
        found = by_matrix.sum(1) @ drift.mT, by_matrix @ driven.mT, by_initial
        return [each.to(tensor.dtype) for each, tensor in zip(found, tensors, strict=True)]


@lru_cache(maxsize=64)
def _terms(generators: Generators) -> list[torch.Tensor]:
    """The Hermitian matrices of the fixed coefficients (F, 2 d**2) and of the controls (K, 2 d**2), as real numbers.

    The matrices of `generators` are -i times these.
    """
    with torch.inference_mode(False):
        matrices = generators.dense(torch.empty(0, dtype=torch.float64, device="cpu"))
        return [torch.view_as_real(1j * each).flatten(1) for each in matrices]
