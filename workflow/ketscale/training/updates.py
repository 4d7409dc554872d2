"""The norms of gradients and Adam's update on a CPU, compiled: torch's operators take twice as long.

A row is a whole number of vectors, aligned to them. Its results do not depend on the other rows, on the width of the
processor's vectors or on the number of threads.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch

from ketscale.engines.compiled.kernel import Kernel, threads_for
from ketscale.engines.compiled.language import (
    DOUBLE,
    INTEGER,
    Arguments,
    FunctionCode,
    Number,
    aligned,
    chunk,
    doubles,
    fma,
    fnma,
    minimum,
    reals,
    sqrt,
)

# chunks: of a row. tasks: chunks of all rows.
ARGUMENTS = {
    "rows vectors chunks tasks": INTEGER,
    "values gradients means squares": aligned("rows", "vectors"),
    "norms": reals("rows"),
    "settings": doubles("rows", 7),
}
# What a thread updates of a row at a time.
CHUNK_VECTORS = 512
# Added to the norm that a gradient is clipped by, as in torch.nn.utils.clip_grad_norm_.
TINY = 1e-6
VECTOR_BYTES = 64


class AdamSettings(NamedTuple):
    """The `settings` of a row; rate and root have the corrections of the bias.

    rate: divided by 1 - keep_mean^step. root: 1 / sqrt(1 - keep_square^step).
    """

    limit: Number
    decay: Number
    keep_mean: Number
    keep_square: Number
    rate: Number
    root: Number
    epsilon: Number


def write_norms(k: FunctionCode, args: Arguments) -> None:
    """The norm of each row, from squares in double precision."""
    zero = k.vector(0.0).as_float(DOUBLE)
    sums = k.variable(zero)
    with k.loop(args.rows) as row:
        sums.value = zero
        with k.loop(args.vectors) as vector:
            number = args.gradients[row, vector].as_float(DOUBLE)
            sums.value += number * number
        total = sums.value.lane(0)
        for lane in range(1, k.lanes):
            total = total + sums.value.lane(lane)
        args.norms[row] = sqrt(total).as_float()


def write_adam(k: FunctionCode, args: Arguments) -> None:
    """Kingma and Ba, arXiv 1412.6980, with gradients clipped to a norm of `limit`."""
    with k.tasks(args.tasks) as task:
        row = task // args.chunks
        own = AdamSettings(*(args.settings[row, number] for number in range(len(AdamSettings._fields))))
        # In single precision 1 - 0.999 would be wrong by 1e-5 of it.
        scale, take_mean, take_square, decay, keep_square, rate, root, epsilon = (
            number.as_float().splat()
            for number in (
                minimum(1.0, own.limit / (args.norms[row].as_float(DOUBLE) + TINY)),
                1.0 - own.keep_mean,
                1.0 - own.keep_square,
                *(own.decay, own.keep_square, own.rate, own.root, own.epsilon),
            )
        )
        values, gradients, means, squares = (
            getattr(args, name)[row] for name in ("values", "gradients", "means", "squares")
        )
        first, count = chunk(task % args.chunks, CHUNK_VECTORS, args.vectors)
        with k.loop(count) as index:
            at = first + index
            value, mean, square = values[at], means[at], squares[at]
            gradient = fma(decay, value, gradients[at] * scale)
            mean = fma(take_mean, gradient - mean, mean)
            square = fma(take_square, gradient * gradient, keep_square * square)
            values[at] = fnma(rate, mean / fma(sqrt(square), root, epsilon), value)
            means[at], squares[at] = mean, square


# Handing fewer numbers to another thread takes longer than updating them.
NUMBERS_PER_THREAD = 32_768


def norms(gradients: torch.Tensor) -> torch.Tensor:
    """The norm of each row (rows,) of gradients (rows, numbers) on a CPU, whose rows are whole vectors of 64 bytes."""
    rows, vectors = _form(gradients)
    norms = gradients.new_empty(rows)
    _kernel(gradients.dtype).run("write_norms", rows=rows, vectors=vectors, gradients=gradients, norms=norms)
    return norms


def adam(rows: Sequence[torch.Tensor], norms: torch.Tensor, settings: Sequence[float]) -> None:
    """Update the rows of (values, gradients, means, squares), each (rows, numbers); the gradients stay as they are.

    norms: of the gradients (rows,), of the same type. settings: for each row those of `AdamSettings`.
    """
    values, gradients, means, squares = rows
    count, vectors = _form(values)
    chunks = -(-vectors // CHUNK_VECTORS)
    table = array("d", settings)
    # fmt: off
    _kernel(values.dtype).run(
        "write_adam", threads_for(chunks * count, values.numel(), NUMBERS_PER_THREAD),
        vectors=vectors, chunks=chunks, tasks=chunks * count, norms=norms, settings=table.buffer_info()[0],
        values=values, gradients=gradients, means=means, squares=squares,
    )
    # fmt: on


def _form(rows: torch.Tensor) -> tuple[int, int]:
    """The number of rows, and of the vectors in each."""
    count, numbers = rows.shape
    return count, numbers * rows.itemsize // VECTOR_BYTES


@cache
def _kernel(dtype: torch.dtype) -> Kernel:
    functions, lanes = (write_norms, write_adam), VECTOR_BYTES // dtype.itemsize
    return Kernel(functions, ARGUMENTS, dtype, lanes)
