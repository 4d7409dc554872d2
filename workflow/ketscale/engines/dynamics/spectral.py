"""Closed evolution by the eigenvectors of each segment's Hamiltonian, whose time does not depend on the angle."""

from __future__ import annotations

import cmath
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from ketscale.engines.derivatives import ByOperators, one_gradient
from ketscale.engines.dynamics.generators import EXACT, Evolution, Generators
from ketscale.engines.dynamics.plain import KEPT_BYTES, LEAST_DENSE, SQUARED, bound, largest_size, times
from ketscale.private_torch import transforms_active

# Few levels: from so many radians on, as one and 64 pulses of 2 to 7 levels took less time then (one core of a Xeon).
LONG = 200


def fastest(
    fixed: torch.Tensor,
    controls: torch.Tensor,
    evolution: Evolution,
    tasks: int,
    states: int,
    keeps: bool = True,
) -> str:
    """Which way, entries, eigenvectors or products, takes least time for a closed system's evolution and gradient, for all tasks alike.

    states: of each task. keeps: whether what a gradient needs is kept. Eigenvectors that would take more memory than `plain`
    keeps are not taken.
    """
    segments, levels = controls.shape[-2], evolution.generators.size // 2
    norm = bound(fixed, controls, evolution)
    # Complex matrices in fp64, and, for a gradient, states and their cotangents.
    memory = segments * tasks * levels * (128 * levels + 96 * states * keeps)
    allowed = memory < KEPT_BYTES and math.isfinite(norm)
    if levels < LEAST_DENSE:
        return "eigenvectors" if norm > LONG and allowed else "products" if norm > SQUARED else "entries"
    by_entries, by_products = times(fixed, controls, evolution, tasks, states)
    # Beside eigenvectors, which one core of a Xeon took for 8 to 256 levels, `times` is corrected to that core, for sparse chains.
    found = {
        "entries": 0.6 * by_entries,
        "products": (1 + 2 * LEAST_DENSE / levels) * by_products,
    }
    if allowed:
        found["eigenvectors"] = 60_000 + segments * (8_000 + tasks * (200 * levels**2 + 0.8 * levels**3))
    return min(found, key=lambda way: found[way])


class FinalKets(ByOperators):
    """The final kets of a closed system, with first derivatives of their own, and further ones by torch's operators.

    It is applied to controls ([tasks,] segments, K), kets as columns ([tasks,] d, k) and the drift's parameters ([tasks,] F),
    and gives ([tasks,] d, k). general: the same by torch's operators. keeps: whether a call keeps what `gradients` needs.
    finite: whether the last result is.
    """

    def __init__(self, general: Callable[..., torch.Tensor], keeps: bool) -> None:
        self._general, self.keeps = general, keeps
        self.kept: Any = None
        self.finite = True

    def plainly(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `ByOperators.plainly`."""
        return (self._general(*tensors),)

    @abstractmethod
    def gradients(
        self, kept: Any, cotangent: torch.Tensor, needed: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        """The gradients by the three tensors, None if not needed, from what a call has kept; for every task."""

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
        kept, self.kept = self.kept, None
        return [
            each
            if each is None or (each.shape, each.dtype) == (tensor.shape, tensor.dtype)
            else each.to(tensor.dtype).sum_to_size(tensor.shape)
            for each, tensor in zip(self.gradients(kept, cotangents[0], needed), tensors, strict=True)
        ]


class ByEigenvectors(FinalKets):
    """The final kets by eigenvectors, computed in fp64; their rounding adds up by segment, to some 1e-15 for each.

    A segment's map is U = V exp(-i t E) V^+, and its derivative V (F o (V^+ dH V)) V^+, where F_ab is the divided difference of
    exp(-i t E), which is -i t exp(-i t (E_a + E_b) / 2) sinc(t (E_a - E_b) / 2) (Daleckii and Krein, 1951; Higham, Functions
    of Matrices, 2008, section 3.2).
    """

    def __init__(self, evolution: Evolution, general: Callable[..., torch.Tensor], keeps: bool) -> None:
        super().__init__(general, keeps)
        self._tau, self._terms = evolution.tau, _terms(evolution.generators)

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.__call__`."""
        controls, initial, fixed = tensors
        if controls.dtype != torch.float64:
            controls, initial, fixed = controls.double(), initial.to(torch.complex128), fixed.double()
        drift, driven = self._terms
        d = initial.shape[-2]
        # In real arithmetic, since coefficients are real.
        found = controls @ driven + (fixed @ drift).unsqueeze(-2)
        energies, vectors = torch.linalg.eigh(torch.view_as_complex(found.unflatten(-1, (d, d, 2))))
        bras = vectors.mH
        maps = (vectors * torch.exp(-1j * self._tau * energies).unsqueeze(-2)) @ bras
        batch, (segments, d, k) = maps.shape[:-3], (maps.shape[-3], *initial.shape[-2:])
        state, states = initial, None
        if self.keeps:
            states = maps.new_empty(*max(batch, initial.shape[:-2]), segments, d, k)
        for number, segment in enumerate(maps.unbind(-3)):
            if states is not None:
                states[..., number, :, :] = state
            state = segment @ state
        final = state.to(tensors[1].dtype)
        angle = self._tau * largest_size(energies)
        self.finite = cmath.isfinite(final.sum().item()) and angle < EXACT[torch.float64].largest
        self.kept = None if states is None else (energies, vectors, bras, maps, states)
        return (final,)

    def gradients(
        self, kept: Any, cotangent: torch.Tensor, needed: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        """See `FinalKets.gradients`."""
        energies, vectors, bras, maps, states = kept
        # Bras of cotangents, after each segment.
        bra, after = cotangent.to(torch.complex128).mH, torch.empty_like(states.mT)
        for number in reversed(range(states.shape[-3])):
            after[..., number, :, :] = bra
            bra = bra @ maps[..., number, :, :]
        angles = energies * (self._tau / 2)
        one, other = angles.unsqueeze(-1), angles.unsqueeze(-2)
        divided = torch.polar(torch.sinc((one - other) / math.pi), -(one + other))
        inner = (bras @ states) @ (after @ vectors) * divided
        # The gradient with respect to the coefficient of a Hermitian matrix A is Re tr(M A): the sum of products of the real
        # and the imaginary parts of M and A.
        by_matrix = torch.view_as_real(vectors @ inner @ (-1j * self._tau * bras)).flatten(-3)
        drift, driven = self._terms
        return (
            by_matrix @ driven.mT if needed[0] else None,
            bra.mH.resolve_conj() if needed[1] else None,
            by_matrix.sum(-2) @ drift.mT if needed[2] else None,
        )


@lru_cache(maxsize=64)
def _terms(generators: Generators) -> list[torch.Tensor]:
    """The Hermitian matrices of the fixed coefficients (F, 2 d**2) and of the controls (K, 2 d**2), as real numbers.

    The matrices of `generators` are -i times these.
    """
    with torch.inference_mode(False):
        matrices = generators.dense(torch.empty(0, dtype=torch.float64, device="cpu"))
        return [torch.view_as_real(1j * each).flatten(1) for each in matrices]
