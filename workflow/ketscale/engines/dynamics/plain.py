"""The evolution of real linear systems by torch's operators, on any device; differentiable to any order.

The maps of all tasks and segments are made at once, and then applied one segment after the other.
"""

from __future__ import annotations

import torch

from ketscale.engines.dynamics.evolution import Division, Evolution


def evolve(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution
) -> torch.Tensor:
    """See `cpu.evolve`."""
    return segment_ends(fixed, controls, initial, evolution)[:, -1]


def segment_ends(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution
) -> torch.Tensor:
    """See `cpu.segment_ends`; this one has gradients."""
    shared, controlled = evolution.generators.dense(initial)
    generators = torch.einsum("tf,fab->tab", fixed, shared)[:, None] + torch.einsum(
        "tsk,kab->tsab", controls, controlled
    )
    maps = _exponential(evolution.tau * generators, evolution.division)
    states = [initial]
    for segment in maps.unbind(1):
        states.append((segment @ states[-1][..., None])[..., 0])
    return torch.stack(states, 1)


def _exponential(generators: torch.Tensor, division: Division) -> torch.Tensor:
    if division.reaches:
        return torch.linalg.matrix_exp(generators)
    identity = torch.eye(generators.shape[-1], dtype=generators.dtype, device=generators.device)
    step = made = generators / division.steps
    for k in range(division.degrees[0], 1, -1):
        made = step + step @ made / k
    return torch.linalg.matrix_power(identity + made, division.steps)
