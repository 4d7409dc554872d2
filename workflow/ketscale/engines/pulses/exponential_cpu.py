"""Exponentials of many small Hermitian matrices by machine code: the function of `exponential`, with a matrix a lane."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch

from ketscale.engines.compiled.kernel import Kernel, lanes_of, threads_for
from ketscale.engines.derivatives import first_derivatives_only
from ketscale.engines.pulses import exponential_kernels
from ketscale.engines.pulses.exponential_kernels import HIGHEST_DEGREE, MatrixSize

# The remainder of the Taylor polynomial is below this.
REMAINDER = 1e-17


def unitary(hermitian: torch.Tensor) -> torch.Tensor:
    """exp(-i H) of many small Hermitian matrices (..., d, d) on the CPU, in fp64; see `exponential.unitary`."""
    largest = float(torch.view_as_real(hermitian.detach()).square().sum((-1, -2, -3)).max().sqrt())
    # Beyond a norm of 1 halving is cheaper than more terms.
    halvings = max(0, math.ceil(math.log2(largest))) if 0 < largest < math.inf else 0
    norm, degree, remainder = largest / 2**halvings, 1, math.inf
    while remainder > REMAINDER and degree < HIGHEST_DEGREE:
        degree += 1
        remainder = norm ** (degree + 1) / math.factorial(degree + 1)
    made: torch.Tensor = _Unitary.apply(hermitian / 2**halvings if halvings else hermitian, degree)
    for _ in range(halvings):
        made = made @ made
    return made


class _Unitary(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hermitian: torch.Tensor, degree: int) -> torch.Tensor:
        hermitian = hermitian.resolve_conj().contiguous()
        ctx.save_for_backward(hermitian)
        ctx.degree = degree
        return _call("exponential", degree, {"given": hermitian})

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, None]:
        first_derivatives_only("the exponential of a matrix")
        (hermitian,) = ctx.saved_tensors
        cotangent = cotangent.resolve_conj().contiguous()
        return _call("gradient", ctx.degree, {"given": hermitian, "cotangents": cotangent}), None


def _call(name: str, degree: int, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    given, result = tensors["given"], torch.empty_like(tensors["given"])
    levels = given.shape[-1]
    count = given.numel() // levels**2
    threads = threads_for(count, given.numel() * levels * degree)
    _kernel(MatrixSize(levels)).run(name, threads, count=count, degree=degree, result=result, **tensors)
    return result


@lru_cache(maxsize=8)
def _kernel(plan: MatrixSize) -> Kernel:
    functions, arguments = (
        (exponential_kernels.exponential, exponential_kernels.gradient),
        exponential_kernels.ARGUMENTS,
    )
    return Kernel(functions, arguments, torch.float64, lanes_of(torch.float64), plan)
