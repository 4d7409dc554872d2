"""What the two kernels of `triton_kernels` compute, rotation by rotation, for states that no block of threads holds.

States are in device memory, and a rotation is a few torch operations on all of them. The functions have the kernels'
arguments and write where they write; only tables are read on the host. As there, nothing waits for the GPU, and the
backward pass keeps state and adjoint alone.
"""

from __future__ import annotations

import torch

from ketscale.engines.circuits.fused.tables import SOURCES, Tables


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
    if initial is None:
        state = inputs.new_zeros(len(inputs), 2**tables.bits)
        state[:, 0] = 1
    else:
        state = initial.transpose(-1, -2).flatten(-2).expand(len(inputs), -1)
    index = _index(tables, state)
    for rotation, step in enumerate(tables.steps):
        moved = _exchanged(state, index, step.x, step.z)
        state = cosines[:, rotation, None] * state + sines[:, rotation, None] * moved
    if final is not None:
        final.copy_(state)
    if tables.places is not None and tables.place_signs is not None:
        out.index_copy_(1, tables.places.long(), state * tables.place_signs)
    for place, word in enumerate(tables.words):
        values = (state * _exchanged(state, index, word.x, word.z)).sum(1)
        torch.mul(values, word.sign, out=out[:, place])


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
    index = _index(tables, state)
    if tables.places is not None and tables.place_signs is not None:
        adjoint = cotangent.reshape(state.shape).index_select(1, tables.places) * tables.place_signs
    else:
        adjoint = torch.zeros_like(state)
    for place, word in enumerate(tables.words):
        scale = 2 * word.sign * cotangent[:, place, None]
        adjoint = adjoint + scale * _exchanged(state, index, word.x, word.z)
    for rotation in reversed(range(tables.first, len(tables.steps))):
        step = tables.steps[rotation]
        cosine, sine = cosines[:, rotation, None], sines[:, rotation, None]
        moved = _exchanged(state, index, step.x, step.z)
        if step.slot >= 0:
            gradients[:, step.slot] = (adjoint * moved).sum(1)
        state = cosine * state - sine * moved
        adjoint = cosine * adjoint - sine * _exchanged(adjoint, index, step.x, step.z)
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


def _index(tables: Tables, state: torch.Tensor) -> torch.Tensor:
    return torch.arange(2**tables.bits, device=state.device)


def _exchanged(state: torch.Tensor, index: torch.Tensor, x: int, z: int) -> torch.Tensor:
    """J of each row: number k is number k ^ x, negated if k & z has an odd number of bits."""
    odd = index & z
    for shift in (16, 8, 4, 2, 1):
        odd = odd ^ odd >> shift
    return state.index_select(1, index ^ x) * (1 - 2 * (odd & 1)).to(state.dtype)
