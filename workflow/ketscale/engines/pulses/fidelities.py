"""How well evolved columns agree with a target: sums over columns, so that ranks may share them, and what they make.

With the amplitudes M (`frame.Frame.amplitudes`) of columns that begin as computational states j, and a target T:
rows r_i = sum_j conj(T_ij) M_ij, fidelity |sum_i r_i / columns|^2. Tensors hold columns as rows: M_ij is in row j.
A virtual Z gate after the pulse multiplies rows by phases (McKay et al., Phys. Rev. A 96, 022330, 2017,
arXiv:1612.00858), so that rows are all that it needs.
"""

from __future__ import annotations

import torch

from ketscale.engines.pulses.virtual_z import largest_overlap
from ketscale.errors import UserError
from ketscale.shapes import Complex, Float


def row_overlaps(
    amplitudes: Complex[torch.Tensor, "columns rows"], target: Complex[torch.Tensor, "columns rows"]
) -> Complex[torch.Tensor, " rows"]:
    """The rows r, complex (2**n,): summed over these columns.

    amplitudes, target: complex (columns, 2**n), the same columns of both. The target of a gate's unitary (`gates`) is
        `unitary.T[columns]`.

    Raises:
        UserError: the shapes differ.
    """
    if amplitudes.shape != target.shape:
        raise UserError(
            f"target: has the shape {tuple(target.shape)}, and the amplitudes {tuple(amplitudes.shape)}"
        )
    return (target.conj() * amplitudes).sum(0)


def fidelity(rows: Complex[torch.Tensor, " rows"], columns: int, virtual_z: bool) -> Float[torch.Tensor, ""]:
    """|mean_j <u_j|v_j>|^2 from the rows of all columns, real, shape (). One column: that of one state.

    columns: how many columns the rows were summed over. virtual_z: the largest over all Z rotations of each qubit after
        the pulse (see `virtual_z.largest_overlap`, and what it says of derivatives).

    Raises:
        UserError: with virtual_z, there are not 2**n rows.
    """
    overlap = largest_overlap(rows) if virtual_z else rows.sum().abs().square()
    return overlap / columns**2


def leakage(amplitudes: Complex[torch.Tensor, "columns rows"]) -> Float[torch.Tensor, ""]:
    """The part of the norm that is in no computational state, summed over these columns, real, shape ().

    amplitudes: complex (columns, 2**n).
    """
    return len(amplitudes) - amplitudes.abs().square().sum()
