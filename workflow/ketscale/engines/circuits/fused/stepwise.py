"""What the two kernels of `triton_kernels` compute, rotation by rotation in torch's operators, which have derivatives of every order.

So further derivatives are taken of it, on any device (`evaluate`), and how a GPU computes states that no block of threads
holds: `forward` and `backward` have the kernels' arguments and write where they write. As there, nothing waits for the GPU,
and the backward pass keeps state and adjoint alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ketscale.engines.circuits.fused.tables import SOURCES, Tables

# Exchanges are made for as many rotations at once as have so many numbers.
_NUMBERS = 2**16


def evaluate(
    tables: Tables, inputs: torch.Tensor, weights: torch.Tensor, initial: torch.Tensor | None
) -> torch.Tensor:
    """Expectation values (batch, words), or states (batch, 2**n), complex; initial: (2**n,) or (batch, 2**n)."""
    start = None if initial is None else torch.cat([initial.real, initial.imag], -1)
    half = _half_angles(tables, inputs, weights)
    state = _evolved(tables, start, half.cos(), half.sin())
    if tables.places is None or tables.place_signs is None:
        return _expectations(tables, state)
    true = (state * tables.place_signs).index_select(1, tables.places.argsort())
    return torch.complex(*true.unflatten(1, (-1, 2)).unbind(2))


def forward(
    tables: Tables,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    initial: torch.Tensor | None,
    turns: torch.Tensor,
    final: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """See `triton_kernels.forward`."""
    half = _half_angles(tables, inputs, weights)
    cosines, sines = turns.unbind(-1)
    cosines.copy_(half.cos())
    sines.copy_(half.sin())
    start = None if initial is None else initial.transpose(-1, -2).flatten(-2)
    state = _evolved(tables, start, cosines, sines)
    if final is not None:
        final.copy_(state)
    if tables.places is not None and tables.place_signs is not None:
        out.index_copy_(1, tables.places.long(), state * tables.place_signs)
    else:
        out.copy_(_expectations(tables, state))


def backward(
    tables: Tables,
    cotangent: torch.Tensor,
    turns: torch.Tensor,
    final: torch.Tensor,
    gradients: torch.Tensor,
    initial_gradient: torch.Tensor | None,
) -> None:
    """See `triton_kernels.backward`."""
    cosines, sines = turns.unbind(-1)
    state = final
    if tables.places is not None and tables.place_signs is not None:
        adjoint = cotangent.reshape(state.shape).index_select(1, tables.places) * tables.place_signs
    else:
        adjoint = torch.zeros_like(state)
    for word, exchange in enumerate(_exchanges(tables.word_masks, state)):
        scale = 2 * tables.signs[word] * cotangent[:, word, None]
        adjoint = adjoint + scale * _exchanged(state, *exchange)
    exchanges = _exchanges(tables.rotation_masks[tables.first :].flip(0), state)
    for rotation, exchange in zip(reversed(range(tables.first, len(tables.slot_of))), exchanges, strict=True):
        cosine, sine = cosines[:, rotation, None], sines[:, rotation, None]
        exchanged = _exchanged(state, *exchange)
        slot = tables.slot_of[rotation]
        if slot >= 0:
            gradients[:, slot] = (adjoint * exchanged).sum(1)
        state = cosine * state - sine * exchanged
        adjoint = cosine * adjoint - sine * _exchanged(adjoint, *exchange)
    if initial_gradient is not None:
        pairs = adjoint.unflatten(1, (2, -1)).transpose(1, 2)
        initial_gradient.copy_(pairs.flatten(1))


def _half_angles(tables: Tables, inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """(batch, rotations)."""
    source, column = tables.rotation_table[:, 3:5].T
    from_input, from_weight = source == SOURCES.index("input"), source == SOURCES.index("weight")
    # One more column, so that there is one to read where the angle comes from elsewhere.
    inputs, weights = (torch.nn.functional.pad(tensor, (0, 1)) for tensor in (inputs, weights))
    own = inputs.index_select(1, column * from_input)
    shared = weights.index_select(0, column * from_weight)
    return torch.where(from_input, own, torch.where(from_weight, shared, 1)) * tables.factors


def _evolved(
    tables: Tables, initial: torch.Tensor | None, cosines: torch.Tensor, sines: torch.Tensor
) -> torch.Tensor:
    """States (batch, 2**bits) after all rotations; initial: (2**bits,) or (batch, 2**bits). cosines, sines: (batch, rotations)."""
    batch, size = len(cosines), 2**tables.bits
    if initial is None:
        state = torch.nn.functional.pad(cosines.new_ones(batch, 1), (0, size - 1))
    else:
        state = initial.expand(batch, -1)
    turns = zip(cosines.unsqueeze(-1).unbind(1), sines.unsqueeze(-1).unbind(1), strict=True)
    for (cosine, sine), exchange in zip(turns, _exchanges(tables.rotation_masks, state), strict=True):
        state = cosine * state + sine * _exchanged(state, *exchange)
    return state


def _expectations(tables: Tables, state: torch.Tensor) -> torch.Tensor:
    """(batch, words)."""
    exchanges = _exchanges(tables.word_masks, state)
    values = [(state * _exchanged(state, *exchange)).sum(1) for exchange in exchanges]
    return torch.stack(values, 1) * tables.signs


def _exchanges(masks: torch.Tensor, state: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The exchanges of masks x and z, (rotations, 2): number k is number k ^ x, negated if k & z has an odd number of bits.

    Of each the places k ^ x, and the signs, (2**bits,).
    """
    size = state.shape[1]
    index = torch.arange(size, device=state.device)
    for part in masks.split(max(1, _NUMBERS // size)):
        x, z = part.unsqueeze(-1).unbind(1)
        odd = index & z
        for shift in (16, 8, 4, 2, 1):
            odd = odd ^ odd >> shift
        yield from zip(index ^ x, (1 - 2 * (odd & 1)).to(state.dtype), strict=True)


def _exchanged(state: torch.Tensor, places: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    return state.index_select(1, places) * signs
