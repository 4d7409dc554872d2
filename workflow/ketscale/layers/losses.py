"""Summed losses with their gradients: one compiled call in a training step on a CPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn

from ketscale.engines.compiled.functions import exp, log
from ketscale.engines.compiled.kernel import Kernel
from ketscale.engines.compiled.language import (
    INTEGER,
    REAL,
    Arguments,
    FunctionCode,
    ceil_divided,
    fma,
    integers,
    is_nan,
    lane_sum,
    maximum,
    reals,
    select,
)
from ketscale.engines.derivatives import first_derivatives_only
from ketscale.engines.members import at_once, only_mapped
from ketscale.engines.vjp import VJP
from ketscale.private_torch import transforms_active

# The lanes of a vector hold samples of the cross-entropy.
LANES = 16
INFINITY, NAN = float("inf"), float("nan")
# columns: classes, or the numbers of a sample. share: one over these.
ARGUMENTS = {
    "runs rows columns": INTEGER,
    "outputs targets gradient": reals("runs", "rows", "columns"),
    "labels": integers("runs", "rows"),
    "share": REAL,
    "sums": reals("runs"),
}


def write_entropies(k: FunctionCode, args: Arguments) -> None:
    """sums <- sum of log(sum(exp(logits))) - the label's logit; gradient <- softmax(logits) - 1 at the label."""
    zero = k.vector(0.0)
    total, highest, weight, own, spoilt = (k.variable(zero) for _ in range(5))
    with k.loop(args.runs) as run:
        total.value = zero
        with k.loop(ceil_divided(args.rows, LANES)) as group:
            # Lanes beyond the last row repeat it, and do not count.
            rows, counted = k.lanes_of(group, args.rows)
            arrays = args.outputs, args.gradient, args.labels
            logits, gradient, label = (each[run, rows] for each in arrays)
            highest.value, weight.value, own.value, spoilt.value = k.vector(-INFINITY), zero, zero, zero
            with k.loop(args.columns) as index:
                value = logits[index]
                highest.value = maximum(value, highest.value)
                # `exp` and `maximum` do not pass these on.
                spoilt.value = select(is_nan(value) | (value == INFINITY), NAN, spoilt.value)
            spoilt.value = select(highest.value == -INFINITY, NAN, spoilt.value)
            with k.loop(args.columns) as index:
                value = logits[index] - highest.value
                weight.value += exp(value)
                own.value = select(label == index, value, own.value)
            loss = log(weight.value) - own.value + spoilt.value
            total.value += select(counted, loss, 0.0)
            share = 1.0 / weight.value
            with k.loop(args.columns) as index:
                value = exp(logits[index] - highest.value)
                at_label = select(label == index, spoilt.value - 1.0, spoilt.value)
                gradient[index] = fma(value, share, at_label)
        args.sums[run] = lane_sum(total.value).lane(0)


def write_squares(k: FunctionCode, args: Arguments) -> None:
    """sums <- share times the sum of (outputs - targets)^2; gradient <- 2 share (outputs - targets)."""
    total = k.variable(k.zero_of(k.real))
    with k.loop(args.runs) as run:
        total.value = k.zero_of(k.real)
        outputs, targets, gradient = (each[run].flat for each in (args.outputs, args.targets, args.gradient))
        with k.loop(args.rows * args.columns) as number:
            wrong = outputs[number] - targets[number]
            gradient[number] = wrong * (args.share * 2.0)
            total.value += wrong * wrong
        args.sums[run] = total.value * args.share


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, classes: int) -> torch.Tensor:
    """The sum (1,) over logits (n, columns) of the cross-entropy with labels int64 (n,), which are below `classes`.

    Raises:
        IndexError: there are fewer columns than classes, and a label is none of them.
    """
    mapped = transforms_active()
    if not _compiled(logits, classes) or logits.dim() != 2 or (mapped and not only_mapped()):
        return nn.functional.cross_entropy(logits, labels, reduction="sum").reshape(1)
    if mapped:
        return at_once(_Summed.apply, logits, labels)
    losses: torch.Tensor = _Summed.apply(logits, labels)
    return losses


def cross_entropy_vjp(logits: torch.Tensor, labels: torch.Tensor, classes: int) -> VJP | None:
    """`cross_entropy`, see `engines.vjp`; None where it is not compiled."""
    if not _compiled(logits, classes):
        return None
    sums, gradient = _summed("write_entropies", logits, labels=labels)
    return VJP(sums, lambda cotangent, slots: gradient.mul_(cotangent.unsqueeze(-1)))


def squared_error_vjp(outputs: torch.Tensor, targets: torch.Tensor) -> VJP:
    """The squared errors of outputs (n, columns), their mean over columns summed over samples, (1,); see `engines.vjp`."""
    sums, gradient = _summed("write_squares", outputs, targets=targets)
    return VJP(sums, lambda cotangent, slots: gradient.mul_(cotangent.unsqueeze(-1)))


def _compiled(logits: torch.Tensor, classes: int) -> bool:
    shape, able = logits.shape, logits.is_cpu and logits.dtype in (torch.float32, torch.float64)
    return able and len(shape) in (2, 3) and shape[-2] > 0 and shape[-1] >= classes


class _Summed(torch.autograd.Function):
    """Sums (1,) of logits (n, classes); of several runs, (runs, n, classes), sums (runs, 1)."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        sums, gradient = _summed("write_entropies", logits, labels=labels)
        ctx.save_for_backward(gradient)
        return sums

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, None]:
        first_derivatives_only("a step of the cross-entropy")
        (gradient,) = ctx.saved_tensors
        return gradient * cotangent.unsqueeze(-1), None


def _summed(
    function: str, outputs: torch.Tensor, **compared: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums (1,) or (runs, 1) of a function, and their gradients by the outputs."""
    outputs = outputs.contiguous()
    *runs, rows, columns = outputs.shape
    gradient, sums = torch.empty_like(outputs), outputs.new_empty((*runs, 1))
    # fmt: off
    _kernel(outputs.dtype).run(
        function, runs=sums.numel(), rows=rows, columns=columns, share=1 / columns, outputs=outputs,
        gradient=gradient, sums=sums, **{name: tensor.contiguous() for name, tensor in compared.items()},
    )
    # fmt: on
    return sums, gradient


@cache
def _kernel(dtype: torch.dtype) -> Kernel:
    return Kernel((write_entropies, write_squares), ARGUMENTS, dtype, LANES)
