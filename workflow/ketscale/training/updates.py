"""The norms of gradients and Adam's update on a CPU, compiled: torch's operators take twice as long."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache

import torch

from ketscale.engines.compiled.kernel import Kernel, threads_for
from ketscale.training import update_kernels
from ketscale.training.update_kernels import CHUNK_VECTORS, VECTOR_BYTES

# Handing fewer numbers to another thread takes longer than updating them.
NUMBERS_PER_THREAD = 32_768


def norms(gradients: torch.Tensor) -> torch.Tensor:
    """The norm of each row (rows,) of gradients (rows, numbers) on a CPU, whose rows are whole vectors of 64 bytes."""
    rows, vectors = _form(gradients)
    found = gradients.new_empty(rows)
    _kernel(gradients.dtype)("norms", rows=rows, vectors=vectors, gradients=gradients, norms=found)
    return found


def adam(rows: Sequence[torch.Tensor], norms: torch.Tensor, settings: Sequence[float]) -> None:
    """Update the rows of (values, gradients, means, squares), each (rows, numbers); the gradients stay as they are.

    norms: of the gradients (rows,), of the same type. settings: for each row those of `update_kernels.AdamSettings`.
    """
    values, gradients, means, squares = rows
    count, vectors = _form(values)
    chunks = -(-vectors // CHUNK_VECTORS)
    # fmt: off
    _kernel(values.dtype)(
        "adam", threads_for(chunks * count, values.numel(), NUMBERS_PER_THREAD),
        vectors=vectors, chunks=chunks, tasks=chunks * count, norms=norms, settings=array("d", settings),
        values=values, gradients=gradients, means=means, squares=squares,
    )
    # fmt: on


def _form(rows: torch.Tensor) -> tuple[int, int]:
    """The number of rows, and of the vectors in each."""
    count, numbers = rows.shape
    return count, numbers * rows.itemsize // VECTOR_BYTES


@cache
def _kernel(dtype: torch.dtype) -> Kernel:
    functions, lanes = (update_kernels.norms, update_kernels.adam), VECTOR_BYTES // dtype.itemsize
    return Kernel(functions, update_kernels.ARGUMENTS, dtype, lanes)
