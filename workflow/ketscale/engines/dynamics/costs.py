"""Which way is fastest for an evolution: the entries of its matrices, their products, or eigenvectors."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch

from ketscale.engines.dynamics.generators import Evolution
from ketscale.private_torch import transforms_active

Way = Literal["entries", "products", "eigenvectors"]

# Bytes of matrices that a backward pass keeps.
SAVED_BYTES = 1 << 30
# Columns that the compiled code takes together.
LANES = 16
# Kets of fewer levels are evolved by entries up to so many radians: products are too small for the operators of torch.
LEAST_DENSE, LONG = 8, 200
# Norms of segments of an open system from which on squares take less time than steps.
SQUARED = 2_000


def fastest(fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution) -> Way:
    """The fastest way for an evolution and its gradient, for all tasks alike.

    The times are those of one core of a Xeon in nanoseconds, fitted to 2 to 256 levels. Eigenvectors that would take more
    memory than `SAVED_BYTES` are not taken, nor are they within torch.func, where no values may be looked at.
    """
    generators, (tasks, *_, size) = evolution.generators, initial.shape
    levels, segments, states = size // 2, controls.shape[1], initial.shape[1:-1].numel()
    if not tasks or (not evolution.kets and generators.paired):
        return "entries"
    least = SQUARED if not evolution.kets else LONG if levels < LEAST_DENSE else 0
    reach = 1.0 if transforms_active() else bound(fixed, controls, evolution, least)
    if least and not reach > least:
        return "entries"
    if not evolution.kets:
        return "products"
    squares, entries = math.log2(max(reach, 1.0)), generators.entry_count
    by_entries = math.ceil(tasks * states / LANES) * (4 + 8 * reach) * entries * (1.5 + entries / 700)
    by_products = tasks * (1.3 * (7 + squares) * levels**3 + 60 * levels**2) * (1 + 2 * LEAST_DENSE / levels)
    by_eigenvectors = 8_000 + tasks * (200 * levels**2 + 0.8 * levels**3)
    times: dict[Way, float] = {"entries": segments * by_entries, "products": 600_000 + segments * by_products}
    # Complex matrices in fp64, and, for a gradient, states and their cotangents.
    memory = segments * tasks * levels * (128 * levels + 96 * states)
    if memory < SAVED_BYTES and math.isfinite(reach) and not transforms_active():
        times["eigenvectors"] = 60_000 + segments * by_eigenvectors
    return min(times, key=lambda way: times[way])


def bound(fixed: torch.Tensor, controls: torch.Tensor, evolution: Evolution, least: float = 0.0) -> float:
    """What no segment's norm of G t exceeds, by the largest size of each coefficient; not within torch.func.

    least: a rougher bound will do that is not above it; by Cauchy and Schwarz, it takes a small task a third of the time.
    """
    arrays, norms = [each.numpy(force=True) for each in (fixed, controls)], evolution.generators.norms
    fixed_square, controls_square, norms_square = (np.vdot(each, each).item() for each in (*arrays, norms))
    rough = evolution.tau * math.sqrt((fixed_square + controls_square) * norms_square)
    if rough <= least:
        return rough
    sizes = [np.abs(each).max(tuple(range(each.ndim - 1)), initial=0.0) for each in arrays]
    return evolution.tau * float(np.concatenate(sizes) @ norms)
