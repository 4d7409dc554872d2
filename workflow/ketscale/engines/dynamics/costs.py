"""Which way is fastest for an evolution: the entries of its matrices, their products, or eigenvectors."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch

from ketscale.engines.dynamics.generators import Evolution
from ketscale.private_torch import transforms_active, unwrapped

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
    memory than `KEPT_BYTES` are not taken, nor are they within torch.func, where no values may be looked at.
    """
    generators, (tasks, *_, size) = evolution.generators, initial.shape
    levels, segments, states = size // 2, controls.shape[1], initial.shape[1:-1].numel()
    few = levels < LEAST_DENSE
    if not evolution.kets:
        squared = tasks and not generators.paired and not transforms_active()
        return "products" if squared and bound(fixed, controls, evolution) > SQUARED else "entries"
    if not tasks or (few and not bound(fixed, controls, evolution) > LONG):
        return "entries"
    reach = 1.0
    if not transforms_active():
        sizes = torch.cat([_largest(fixed), _largest(controls)])
        reach = evolution.tau * float(sizes.double() @ generators.norms)
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


def bound(fixed: torch.Tensor, controls: torch.Tensor, evolution: Evolution) -> float:
    """What no segment's norm of G t exceeds."""
    by_fixed, by_controls = evolution.generators.summed_norms
    return evolution.tau * (largest_size(fixed) * by_fixed + largest_size(controls) * by_controls)


def largest_size(tensor: torch.Tensor) -> float:
    """The largest absolute value; 0 of an empty tensor."""
    # NumPy answers sooner, and a small task takes not much longer.
    return float(np.abs(unwrapped(tensor).numpy(force=True)).max(initial=0.0))


def _largest(coefficients: torch.Tensor) -> torch.Tensor:
    """The largest size of each coefficient (..., count), over all tasks and segments."""
    return torch.atleast_2d(coefficients.detach()).abs().flatten(0, -2).amax(0)
