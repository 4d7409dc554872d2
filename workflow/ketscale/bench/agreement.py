"""Does a simulator compute the right thing? Its loss and gradients against a reference in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.bench.cases import Subject, case_of
from ketscale.bench.selection import Cell

ROWS = 8
# Largest distance from the reference, as a share of the reference's norm.
TOLERANCES: dict[type[np.floating[Any]], float] = {np.float64: 1e-8, np.float32: 1e-3}
# The same for a graph's replay and the call that it was captured from, in fp32: only sums may be in another order.
REPLAY_TOLERANCE = 1e-5


def failure(subject: Subject, reference: Subject, cell: Cell) -> str | None:
    """Why the subject fails on the cell's circuit, with `ROWS` samples; None where it agrees."""
    small = cell._replace(batch=ROWS)
    expected = vector(reference.prepare(case_of(small, np.float64))())
    for dtype, tolerance in TOLERANCES.items():
        got = vector(subject.prepare(case_of(small, dtype))())
        if got.shape != expected.shape:
            return f"{dtype.__name__}: {got.size} numbers instead of {expected.size}"
        error = distance(got, expected)
        if not error <= tolerance:  # NaN fails too
            return f"{dtype.__name__}: off by {error:.1e} of the norm"
    return None


def distance(got: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """As a share of the norm of what is expected."""
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


def vector(result: tuple[Any, ...]) -> NDArray[np.float64]:
    """Loss and gradients one after the other."""
    parts = [part.cpu() if isinstance(part, torch.Tensor) else part for part in result]
    return np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in parts])
