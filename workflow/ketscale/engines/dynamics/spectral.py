"""Closed evolution in segments of many radians, by the eigenvectors of each segment's Hamiltonian.

It takes as long for any angle. For few levels NumPy's calls are far shorter than torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.derivatives import ByOperators
from ketscale.engines.dynamics.generators import Evolution, Generators
from ketscale.engines.dynamics.settings import MOST_EXACT_STEPS
from ketscale.engines.dynamics.tasks import as_array
from ketscale.private_torch import transforms_active

# From this norm on, in radians, by measurements of one and 64 pulses on two to six levels.
LONG = 200


def is_long(fixed: torch.Tensor, controls: torch.Tensor, evolution: Evolution) -> bool:
    """Whether segments of few levels, by a bound of their norm, may be so long that eigenvectors take less time than steps."""
    largest = (
        float(torch.linalg.vector_norm(each.detach(), math.inf)) if each.numel() else 0.0
        for each in (fixed, controls)
    )
    bound = evolution.tau * sum(
        a * b for a, b in zip(largest, evolution.generators.largest_norms, strict=True)
    )
    return LONG < bound < MOST_EXACT_STEPS * evolution.division.reaches[-1]


class LongSegments(ByOperators):
    """The final kets of a closed system: see `cpu.Kets`, which takes and gives the same. All is computed in fp64.

    A segment's map is U = V exp(-i t E) V^+, and its derivative V (F o (V^+ dH V)) V^+, where F_ab is the divided difference of
    exp(-i t E), which is -i t exp(-i t (E_a + E_b) / 2) sinc(t (E_a - E_b) / 2) (Daleckii and Krein, 1951; Higham, Functions
    of Matrices, 2008, section 3.2).
    """

    def __init__(self, evolution: Evolution, general: Callable[..., torch.Tensor]) -> None:
        self._tau, self._general, self._terms = evolution.tau, general, _terms(evolution.generators)
        self._kept: tuple[NDArray[Any], ...] | None = None
        self.finite = True

    def plainly(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `ByOperators.plainly`."""
        return (self._general(*tensors),)

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.__call__`."""
        controls, state, fixed = (as_array(each) for each in tensors)
        drift, driven = self._terms
        hamiltonians = controls @ driven + (fixed @ drift)[..., None, :]
        (d, k), (*batch, segments, _) = state.shape[-2:], hamiltonians.shape
        energies, vectors = np.linalg.eigh(hamiltonians.reshape(*batch, segments, d, d))
        bras = vectors.conj().swapaxes(-1, -2)
        maps = vectors * np.exp(-1j * self._tau * energies)[..., None, :] @ bras
        states = np.empty((*max(batch, list(state.shape[:-2])), segments + 1, d, k), complex)
        states[..., 0, :, :] = state
        for number in range(segments):
            np.matmul(maps[..., number, :, :], states[..., number, :, :], out=states[..., number + 1, :, :])
        final = states[..., segments, :, :].copy()
        self.finite = math.isfinite(abs(final.sum()))
        self._kept = energies, vectors, bras, maps, states[..., :segments, :, :]
        return (torch.from_numpy(final).to(tensors[1].dtype),)

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], needed: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        """See `Differentiable.pull`."""
        if torch.is_grad_enabled() or transforms_active():
            return super().pull(tensors, cotangents, needed)
        if self._kept is None:
            self(*tensors)
        assert self._kept is not None
        (energies, vectors, bras, maps, states), self._kept = self._kept, None
        # Rows, conjugated: of cotangents after a segment, and at last of those before the first.
        after, row = np.empty_like(states.swapaxes(-1, -2)), as_array(cotangents[0]).conj().swapaxes(-1, -2)
        for number in reversed(range(states.shape[-3])):
            after[..., number, :, :] = row
            row = row @ maps[..., number, :, :]
        angles = self._tau / 2 * energies
        phases, apart = np.exp(-1j * angles), angles[..., :, None] - angles[..., None, :]
        same = apart == 0
        divided = np.where(same, 1.0, np.sin(apart) / np.where(same, 1.0, apart)) * (-1j * self._tau)
        inner = (bras @ states) @ (after @ vectors) * (divided * phases[..., :, None] * phases[..., None, :])
        # The gradient by a coefficient of the Hermitian matrix A is Re tr(M A), that is M by the conjugate of A.
        by_matrix = (vectors @ inner @ bras).reshape(*inner.shape[:-2], -1)
        by_fixed, by_controls = ((by_matrix @ each.conj().T).real for each in self._terms)
        adjoint = row.conj().swapaxes(-1, -2)
        made = by_controls, adjoint, by_fixed.sum(-2)
        return [
            torch.from_numpy(np.ascontiguousarray(each)).to(tensor.dtype).sum_to_size(tensor.shape)
            if wanted
            else None
            for each, tensor, wanted in zip(made, tensors, needed, strict=True)
        ]


@lru_cache(maxsize=64)
def _terms(generators: Generators) -> list[NDArray[np.complex128]]:
    """The Hermitian matrices (F, d**2) of the fixed coefficients and (K, d**2) of the controls; those of generators are -i times these."""
    return [
        1j * each.numpy().reshape(len(each), -1)
        for each in generators.dense(torch.empty(0, dtype=torch.float64))
    ]
