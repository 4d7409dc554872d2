"""Rows of numbers on a CPU, copied or scaled by compiled code: a batch of samples, gradients.

They are calls that can be recorded (`recorded`), where torch's are not.
"""

from __future__ import annotations

from functools import cache

import torch

from ketscale.engines.compiled.kernel import Kernel
from ketscale.engines.compiled.language import INTEGER, Arguments, FunctionCode, integers, reals

LANES = 16
# width: of a row, in numbers.
ARGUMENTS = {
    "rows width out_apart table_apart": INTEGER,
    "chosen": integers("rows"),
    "table out": reals("all", "width"),
    "factors": reals("rows"),
}


def write_rows(k: FunctionCode, args: Arguments) -> None:
    """out <- the chosen rows of the table."""
    whole = args.width // LANES
    with k.loop(args.rows) as row:
        source, out = args.table[args.chosen[row]], args.out[row]
        with k.each(whole) as vector:
            place = vector * LANES
            out.part((place,), 1, element="vector")[0] = source.part((place,), 1, element="vector")[0]
        with k.when(whole * LANES < args.width), k.loop(args.width - whole * LANES) as number:
            out[whole * LANES + number] = source[whole * LANES + number]


def write_copy(k: FunctionCode, args: Arguments) -> None:
    """out <- table, whose rows are so far apart."""
    with k.loop(args.rows) as row, k.loop(args.width) as number:
        args.out.flat[row * args.out_apart + number] = args.table.flat[row * args.table_apart + number]


def write_scaled(k: FunctionCode, args: Arguments) -> None:
    """out <- out times each row's factor."""
    with k.loop(args.rows) as row, k.loop(args.width) as number:
        args.out[row, number] = args.out[row, number] * args.factors[row]


def scaled(gradient: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """The contiguous gradient of a sum, times the sum's cotangent (1,), in place; of several runs each times its own."""
    width = gradient.numel() // factors.numel()
    factors = factors.contiguous()
    _kernel(gradient.dtype).run(
        "write_scaled", rows=factors.numel(), width=width, factors=factors, out=gradient
    )
    return gradient


def copy(out: torch.Tensor, source: torch.Tensor) -> None:
    """out <- source, floats of one shape and type: (n,), or (runs, n) whose rows may be apart."""
    *runs, width = out.shape
    # fmt: off
    _kernel(out.dtype).run(
        "write_copy", rows=runs[0] if runs else 1, width=width, table=source, table_apart=source.stride(0),
        out=out, out_apart=out.stride(0),
    )
    # fmt: on


def gathered(table: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """table[chosen] of a contiguous table (n, ...) of floats or of int64, for contiguous int64 indices (...) below n, on a CPU.

    Raises:
        ValueError: a tensor is not contiguous.
    """
    if not (table.is_contiguous() and chosen.is_contiguous()):
        raise ValueError("gathered: the table and the indices must be contiguous")
    made = table.new_empty((*chosen.shape, *table.shape[1:]))
    width = table.numel() // len(table)
    # A copy of 64 bits is that of a float.
    _kernel(torch.float64 if table.dtype == torch.int64 else table.dtype).run(
        "write_rows", rows=chosen.numel(), width=width, chosen=chosen, table=table, out=made
    )
    return made


@cache
def _kernel(dtype: torch.dtype) -> Kernel:
    return Kernel((write_rows, write_copy, write_scaled), ARGUMENTS, dtype, LANES)
