"""Commutator-free Magnus steps: products of exponentials of the whole Hamiltonian, as matrices or on the columns.

Each exponential is exp(-i h sum_m w_m H(t_m)) with t_m the nodes of a Gauss quadrature. Small dimensions exponentiate
matrices, and columns are then multiplied by them. In large ones a Chebyshev expansion needs products of Hamiltonians and
columns only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ketscale.engines.derivatives import paired
from ketscale.engines.pulses import plain
from ketscale.engines.pulses.exponential import unitary
from ketscale.engines.pulses.lattice import Lattice
from ketscale.engines.pulses.placement import Sequence
from ketscale.engines.pulses.schemes import MagnusScheme

# Terms of the Chebyshev series below this size are left out.
SMALLEST_TERM = 1e-16

# Complex numbers of the matrices of a chunk of steps.
CHUNK = 2**20


@dataclass(frozen=True)
class DenseMagnus:
    """Steps whose exponentials are matrices (d**n, d**n); a state is a matrix of columns (d**n, columns)."""

    scheme: MagnusScheme

    @property
    def nodes(self) -> tuple[float, ...]:
        """See `evolution.SteppingMethod`."""
        return self.scheme.nodes

    def chunk(self, lattice: Lattice, columns: int) -> int:
        """See `evolution.SteppingMethod`."""
        return max(1, CHUNK // (lattice.levels ** (2 * lattice.sites) * len(self.scheme.weights)))

    def made(self, lattice: Lattice, amplitudes: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """The exponentials (steps * exponentials, d**n, d**n)."""
        return unitary(self.generators(lattice, amplitudes, step))

    def generators(self, lattice: Lattice, amplitudes: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """The Hermitian matrices H of the exponentials exp(-i H), (steps * exponentials, d**n, d**n)."""
        durations, strengths = _weighted(self.scheme, amplitudes)
        driven = (
            lattice.embedded(drive, (site,))
            for site, drive in zip(lattice.drive_sites, lattice.drives, strict=True)
        )
        terms = torch.stack([lattice.undriven(), *driven])
        factors = step * torch.cat([durations[:, None], strengths], 1)
        return torch.einsum("ek,kab->eab", factors.to(terms.dtype), terms)

    def enter(self, lattice: Lattice, columns: torch.Tensor) -> torch.Tensor:
        """See `evolution.SteppingMethod`."""
        return columns.T.clone()

    def leave(self, lattice: Lattice, state: torch.Tensor, columns: int) -> torch.Tensor:
        """See `evolution.SteppingMethod`."""
        return state.T.contiguous()

    def forward(self, lattice: Lattice, steps: int, made: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """See `evolution.SteppingMethod`."""
        for each in made:
            state = each @ state
        return state

    def backward(
        self,
        lattice: Lattice,
        steps: int,
        made: torch.Tensor,
        state: torch.Tensor,
        cotangent: torch.Tensor,
        fixed: bool,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See `evolution.SteppingMethod`."""
        to_made = torch.empty_like(made)
        for number in reversed(range(len(made))):
            inverse = made[number].mH
            state = inverse @ state
            to_made[number] = cotangent @ state.mH
            cotangent = inverse @ cotangent
        return state, cotangent, to_made


@dataclass(frozen=True)
class ChebyshevMagnus(DenseMagnus):
    """Steps whose exponentials act on the columns by a Chebyshev series of local Hamiltonians, exact to rounding."""

    def chunk(self, lattice: Lattice, columns: int) -> int:
        """See `evolution.SteppingMethod`."""
        return max(1, CHUNK // (len(self.scheme.weights) * self._numbers(lattice)))

    def _numbers(self, lattice: Lattice) -> int:
        d = lattice.levels
        return lattice.sites * d**2 + len(lattice.pairs) * d**4

    def made(self, lattice: Lattice, amplitudes: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """The terms of the Hamiltonians times their durations, flat: (steps * exponentials, all sites', all pairs')."""
        durations, strengths = _weighted(self.scheme, amplitudes)
        dtype = lattice.drives.dtype
        sites = torch.diag_embed(durations[:, None, None] * lattice.energies).to(dtype)
        on = torch.tensor(lattice.drive_sites, dtype=torch.int64, device=amplitudes.device)
        sites = sites.index_add(1, on, torch.einsum("ek,kab->ekab", strengths.to(dtype), lattice.drives))
        pairs = durations[:, None, None, None] * lattice.couplings
        return step * torch.cat([sites.flatten(1), pairs.flatten(1)], 1)

    def forward(self, lattice: Lattice, steps: int, made: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """See `evolution.SteppingMethod`."""
        for terms in made:
            state = _exponential(lattice, terms, state, 1.0)
        return state

    def backward(
        self,
        lattice: Lattice,
        steps: int,
        made: torch.Tensor,
        state: torch.Tensor,
        cotangent: torch.Tensor,
        fixed: bool,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See `evolution.SteppingMethod`."""
        to_made = torch.empty_like(made)
        for number in reversed(range(len(made))):
            state = _exponential(lattice, made[number], state, -1.0)
            with torch.enable_grad():
                terms, before = made[number].clone().requires_grad_(), state.clone().requires_grad_()
                after = _exponential(lattice, terms, before, 1.0)
            to_made[number], cotangent = torch.autograd.grad(paired(after, cotangent), (terms, before))
        return state, cotangent, to_made


def _weighted(scheme: MagnusScheme, amplitudes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The duration of each exponential of the steps, and its drives' strengths (steps * exponentials, drives)."""
    weights = amplitudes.new_tensor(scheme.weights)
    strengths = torch.einsum("em,smk->sek", weights, amplitudes).flatten(0, 1)
    return weights.sum(1).repeat(len(amplitudes)), strengths


def _exponential(lattice: Lattice, terms: torch.Tensor, state: torch.Tensor, sign: float) -> torch.Tensor:
    """exp(-i sign H) on columns (d**n, columns), H being the sum of local terms.

    Tal-Ezer and Kosloff, J. Chem. Phys. 81, 3967 (1984). The spectrum is bounded by the sum of the terms' norms.
    """
    from scipy.special import (
        jv,
    )  # it takes a quarter of the time of `import torch`, and small dimensions do not need it

    d = lattice.levels
    places = (*((site,) for site in range(lattice.sites)), *lattice.pairs)
    sizes = [d ** (2 * len(place)) for place in places]
    matrices = [
        each.reshape(d ** len(place), -1) for each, place in zip(terms.split(sizes), places, strict=True)
    ]
    where = Sequence(d, lattice.sites, places, torch.empty(0, 2, dtype=torch.int64))
    radius = sum(float(torch.linalg.matrix_norm(each.detach(), 2)) for each in matrices)
    radius = max(radius, SMALLEST_TERM)  # which divides, even where nothing acts

    def product(vectors: torch.Tensor) -> torch.Tensor:
        total = plain.on_sites(matrices[0], vectors, places[0], where)
        for matrix, place in zip(matrices[1:], places[1:], strict=True):
            total = total + plain.on_sites(matrix, vectors, place, where)
        return total / radius

    result = float(jv(0, radius)) * state
    before, now, power = state, product(state), -1j * sign
    for k in range(1, 10 + math.ceil(2 * radius + 40)):
        size = 2 * float(jv(k, radius))
        result = result + size * power * now
        if k > radius and abs(size) < SMALLEST_TERM:
            break
        before, now, power = now, 2 * product(now) - before, power * -1j * sign
    return result
