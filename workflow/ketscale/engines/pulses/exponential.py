"""Exponentials of Hermitian matrices, with derivatives that hold where eigenvalues coincide."""

from __future__ import annotations

import math
from typing import Any

import torch

from ketscale.engines.derivatives import first_derivatives_only
from ketscale.private_torch import transforms_active

# The highest degree of a Taylor polynomial, enough for matrices of norm 1, and what its remainder is below.
HIGHEST_DEGREE, REMAINDER = 18, 1e-17


def unitary(hermitian: torch.Tensor) -> torch.Tensor:
    """exp(-i H) of Hermitian matrices (..., d, d), of which the lower triangle is read.

    The gradient is Hermitian: it is the one in Hermitian directions. Under torch.func there are derivatives of any order.
    """
    if transforms_active():
        smooth: torch.Tensor = torch.linalg.matrix_exp(-0.5j * (hermitian + hermitian.mH))
        return smooth
    result: torch.Tensor = _Unitary.apply(hermitian)
    return result


def taylor(largest: float) -> tuple[int, int]:
    """How often matrices of at most this norm are halved, and the degree of the Taylor polynomial that then serves."""
    # Beyond a norm of 1 halving is cheaper than more terms.
    halvings = max(0, math.ceil(math.log2(largest))) if 0 < largest < math.inf else 0
    norm, degree, remainder = largest / 2**halvings, 1, math.inf
    while remainder > REMAINDER and degree < HIGHEST_DEGREE:
        degree += 1
        remainder = norm ** (degree + 1) / math.factorial(degree + 1)
    return halvings, degree


class _Unitary(torch.autograd.Function):
    """By eigenvectors; the derivative is that of Daleckii and Krein, with divided differences written as a sinc."""

    @staticmethod
    def forward(ctx: Any, hermitian: torch.Tensor) -> torch.Tensor:
        values, vectors = torch.linalg.eigh(hermitian)
        ctx.save_for_backward(values, vectors)
        made = (vectors * torch.exp(-1j * values)[..., None, :]) @ vectors.mH
        # One Newton step makes it unitary to rounding: the same gate acts in every step, and its error adds up.
        return 1.5 * made - 0.5 * made @ (made.mH @ made)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> torch.Tensor:
        first_derivatives_only("the exponential of a matrix")
        values, vectors = ctx.saved_tensors
        half = values / 2
        difference, phase = half[..., :, None] - half[..., None, :], torch.exp(1j * half)
        divided = 1j * torch.sinc(difference / torch.pi) * phase[..., :, None] * phase[..., None, :]
        found = vectors @ (divided * (vectors.mH @ cotangent @ vectors)) @ vectors.mH
        return (found + found.mH) / 2
