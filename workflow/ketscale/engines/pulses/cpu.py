"""Sequences of gates on columns by machine code, with columns in the lanes of vectors; the functions of `plain`."""

from __future__ import annotations

from functools import lru_cache

import torch

from ketscale.engines.compiled.kernel import Kernel, lanes_of, threads_for
from ketscale.engines.pulses import kernels, plan
from ketscale.engines.pulses.placement import Sequence
from ketscale.engines.pulses.plan import GatesPlan, table, vectors

LANES = lanes_of(torch.float64)


def enter(columns: torch.Tensor, sequence: Sequence) -> torch.Tensor:
    """The columns' state, real (tiles, d**n, vectors, 2, lanes); see `plan`. Missing columns are 0."""
    size = vectors(columns.shape[1], len(columns), LANES) * LANES
    tiles = -(-len(columns) // size)
    padded = columns.new_zeros(tiles * size, columns.shape[1])
    padded[: len(columns)] = columns
    parts = torch.view_as_real(padded.resolve_conj()).reshape(
        tiles, size // LANES, LANES, columns.shape[1], 2
    )
    return parts.permute(0, 3, 1, 4, 2).contiguous()


def leave(state: torch.Tensor, columns: int) -> torch.Tensor:
    """The inverse of `enter`."""
    parts = state.permute(0, 2, 4, 1, 3).flatten(0, 2)
    return torch.view_as_complex(parts[:columns].contiguous())


def forward(sequence: Sequence, gates: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """The state after all gates, which overwrites the given one."""
    _call("forward", sequence, {"gates": gates, "states": state})
    return state


def backward(
    sequence: Sequence, gates: torch.Tensor, state: torch.Tensor, cotangent: torch.Tensor, wanted: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """See `plain.backward`; the given state and cotangent are overwritten."""
    to_gates = gates.new_zeros(len(state), wanted)
    tensors = {"gates": gates, "states": state, "cotangents": cotangent, "to_gates": to_gates}
    _call("backward", sequence, tensors)
    total = to_gates[0] if len(state) == 1 else to_gates.sum(0)
    if wanted < len(gates):
        total = torch.cat([total, gates.new_zeros(len(gates) - wanted)])
    return state, cotangent, total


def _call(name: str, sequence: Sequence, tensors: dict[str, torch.Tensor]) -> None:
    state = tensors["states"]
    tiles = len(state)
    if tiles == 0 or len(sequence) == 0:
        return
    # Kept until the call has returned.
    used = {key: tensor.resolve_conj().contiguous() for key, tensor in tensors.items()}
    wanted = tensors["to_gates"].shape[1] if "to_gates" in tensors else 0
    work = 4 * sequence.levels * len(sequence) * state.numel() // 2
    # fmt: off
    _kernel(sequence.levels).run(
        name, threads_for(tiles, work), tiles=tiles, count=len(sequence), wanted=wanted,
        tile_vectors=state[0].numel() // (2 * LANES), items=sequence.items, table=table(sequence, state.shape[2]),
        **used,
    )
    # fmt: on


@lru_cache(maxsize=16)
def _kernel(levels: int) -> Kernel:
    functions, sources = (kernels.forward, kernels.backward), (plan,)
    return Kernel(functions, kernels.ARGUMENTS, torch.float64, LANES, GatesPlan(levels), sources)
