"""Does a simulator compute the right thing? Its loss and gradients against default.qubit in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ketscale.bench.cases import Call, Subject, case_of
from ketscale.bench.selection import Cell

ROWS = 8
# Largest distance from the reference, as a share of the reference's norm.
TOLERANCES: dict[type[np.floating[Any]], float] = {np.float64: 1e-8, np.float32: 1e-3}


def failure(subject: Subject, reference: Subject, cell: Cell) -> str | None:
    """Why the subject fails on the cell's circuit, with `ROWS` samples; None where it agrees."""
    small = cell._replace(batch=ROWS)
    expected = _vector(reference.prepare(case_of(small, np.float64)))
    for dtype, tolerance in TOLERANCES.items():
        got = _vector(subject.prepare(case_of(small, dtype)))
        if got.shape != expected.shape:
            return f"{dtype.__name__}: {got.size} numbers instead of {expected.size}"
        error = float(np.linalg.norm(got - expected) / np.linalg.norm(expected))
        if not error <= tolerance:  # NaN fails too
            return f"{dtype.__name__}: off by {error:.1e} of the norm"
    return None


def _vector(call: Call) -> NDArray[np.float64]:
    """Loss and gradients one after the other."""
    return np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in call()])
