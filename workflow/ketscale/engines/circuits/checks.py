"""The checks that every simulator makes before it computes, and the result for a batch of zero samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch

from ketscale.engines import derivatives
from ketscale.engines.circuits.circuit import Angles, Circuit, check
from ketscale.errors import UserError


def check_request(
    circuit: Circuit,
    angles: Angles,
    initial: torch.Tensor | None,
    paulis: Sequence[str] | None = None,
    channels: bool = False,
) -> None:
    """Raise UserError unless the angles, the initial state and the Pauli words fit the circuit.

    channels: whether it may have any.
    """
    check(circuit, angles)
    if circuit.noisy and not channels:
        raise UserError(
            "the circuit has channels: simulator 'fused' gives its expectation values, probabilities and density, from |0...0>"
        )
    if initial is not None:
        batch, size = angles.inputs.shape[0], 2**circuit.qubits
        if tuple(initial.shape) not in {(size,), (batch, size)}:
            raise UserError(f"initial must be ({size},) or ({batch}, {size}), not {tuple(initial.shape)}")
        if initial.dtype != angles.inputs.dtype.to_complex():
            raise UserError(
                f"initial is {initial.dtype}: with {angles.inputs.dtype} angles it must be "
                f"{angles.inputs.dtype.to_complex()}"
            )
        if initial.device != angles.inputs.device:
            raise UserError(
                f"initial is on {initial.device} and the angles on {angles.inputs.device}: use one device"
            )
    if paulis is not None:
        check_words(tuple(paulis), circuit.qubits)


# Cached for valid words, since every call of a simulator brings the same ones.
@lru_cache(maxsize=256)
def check_words(paulis: tuple[str, ...], qubits: int) -> None:
    """Raise UserError unless there are words, each with a Pauli letter for every qubit."""
    if not paulis:
        raise UserError("expval needs at least one Pauli word")
    for word in paulis:
        if len(word) != qubits or not set(word) <= set("IXYZ"):
            raise UserError(f"Pauli word {word!r} must have {qubits} letters, each I, X, Y or Z")


def no_rows(angles: Angles, initial: torch.Tensor | None, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """A (0, columns) result of type `dtype` that depends on the angles and the initial state, with zero gradients."""
    anchor = angles.inputs.sum() + angles.weights.sum()
    if initial is not None:
        anchor = anchor + initial.real.sum()
    return anchor.to(dtype).expand(0, columns)


def refuse_gradient(simulator: str, what: str, *tensors: torch.Tensor | None) -> None:
    """Raise UserError if a gradient by one of `tensors` is wanted, which this simulator does not have."""
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        raise UserError(
            f"{simulator} cannot differentiate {what}: use default.qubit with gradient 'backprop'"
        )


def refuse_transforms(simulator: str, *tensors: torch.Tensor | None) -> None:
    """Raise UserError in torch.func and forward mode, through which this simulator does not see."""
    if derivatives.transformed(*(each for each in tensors if each is not None)):
        raise UserError(
            f"{simulator} knows neither torch.func nor forward mode: use simulator 'fused' or 'default.qubit'"
        )


def one_first_derivative(simulator: str, cotangent: torch.Tensor) -> None:
    """As `one_gradient`, and raise UserError if the gradient is to be differentiated too."""
    derivatives.first_derivatives_only(
        simulator, "for create_graph=True, Hessians and forward mode use simulator 'fused' or 'default.qubit'"
    )
    one_gradient(simulator, cotangent)


def one_gradient(simulator: str, cotangent: torch.Tensor) -> None:
    """Called in a simulator's backward pass: raise UserError if it is asked for several gradients at once."""
    derivatives.one_gradient(
        simulator, cotangent, "take jacrev of torch.func and a Layer with simulator 'fused'"
    )
