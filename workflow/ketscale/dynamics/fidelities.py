"""How well a gate or state was met. All results are real, () or (batch,); infidelity is 1 minus a fidelity.

A gate's matrix M has the amplitudes <i|U|j> of D computational states, and T those of its target. Leakage, what M lost
to other states, lowers all fidelities of gates. A channel is given by its images of |i><j| instead.
"""

from __future__ import annotations

from typing import Any

import torch

from ketscale.engines.dynamics.tasks import as_complex
from ketscale.engines.pulses.frame import fidelity
from ketscale.errors import UserError


def ket_fidelity(kets: torch.Tensor, target: Any) -> torch.Tensor:
    """|<target|ket>|^2 of kets with targets, each (d,) or (batch, d); for density matrices see `fidelity`.

    Raises:
        UserError: the dimensions differ.

    Example:
        >>> ket_fidelity(torch.tensor([0.6, 0.8j]), [0, 1]).item()
        0.64...
    """
    kets = _evolved("kets", kets)
    state = as_complex(target, kets.real)
    if not 1 <= kets.ndim <= 2:
        raise UserError(f"kets: must be (d,) or (batch, d), not {tuple(kets.shape)}")
    if not 1 <= state.ndim <= 2 or state.shape[-1] != kets.shape[-1]:
        raise UserError(f"target: must be a ket of {kets.shape[-1]} amplitudes, not {tuple(state.shape)}")
    _check_batches(kets[..., 0], state[..., 0])
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
    virtual_z: the largest value over Z rotations of each qubit after the gate, which software makes; for unitaries.

    Raises:
        UserError: the shapes do not fit, or a channel is to have virtual Z rotations.

    Example:
        >>> from ketscale import dynamics as kd
        >>> process_fidelity(kd.gate("s"), kd.gate("z"), virtual_z=True).item()
        1.0
    """
    block, ideal = _parts(final, target, states)
    return _overlap(block, ideal, virtual_z) / ideal.shape[-1] ** 2


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
    block, ideal = _parts(final, target, states)
    d = ideal.shape[-1]
    return (_overlap(block, ideal, virtual_z) + _kept(block)) / (d * (d + 1))


def leakage(final: torch.Tensor, states: Any = None) -> torch.Tensor:
    """1 - Tr(M M^+) / D: the mean population that computational states lose to others. Arguments: `process_fidelity`.

    Raises:
        UserError: see `process_fidelity`.

    Example:
        >>> leakage(0.6 * torch.eye(2, dtype=torch.complex128)).item()
        0.64
    """
    block = _block(final, states)
    return 1 - _kept(block) / block.shape[-1]


def _parts(final: torch.Tensor, target: Any, states: Any) -> tuple[torch.Tensor, torch.Tensor]:
    block = _block(final, states)
    ideal = as_complex(target, block.real)
    if not 2 <= ideal.ndim <= 3 or ideal.shape[-2:] != block.shape[-2:]:
        raise UserError(
            f"target: is of shape {tuple(ideal.shape)}, and what was evolved {tuple(block.shape[-2:])} in computational "
            "states; give a target of that shape, or the computational states"
        )
    _check_batches(block[..., 0, 0] if block.ndim < 4 else block[..., 0, 0, 0, 0], ideal[..., 0, 0])
    return block, ideal


def _block(final: torch.Tensor, states: Any) -> torch.Tensor:
    """M (..., D, D), or the images of a channel among the computational states, (..., D, D, D, D)."""
    final = _evolved("final", final)
    if not 2 <= final.ndim <= 5:
        raise UserError(f"final: must be a unitary or a channel, not of shape {tuple(final.shape)}")
    block = final
    if states is not None:
        basis = as_complex(states, final.real)
        if basis.ndim != 2 or basis.shape[0] != final.shape[-2]:
            raise UserError(f"states: must be ({final.shape[-2]}, D), not {tuple(basis.shape)}")
        block = basis.mH @ final
        if final.ndim > 3:
            block = block @ basis
    rows, columns = block.shape[-2:]
    if rows != columns:
        raise UserError(
            f"final: has {columns} columns for {rows} computational states; evolve these states, with initial=states, and give "
            "them to the fidelity"
        )
    return block


def _evolved(what: str, given: Any) -> torch.Tensor:
    """States that somebody has evolved, perhaps as an array."""
    if not isinstance(given, torch.Tensor):
        return as_complex(given, torch.empty(0, dtype=torch.float64))
    if not given.is_complex() and given.dtype not in (torch.float32, torch.float64):
        raise UserError(f"{what}: is {given.dtype}, and must be complex")
    return given


def _check_batches(one: torch.Tensor, other: torch.Tensor) -> None:
    """Raise UserError unless batches () or (batch,) go together."""
    if len({len(each) for each in (one, other) if each.ndim} - {1}) > 1:
        raise UserError(f"batch: there are {len(one)} of what was evolved, and {len(other)} targets")


def _overlap(block: torch.Tensor, ideal: torch.Tensor, virtual_z: bool) -> torch.Tensor:
    """|Tr(T^+ M)|^2."""
    if block.ndim > 3:
        if virtual_z:
            raise UserError("virtual_z: a channel's fidelity has none; leave it out, or evolve the unitary")
        return torch.einsum("...pi,...ijpq,...qj->...", ideal.conj(), block, ideal).real
    return fidelity((ideal.conj() * block).sum(-1), 1, virtual_z)


def _kept(block: torch.Tensor) -> torch.Tensor:
    """The population of all D computational states that stays in them."""
    if block.ndim > 3:
        return torch.einsum("...iipp->...", block).real
    # Its derivative takes half of the time of that of `abs`.
    return torch.view_as_real(block.resolve_conj()).square().sum((-3, -2, -1))
