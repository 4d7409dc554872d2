"""The states in which amplitudes are read: in the dressed states of the undriven device as they rotate, or in bare product states."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ketscale.engines.pulses.eigenstates import eigenstates, eigensystem
from ketscale.engines.pulses.lattice import Lattice
from ketscale.engines.pulses.settings import MOST_DRESSED
from ketscale.errors import UserError
from ketscale.private_torch import is_mapped
from ketscale.shapes import Complex, Float

# The least share of a product state in its eigenstate: above a half, which two states in resonance share to within rounding.
SHARE = 0.51


@dataclass(frozen=True, eq=False)
class Frame:
    """The 2**n computational states of a device, each with a phase that rotates in time.

    states: in the product basis, a row each, complex (2**n, d**n), in the order of bits, the first site's the slowest.
    energies: rad/ns, real (2**n,).
    """

    states: torch.Tensor
    energies: torch.Tensor

    def amplitudes(
        self,
        final: Complex[torch.Tensor, "columns {self.states.shape[1]}"],
        duration: Float[torch.Tensor, ""] | float,
    ) -> Complex[torch.Tensor, "columns {len(self.states)}"]:
        """exp(i E_j t) <j|psi> after a time t, complex (columns, 2**n).

        final: states psi in the product basis, complex (columns, d**n). duration: t in ns.
        """
        angles = self.energies * duration
        return torch.polar(torch.ones_like(angles), angles) * (final @ self.states.mH)


def laboratory_frame(lattice: Lattice) -> Frame:
    """Bare product states, whose phases do not rotate: where the published benchmark compares."""
    places = lattice.computational
    states = lattice.couplings.new_zeros(len(places), lattice.dimension)
    states[torch.arange(len(places), device=places.device), places] = 1
    return Frame(states, lattice.energies.new_zeros(len(places)))


def dressed_frame(lattice: Lattice) -> Frame:
    """Eigenstates of the undriven lattice, rotating with their energies, differentiable in the lattice.

    A computational state is the eigenstate with the largest share of that product state. As more than half is needed
    (`SHARE`), no two have the same name. Its amplitude there is positive.

    Raises:
        UserError: a product state is shared by several eigenstates so evenly that none has enough of it, or the
            undriven Hamiltonian is too large.
    """
    if lattice.dimension > MOST_DRESSED:
        raise UserError(
            f"frame: a device of {lattice.dimension} product states is too large for dressed states (at most {MOST_DRESSED}); use "
            "fewer levels or the frame laboratory"
        )
    undriven = lattice.undriven()
    found = eigensystem(undriven)
    places = lattice.computational
    share, which = found.states[places].abs().square().max(-1)
    if not is_mapped(share) and (share < SHARE).any():
        worst = int(share.argmin())
        raise UserError(
            f"frame: no state of the device has {SHARE:.0%} of |{worst:0{lattice.sites}b}> (at most {share[worst]:.0%}), since "
            "it is in resonance with others",
            "change the device's parameters, such as its spread or couplings",
        )
    energies, states = eigenstates(undriven, found, which)
    own = states[places, torch.arange(len(places), device=places.device)]
    return Frame((states * (own.conj() / own.abs())).T, energies)
