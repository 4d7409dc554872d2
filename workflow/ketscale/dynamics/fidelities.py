"""How well a gate or state was met. All results are real, () or (batch,); infidelity is 1 minus a fidelity.

A gate's matrix M has the amplitudes <i|U|j> of D computational states, and T those of its target. Leakage, what M lost
to other states, lowers all fidelities of gates. A channel is given by its images of |i><j| instead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.derivatives import uncompiled
from ketscale.engines.dynamics.tasks import as_complex, as_states
from ketscale.engines.gates import UNITARY
from ketscale.engines.pulses.frame import COUPLER
from ketscale.engines.pulses.virtual_z import largest_form, largest_overlap
from ketscale.errors import UserError
from ketscale.private_torch import transforms_active
from ketscale.shapes import Float, Shaped


def ket_fidelity(kets: torch.Tensor, target: Any) -> torch.Tensor:
    """|<target|ket>|^2 of kets with targets, each (..., d), real (...); for density matrices see `fidelity`.

    Raises:
        UserError: the dimensions differ, or a target on the CPU is not of norm 1.

    Example:
        >>> ket_fidelity(torch.tensor([0.6, 0.8j]), [0, 1]).item()
        0.64...
    """
    kets = as_states("kets", kets)
    state = as_complex(target, kets)
    # A batch of targets would be taken for one target at each time of a trajectory.
    if kets.shape[-1:] != state.shape[-1:] or 1 < state.ndim < kets.ndim:
        raise UserError(f"target: must be a ket of {kets.shape[-1]} amplitudes, not {tuple(state.shape)}")
    _check_norms(state, 1)
    return (kets * state.conj()).sum(-1).abs().square()


def process_fidelity(
    final: torch.Tensor, target: Any, states: Any = None, virtual_z: bool = False
) -> torch.Tensor:
    """|Tr(T^+ M)|^2 / D^2, the entanglement fidelity of a gate.

    final: columns (d, D) that began as `states`, as `evolve` gives them for kind unitary; or their channel (D, D, d, d).
        Either may have a batch axis.
    target: T, (D, D) or (batch, D, D).
    states: the computational states, (d, D), such as `System.computational_states`; M is states^+ final. None: `final` is
        M, (D, D), or has images (D, D, D, D).
    virtual_z: the largest value over Z rotations of each qubit after the gate, which software makes (McKay et al., Phys. Rev.
        A 96, 022330, 2017, arXiv:1612.00858). Its derivatives are exact to the seventh.

    Raises:
        UserError: the target has other dimensions, a target on the CPU is not of a unitary's norm, or with virtual_z these are no qubits.

    Example:
        >>> from ketscale import dynamics as kd
        >>> process_fidelity(kd.gate("s"), kd.gate("z"), virtual_z=True).item()
        1.0
    """
    return _fidelity(final, target, states, virtual_z, averaged=False)


def average_gate_fidelity(
    final: torch.Tensor, target: Any, states: Any = None, virtual_z: bool = False
) -> torch.Tensor:
    """(|Tr(T^+ M)|^2 + Tr(M M^+)) / (D (D + 1)), the mean over all pure computational states, with leakage.

    Pedersen, Moller and Molmer, Phys. Lett. A 367, 47 (2007), arXiv:quant-ph/0701138. Arguments are those of
    `process_fidelity`.

    Raises:
        UserError: see `process_fidelity`.

    Example:
        >>> from ketscale import dynamics as kd
        >>> average_gate_fidelity(kd.gate("x"), kd.gate("y")).item()
        0.333...
    """
    return _fidelity(final, target, states, virtual_z, averaged=True)


def leakage(final: torch.Tensor, states: Any = None) -> torch.Tensor:
    """1 - Tr(M M^+) / D: the mean population that computational states lose to others. Arguments: `process_fidelity`.

    Raises:
        UserError: see `process_fidelity`.

    Example:
        >>> leakage(0.6 * torch.eye(2, dtype=torch.complex128)).item()
        0.64
    """
    block = _block(*_validated(final, states))
    return 1 - _retained(block) / block.shape[-1]


@uncompiled
def _fidelity(final: torch.Tensor, target: Any, states: Any, virtual_z: bool, averaged: bool) -> torch.Tensor:
    """The process or, `averaged`, the average gate fidelity."""
    final, basis = _validated(final, states)
    ideal, size = as_complex(target, final), final.shape[-1] if basis is None else basis.shape[-1]
    if not 2 <= ideal.ndim <= 3 or ideal.shape[-2:] != (size, size):
        raise UserError(
            f"target: is of shape {tuple(ideal.shape)}, and what was evolved {(size, size)} in computational "
            f"states; give a target of that shape, or the computational states; {COUPLER}"
        )
    _check_norms(ideal, 2)
    if not averaged and not virtual_z and final.ndim < 4 and basis is not None:
        # The same sum in another order, without a product of matrices that has a gradient.
        return _overlap(final, basis @ ideal, virtual_z) / size**2
    block = _block(final, basis)
    overlap = _overlap(block, ideal, virtual_z)
    return (overlap + _retained(block)) / (size * (size + 1)) if averaged else overlap / size**2


def _validated(final: Any, states: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What was evolved, and the computational states, checked against each other."""
    final = as_states("final", final)
    if not 2 <= final.ndim <= 5:
        raise UserError(f"final: must be a unitary or a channel, not of shape {tuple(final.shape)}")
    basis = None if states is None else as_complex(states, final)
    if basis is not None and (basis.ndim != 2 or basis.shape[0] != final.shape[-2]):
        raise UserError(f"states: must be ({final.shape[-2]}, D), not {tuple(basis.shape)}")
    rows = final.shape[-2] if basis is None else basis.shape[1]
    columns = final.shape[-1] if basis is None or final.ndim < 4 else rows
    if rows != columns:
        raise UserError(
            f"final: has {columns} columns for {rows} computational states; evolve these states, with initial=states, and give "
            "them to the fidelity"
        )
    return final, basis


