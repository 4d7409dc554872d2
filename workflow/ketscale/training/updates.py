"""The norms of gradients and Adam's update on a CPU, compiled: torch's operators take twice as long."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from ketscale.engines.compiled.library import Library, Recipe
from ketscale.training import update_kernels
from ketscale.training.update_kernels import CHUNK_VECTORS, lanes

# Handing fewer numbers to another thread takes longer than updating them.
NUMBERS_PER_THREAD = 32_768


def norms(gradients: torch.Tensor) -> torch.Tensor:
    """The norm of each row (rows,) of gradients (rows, numbers) on a CPU, whose rows are whole vectors of 64 bytes."""
    double, vectors = _form(gradients)
    found = gradients.new_empty(gradients.shape[0])
    arguments = array("q", (gradients.data_ptr(), gradients.shape[0], vectors, found.data_ptr()))
    _library().on_one_thread["norms_double" if double else "norms_single"](arguments.buffer_info()[0])
    return found


def adam(rows: Sequence[torch.Tensor], norms: torch.Tensor, settings: Sequence[float]) -> None:
    """Update the rows of (values, gradients, means, squares), each (rows, numbers); the gradients stay as they are.

    norms: of the gradients (rows,), of the same type. settings: for each row those of `update_kernels.SETTINGS`.
    """
    values = rows[0]
    double, vectors = _form(values)
    chunks = -(-vectors // CHUNK_VECTORS)
    every = chunks * values.shape[0]
    table = array("d", settings)
    # fmt: off
    arguments = array("q", (
        *[row.data_ptr() for row in rows], vectors, norms.data_ptr(), table.buffer_info()[0], chunks, every, 0,
    ))
    # fmt: on
    threads = max(1, min(torch.get_num_threads(), every, values.numel() // NUMBERS_PER_THREAD))
    _library().on_threads("adam_double" if double else "adam_single", arguments.buffer_info()[0], threads)


def _form(rows: torch.Tensor) -> tuple[bool, int]:
    """Whether rows are in double precision, and how many vectors there are in each."""
    double = rows.dtype == torch.float64
    return double, rows.shape[1] // lanes(double)


# The files whose changes make the compiled code outdated.
SOURCES = (Path(update_kernels.__file__),)


@cache
def _library() -> Library:
    names = tuple(f"{name}_{precision}" for name in ("norms", "adam") for precision in ("single", "double"))
    return Library(Recipe("updates", names, update_kernels.module, SOURCES))
