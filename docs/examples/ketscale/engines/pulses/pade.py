"""`pade4`: commutator-free steps of order 4 whose exponentials are diagonal Pade approximants."""

import torch

from ketscale.engines.pulses.evolution import WholeSpace
from ketscale.engines.pulses.lattice import Lattice


class Pade(WholeSpace):
    """(12 + 6 i H - H^2)^-1 (12 - 6 i H - H^2) instead of exp(-i H), which it is up to terms in H^5."""

    def evolve(
        self, lattice: Lattice, amplitudes: torch.Tensor, duration: torch.Tensor, columns: torch.Tensor
    ) -> torch.Tensor:
        controls, durations = self.segments(amplitudes, duration)
        sites = ((site,) for site in lattice.drive_sites)
        drives = torch.stack([lattice.embedded(*each) for each in zip(lattice.drives, sites, strict=True)])
        hamiltonians = lattice.hamiltonian() + torch.einsum("sk,kab->sab", controls.to(drives.dtype), drives)
        scaled = durations[:, None, None] * hamiltonians
        even = 12 * torch.eye(lattice.dimension, device=scaled.device) - scaled @ scaled
        state = columns.T
        for each in torch.linalg.solve(even + 6j * scaled, even - 6j * scaled):
            state = each @ state
        return state.T

    def code(self, lattice: Lattice) -> str:
        return "torch"
