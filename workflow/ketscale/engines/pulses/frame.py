"""The states in which amplitudes are read, and how well these agree with a target.

States are the dressed ones of the undriven device as they rotate, or bare product states. Fidelities are made of sums over
columns, so that ranks may share them.

With the amplitudes M (`Frame.amplitudes`) of columns that begin as computational states j, and a target T:
rows r_i = sum_j conj(T_ij) M_ij, fidelity |sum_i r_i / columns|^2. Tensors hold columns as rows: M_ij is in row j.
A virtual Z gate after the pulse multiplies rows by phases (McKay et al., Phys. Rev. A 96, 022330, 2017,
arXiv:1612.00858), so that rows are all that it needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ketscale.engines.pulses.eigenstates import eigenstates, eigensystem
from ketscale.engines.pulses.lattice import Lattice
from ketscale.engines.pulses.settings import MOST_DRESSED
from ketscale.engines.pulses.virtual_z import largest_overlap
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
    instead = "change the device's parameters, such as its spread or couplings"
    energies, states = dressed_states(lattice.undriven(), lattice.computational, instead)
    return Frame(states.T, energies)


def dressed_states(
    undriven: torch.Tensor, places: torch.Tensor, instead: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Energies (k,) and columns (m, k) of the eigenstates that are named after product states, differentiable in the matrix.

    undriven: Hermitian (m, m). places: those of the product states, int64 (k,), in the order of bits. Each amplitude there
    is positive. instead: what to do where there are none.

    Raises:
        UserError: a product state is shared by several eigenstates so evenly that none has enough of it.
    """
    found = eigensystem(undriven)
    share, which = found.states[places].abs().square().max(-1)
    if not is_mapped(share) and (share < SHARE).any():
        worst = int(share.argmin())
        bits = f"{worst:0{len(places).bit_length() - 1}b}"
        raise UserError(
            f"frame: no eigenstate has {SHARE:.0%} of |{bits}> (at most {share[worst]:.0%}), since it is in resonance with others",
            instead,
        )
    energies, states = eigenstates(undriven, found, which)
    own = states[places, torch.arange(len(places), device=places.device)]
    return energies, states * (own.conj() / own.abs())


def row_overlaps(
    amplitudes: Complex[torch.Tensor, "columns rows"], target: Complex[torch.Tensor, "columns rows"]
) -> Complex[torch.Tensor, " rows"]:
    """The rows r, complex (2**n,): summed over these columns.

    amplitudes, target: complex (columns, 2**n), the same columns of both. The target of a gate's unitary (`starts`) is
        `unitary.T[columns]`.

    Raises:
        UserError: the shapes differ.
    """
    if amplitudes.shape != target.shape:
        raise UserError(
            f"target: has the shape {tuple(target.shape)}, and the amplitudes {tuple(amplitudes.shape)}"
        )
    return (target.conj() * amplitudes).sum(0)


def fidelity(
    rows: Complex[torch.Tensor, "*batch rows"], columns: int, virtual_z: bool
) -> Float[torch.Tensor, "*batch"]:
    """|mean_j <u_j|v_j>|^2 from the rows of all columns, real, of the batch's shape. One column: that of one state.

    columns: how many columns the rows were summed over. virtual_z: the largest over all Z rotations of each qubit after
        the pulse (see `virtual_z.largest_overlap`, and what it says of derivatives).

    Raises:
        UserError: with virtual_z, there are not 2**n rows.
    """
    overlap = largest_overlap(rows) if virtual_z else rows.sum(-1).abs().square()
    return overlap / columns**2


def leakage(amplitudes: Complex[torch.Tensor, "columns rows"]) -> Float[torch.Tensor, ""]:
    """The part of the norm that is in no computational state, summed over these columns, real, shape ().

    amplitudes: complex (columns, 2**n).
    """
    return len(amplitudes) - amplitudes.abs().square().sum()
