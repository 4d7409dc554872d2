"""`pade4`: commutator-free steps of order 4 whose exponentials are diagonal Pade approximants."""

import torch

from ketscale.engines.pulses.evolution import DenseMagnus
from ketscale.engines.pulses.lattice import Lattice


class Pade(DenseMagnus):
    """(12 + 6 i H - H^2)^-1 (12 - 6 i H - H^2) instead of exp(-i H), which it is up to terms in H^5."""

    def made(self, lattice: Lattice, amplitudes: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        found = self.generators(lattice, amplitudes, step)
        hermitian = (found + found.mH) / 2  # so that its gradient is Hermitian too
        even = 12 * torch.eye(lattice.dimension, device=found.device) - hermitian @ hermitian
        return torch.linalg.solve(even + 6j * hermitian, even - 6j * hermitian)
