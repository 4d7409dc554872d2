"""The evolution of linear systems by torch's operators, on any device; differentiable to any order.

The maps of all tasks and segments are made at once, and then applied. They are real, or, of `paired` coordinates, complex.
"""

from __future__ import annotations

import torch

from ketscale.engines.dynamics.evolution import Division, Evolution


def evolve(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution
) -> torch.Tensor:
    """See `cpu.evolve`."""
    if not evolution.generators.paired:
        return segment_ends(fixed, controls, initial, evolution)[:, -1]
    maps = _maps(fixed, controls, initial, evolution)
    # Neighbours are multiplied, all pairs at once: a map takes far longer to make than to multiply.
    while (segments := maps.shape[1]) > 1:
        pairs = maps[:, 1::2] @ maps[:, : segments - 1 : 2]
        maps = torch.cat([pairs, maps[:, -1:]], 1) if segments % 2 else pairs
    return _coordinates(maps[:, 0] @ _columns(initial, evolution), initial.ndim)


def segment_ends(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution
) -> torch.Tensor:
    """See `cpu.segment_ends`."""
    states = [_columns(initial, evolution)]
    for segment in _maps(fixed, controls, initial, evolution).unbind(1):
        states.append(segment @ states[-1])
    return _coordinates(torch.stack(states, 1), initial.ndim)


def _columns(initial: torch.Tensor, evolution: Evolution) -> torch.Tensor:
    """States, one or several for each task, as columns (tasks, rows, m)."""
    if evolution.generators.paired:
        initial = torch.view_as_complex(initial.unflatten(-1, (-1, 2)).contiguous())
    return initial[..., None] if initial.ndim == 2 else initial.mT


def _coordinates(columns: torch.Tensor, dimensions: int) -> torch.Tensor:
    """The coordinates (..., size) of one column, or (..., m, size) if there were three dimensions."""
    states = columns[..., 0] if dimensions == 2 else columns.mT
    return torch.view_as_real(states).flatten(-2) if states.is_complex() else states


def _maps(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution
) -> torch.Tensor:
    """Of each task and segment, (tasks, segments, rows, rows)."""
    shared, controlled = evolution.generators.dense(initial)
    fixed, controls = fixed.to(shared.dtype), controls.to(shared.dtype)
    generators = torch.einsum("tf,fab->tab", fixed, shared)[:, None] + torch.einsum(
        "tsk,kab->tsab", controls, controlled
    )
    return _exponential(evolution.tau * generators, evolution.division)


def _exponential(generators: torch.Tensor, division: Division) -> torch.Tensor:
    if division.reaches:
        return torch.linalg.matrix_exp(generators)
    identity = torch.eye(generators.shape[-1], dtype=generators.dtype, device=generators.device)
    step = made = generators / division.steps
    for k in range(division.degrees[0], 1, -1):
        made = step + step @ made / k
    return torch.linalg.matrix_power(identity + made, division.steps)
