"""The evolution of linear systems by torch's operators, on any device; differentiable to any order.

On the CPU it serves unitaries of many levels whose Hamiltonian has few zeros, since products of matrices are fast, and long
segments, whose maps are squared. The maps of many segments are made at once, and then applied. They are real, or, of
`paired` coordinates, complex.
"""

from __future__ import annotations

import math

import torch
from torch.utils.checkpoint import checkpoint

from ketscale.engines.dynamics.costs import SAVED_BYTES
from ketscale.engines.dynamics.generators import Division, Evolution
from ketscale.private_torch import transforms_active

# Matrices of each segment that a backward pass keeps; of pulses with more than `KEPT_BYTES` of them it computes parts again,
# from their starts.
MATRICES = 24


def evolve(
    fixed: torch.Tensor,
    controls: torch.Tensor,
    initial: torch.Tensor,
    evolution: Evolution,
    trajectory: bool = False,
) -> torch.Tensor:
    """See `cpu.evolve`."""
    if trajectory:
        return ends(_maps(fixed, controls, evolution), initial, evolution)
    paired = evolution.generators.paired
    matrices = 1 + initial.shape[-1] ** 2 // (2 if paired else 1) * initial.element_size() * len(initial)
    at_once, run = max(1, SAVED_BYTES // (MATRICES * matrices)), _all_at_once if paired else _in_turn
    # torch.func allows no hooks, by which parts are computed again.
    if controls.shape[1] <= at_once or transforms_active():
        return run(fixed, controls, initial, evolution)
    for part in controls.split(at_once, 1):
        arguments = (run, fixed, part, initial, evolution)
        initial = checkpoint(*arguments, use_reentrant=False, preserve_rng_state=False)
    return initial


def _in_turn(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution
) -> torch.Tensor:
    return ends(_maps(fixed, controls, evolution), initial, evolution)[:, -1]


def _all_at_once(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution
) -> torch.Tensor:
    whole = product(_maps(fixed, controls, evolution))
    return _coordinates_of(whole @ _columns_of(initial, evolution), initial.ndim)


def product(maps: torch.Tensor) -> torch.Tensor:
    """The product of maps (..., segments, rows, rows) that act one after the other.

    Neighbours are multiplied, all pairs at once: a map takes far longer to make than to multiply.
    """
    while (segments := maps.shape[-3]) > 1:
        pairs = maps[..., 1::2, :, :] @ maps[..., : segments - 1 : 2, :, :]
        maps = torch.cat([pairs, maps[..., -1:, :, :]], -3) if segments % 2 else pairs
    return maps[..., 0, :, :]


def ends(maps: torch.Tensor, initial: torch.Tensor, evolution: Evolution) -> torch.Tensor:
    """The coordinates at the start and at the end of each segment, by the segments' maps (tasks, segments, rows, rows)."""
    states = [_columns_of(initial, evolution)]
    for segment in maps.unbind(1):
        states.append(segment @ states[-1])
    return _coordinates_of(torch.stack(states, 1), initial.ndim)


def _columns_of(initial: torch.Tensor, evolution: Evolution) -> torch.Tensor:
    """States, one or several for each task, as columns (tasks, rows, m)."""
    if evolution.generators.paired:
        initial = torch.view_as_complex(initial.unflatten(-1, (-1, 2)).contiguous())
    return initial[..., None] if initial.ndim == 2 else initial.mT


def _coordinates_of(columns: torch.Tensor, dimensions: int) -> torch.Tensor:
    """The coordinates (..., size) of one column, or (..., m, size) if there were three dimensions."""
    states = columns[..., 0] if dimensions == 2 else columns.mT
    return torch.view_as_real(states).flatten(-2) if states.is_complex() else states


def generators(fixed: torch.Tensor, controls: torch.Tensor, evolution: Evolution) -> torch.Tensor:
    """G of each task and segment, (tasks, segments, rows, rows)."""
    shared, controlled = evolution.generators.dense(controls)
    fixed, controls = fixed.to(shared.dtype), controls.to(shared.dtype)
    by_controls = torch.einsum("tsk,kab->tsab", controls, controlled)
    return torch.einsum("tf,fab->tab", fixed, shared)[:, None] + by_controls


def _maps(fixed: torch.Tensor, controls: torch.Tensor, evolution: Evolution) -> torch.Tensor:
    """The map of each task and segment, (tasks, segments, rows, rows)."""
    return exponential(evolution.tau * generators(fixed, controls, evolution), evolution.division)


def exponential(generators: torch.Tensor, division: Division) -> torch.Tensor:
    """The exponential of matrices (..., rows, rows), or the steps of an integrator instead."""
    if division.reaches:
        of_operators = transforms_active() or not generators.is_complex()
        if not of_operators:
            return _by_products(generators, division.largest)
        small = generators.detach().abs().sum(-1).amax(-1)[..., None, None] <= division.largest
        return torch.where(small, torch.linalg.matrix_exp(torch.where(small, generators, 0.0)), math.nan)
    identity = torch.eye(generators.shape[-1], dtype=generators.dtype, device=generators.device)
    step = series = generators / division.steps
    for k in range(division.degrees[0], 1, -1):
        series = step + step @ series / k
    return torch.linalg.matrix_power(identity + series, division.steps)


# Up to this norm the Taylor polynomial of degree 16 has a backward error below rounding; see `generators.EXACT`.
REACH = {torch.complex128: 0.78, torch.complex64: 2.4}


def _by_products(generators: torch.Tensor, largest: float) -> torch.Tensor:
    """The exponential by scaling and squaring, in six products and the squares (Paterson and Stockmeyer).

    Beyond the `largest` norm it is not a number, as in compiled code.

    The backward pass of `matrix_exp` exponentiates matrices of twice the size; that of a product is two products.
    """
    norm = generators.detach().abs().sum(-2).amax(-1)[..., None, None]
    squares = torch.where(norm <= largest, norm / REACH[generators.dtype], 0.0).log2().ceil().clamp(0)
    one = torch.where(norm <= largest, generators * torch.exp2(-squares), math.nan)
    two = one @ one
    four = two @ two
    identity = torch.eye(one.shape[-1], dtype=one.dtype, device=one.device).expand_as(one)
    powers = torch.stack([identity, one, two, two @ one])
    factors = [[1 / math.factorial(4 * block + power) for power in range(4)] for block in range(4)]
    blocks = torch.tensordot(torch.tensor(factors, dtype=one.dtype, device=one.device), powers, 1)
    sums = blocks[3] + four / math.factorial(16)
    for block in (2, 1, 0):
        sums = blocks[block] + four @ sums
    for number in range(int(squares.max()) if squares.numel() else 0):
        sums = torch.where(squares > number, sums @ sums, sums)
    return sums