def _block(final: torch.Tensor, basis: torch.Tensor | None) -> torch.Tensor:
    """M (..., D, D), or the images of a channel among the computational states, (..., D, D, D, D)."""
    if basis is None:
        return final
    block = basis.mH @ final
    return block @ basis if final.ndim > 3 else block


def _overlap(block: torch.Tensor, ideal: torch.Tensor, virtual_z: bool) -> torch.Tensor:
    """|Tr(T^+ M)|^2."""
    if block.ndim > 3:
        form = torch.einsum("...pi,...ijpq,...qj->...pq", ideal.conj(), block, ideal)
        return largest_form(form) if virtual_z else form.sum((-2, -1)).real
    products = ideal.conj() * block
    if virtual_z:
        return largest_overlap(products.sum(-1))
    # Its derivative takes half of the time of that of `abs`.
    return torch.view_as_real(products.sum((-2, -1))).square().sum(-1)


def _retained(block: torch.Tensor) -> torch.Tensor:
    """The population of all D computational states that stays in them."""
    if block.ndim > 3:
        return torch.einsum("...iipp->...", block).real
    return torch.view_as_real(block.resolve_conj()).square().sum((-3, -2, -1))


def fidelity(
    rho: Shaped[torch.Tensor, "*states d d"] | NDArray[Any], target: Any
) -> Float[torch.Tensor, "*states"]:
    """The fidelity <t|rho|t> of density matrices (..., d, d) with pure targets (d,) or (..., d), real (...).

    Raises:
        UserError: these are no density matrices, or the targets have another dimension or number, or, on the CPU, are not of
            norm 1.

    Example:
        >>> fidelity(torch.eye(2, dtype=torch.complex128) / 2, [1, 0]).item()
        0.5
    """
    rho = _density_matrices(rho)
    state = as_complex(target, rho.real)
    if not state.ndim or state.shape[-1] != rho.shape[-1]:
        raise UserError(f"target must be a state of {rho.shape[-1]} amplitudes, not {tuple(state.shape)}")
    _check_norms(state, 1)
    terms = "i,...ij,j->..." if state.ndim == 1 else "...i,...ij,...j->..."
    return torch.einsum(terms, state.conj(), rho, state).real


class Violations(NamedTuple):
    """See `violations`; each is (...)."""

    trace: torch.Tensor
    hermiticity: torch.Tensor
    negativity: torch.Tensor


@torch.no_grad()
def violations(rho: Any) -> Violations:
    """How far density matrices (..., d, d) are from physical ones: `trace`, `hermiticity`, `negativity`, each (...), ideally 0.

    `trace` is |Tr rho - 1|, `hermiticity` the largest |rho - rho^+|, and `negativity` minus the smallest eigenvalue where that
    is negative.

    Raises:
        UserError: these are no density matrices.

    Example:
        >>> violations(torch.eye(2, dtype=torch.complex128)).trace.item()
        1.0
    """
    rho = _density_matrices(rho)
    trace = (rho.diagonal(dim1=-2, dim2=-1).sum(-1) - 1).abs()
    eigenvalues = torch.linalg.eigvalsh((rho + rho.mH) / 2)
    return Violations(trace, (rho - rho.mH).abs().amax((-2, -1)), (-eigenvalues[..., 0]).clamp(min=0))


def _check_norms(target: torch.Tensor, axes: int) -> None:
    """Raise UserError unless targets, which are states (one axis) or gates (two), have the norm of their kind.

    That catches a factor that was forgotten, and mixed states. A whole check of unitaries would take a quarter of a fidelity's
    time.
    """
    # Looking at a GPU's numbers would wait for it.
    if transforms_active() or not target.is_cpu or target.layout != torch.strided or not target.numel():
        return
    size = 1 if axes == 1 else target.shape[-1]
    rows = target.numpy(force=True).reshape(-1, target.shape[-1] ** axes)
    norms = (rows.real**2 + rows.imag**2).sum(-1)
    off = float(np.abs(norms / size - 1).max())
    if not off <= 2 * UNITARY:
        what = "a pure state of norm 1 (mixed targets are not offered)" if axes == 1 else "unitary"
        raise UserError(f"target: is not {what}, but off by {off:.1e}")


def _density_matrices(value: Any) -> torch.Tensor:
    rho = as_states("rho", value)
    if rho.ndim < 2 or rho.shape[-2] != rho.shape[-1]:
        raise UserError(
            f"rho: must be density matrices (..., d, d), not {tuple(rho.shape)}; of kets use ket_fidelity"
        )
    return rho
