"""Kets evolved by the eigenvectors of each segment's Hamiltonian, in a time that does not depend on the angle."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ketscale.autograd_function import applied
from ketscale.engines.derivatives import Rows, one_gradient
from ketscale.engines.dynamics import plain
from ketscale.engines.dynamics.generators import EXACT, Evolution
from ketscale.private_torch import transforms_active


def evolve(
    fixed: torch.Tensor,
    controls: torch.Tensor,
    initial: torch.Tensor,
    evolution: Evolution,
    trajectory: bool = False,
) -> torch.Tensor:
    """See `cpu.evolve`; of kets, computed in fp64. Its rounding adds up by segment, to some 1e-15 for each."""
    hamiltonians = 1j * plain.generators(fixed.double(), controls.double(), evolution)
    (maps,) = applied(Exponential(evolution.tau), hamiltonians)
    states = plain.ends(maps, initial.double(), evolution).to(initial.dtype)
    return states if trajectory else states[:, -1]


class Exponential(Rows):
    """exp(-i t H), with first derivatives of its own, and further ones by torch's operators.

    With the eigenvectors V of energies E it is V exp(-i t E) V^+, and its derivative V (F o (V^+ dH V)) V^+, where F_ab is the
    divided difference of exp(-i t E), which is -i t exp(-i t (E_a + E_b) / 2) sinc(t (E_a - E_b) / 2) (Daleckii and Krein, 1951;
    Higham, Functions of Matrices, 2008, section 3.2).
    """

    def __init__(self, time: float) -> None:
        self.time = time
        self.saved: tuple[torch.Tensor, torch.Tensor] | None = None

    def plainly(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `ByOperators.plainly`."""
        return (plain.exponential(-1j * self.time * tensors[0], EXACT[torch.float64]),)

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `ByOperators.__call__`."""
        energies, vectors = torch.linalg.eigh(tensors[0])
        angles = self.time * energies
        # Too few digits of larger ones are right.
        angles = torch.where(angles.abs() < EXACT[torch.float64].largest, angles, math.nan)
        self.saved = angles, vectors
        return ((vectors * torch.exp(-1j * angles)[..., None, :]) @ vectors.mH,)

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], needs: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        """See `Differentiable.pull`."""
        one_gradient("a propagator", cotangents[0])
        if torch.is_grad_enabled() or transforms_active():
            return super().pull(tensors, cotangents, needs)
        if self.saved is None:
            self(*tensors)
        assert self.saved is not None
        angles, vectors = self.saved
        one, other = angles[..., None] / 2, angles[..., None, :] / 2
        divided = 1j * self.time * torch.polar(torch.sinc((one - other) / math.pi), one + other)
        return (vectors @ (divided * (vectors.mH @ cotangents[0] @ vectors)) @ vectors.mH,)
