"""The squared error of outputs with its gradient: one compiled call in a training step on a CPU."""

from __future__ import annotations

from functools import cache

import torch

from ketscale.engines.compiled.kernel import Kernel
from ketscale.engines.compiled.language import INTEGER, REAL, Arguments, FunctionCode, reals
from ketscale.engines.compiled.rows import scaled
from ketscale.engines.vjp import VJP

LANES = 16
# width: the numbers of a run. share: one over the columns of a sample.
ARGUMENTS = {
    "runs width": INTEGER,
    "share": REAL,
    "outputs targets gradient": reals("runs", "width"),
    "sums": reals("runs"),
}


def write_squares(k: FunctionCode, args: Arguments) -> None:
    """sums <- share times the sum of (outputs - targets)^2; gradient <- 2 share (outputs - targets)."""
    total = k.variable(k.zero_of(k.real))
    with k.loop(args.runs) as run:
        total.value = k.zero_of(k.real)
        with k.loop(args.width) as number:
            wrong = args.outputs[run, number] - args.targets[run, number]
            args.gradient[run, number] = wrong * (args.share * 2.0)
            total.value += wrong * wrong
        args.sums[run] = total.value * args.share


def vjp(outputs: torch.Tensor, targets: torch.Tensor) -> VJP:
    """The squared errors of outputs (n, columns), their mean over columns summed over samples, (1,); see `engines.vjp`."""
    outputs, targets = outputs.contiguous(), targets.contiguous()
    *runs, samples, columns = outputs.shape
    gradient, sums = torch.empty_like(outputs), outputs.new_empty((*runs, 1))
    # fmt: off
    _kernel(outputs.dtype).run(
        "write_squares", runs=sums.numel(), width=samples * columns, share=1 / columns,
        outputs=outputs, targets=targets, gradient=gradient, sums=sums,
    )
    # fmt: on
    return VJP(sums, lambda cotangent, slots: scaled(gradient, cotangent))


@cache
def _kernel(dtype: torch.dtype) -> Kernel:
    return Kernel((write_squares,), ARGUMENTS, dtype, LANES)
