"""Commutator-free Magnus steps: products of exponentials of the whole Hamiltonian, as matrices.

Each exponential is exp(-i h sum_m w_m H(t_m)) with t_m the nodes of a Gauss quadrature.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ketscale.engines.pulses.evolution import SteppingMethod
from ketscale.engines.pulses.exponential import unitary
from ketscale.engines.pulses.lattice import Lattice
from ketscale.engines.pulses.plain import GateSequence
from ketscale.engines.pulses.schemes import MagnusScheme

# Complex numbers of the matrices of a chunk of steps.
CHUNK = 2**20


@dataclass(frozen=True)
class DenseMagnus(SteppingMethod):
    """Steps whose exponentials are matrices (d**n, d**n)."""

    kernel = "dense"

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

    def unitaries(self, lattice: Lattice, amplitudes: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """See `evolution.SteppingMethod`."""
        return self.made(lattice, amplitudes, step)

    def gates(self, lattice: Lattice, steps: int) -> tuple[GateSequence, int]:
        """See `evolution.SteppingMethod`: each on all sites."""
        size = lattice.dimension**2
        starts = torch.arange(steps * len(self.scheme.weights), device="cpu") * size
        items = torch.stack([torch.zeros_like(starts), starts], 1)
        places = (tuple(range(lattice.sites)),)
        return GateSequence(lattice.levels, lattice.sites, places, items), len(items) * size

    def generators(self, lattice: Lattice, amplitudes: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """The Hermitian matrices H of the exponentials exp(-i H), (steps * exponentials, d**n, d**n)."""
        durations, strengths = _weighted(self.scheme, amplitudes)
        driven = (
            lattice.embedded(drive, (site,))
            for site, drive in zip(lattice.drive_sites, lattice.drives, strict=True)
        )
        of_pairs = () if lattice.pair_drives is None else lattice.pair_drives
        coupled = (
            lattice.embedded(drive, lattice.pairs[pair])
            for pair, drive in zip(lattice.driven_pairs, of_pairs, strict=True)
        )
        terms = torch.stack([lattice.hamiltonian(), *driven, *coupled])
        factors = step * torch.cat([durations[:, None], strengths], 1)
        return torch.einsum("ek,kab->eab", factors.to(terms.dtype), terms)


def _weighted(scheme: MagnusScheme, amplitudes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The duration of each exponential of the steps, and its drives' strengths (steps * exponentials, drives)."""
    weights = amplitudes.new_tensor(scheme.weights)
    strengths = torch.einsum("em,smk->sek", weights, amplitudes).flatten(0, 1)
    return weights.sum(1).repeat(len(amplitudes)), strengths
