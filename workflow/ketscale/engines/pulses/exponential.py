"""Exponentials of Hermitian matrices, with derivatives that hold where eigenvalues coincide."""

from __future__ import annotations

from typing import Any

import torch

from ketscale.engines.derivatives import first_derivatives_only


def unitary(hermitian: torch.Tensor) -> torch.Tensor:
    """exp(-i H) of Hermitian matrices (..., d, d), of which the lower triangle is read.

    The gradient is Hermitian: it is the one in Hermitian directions.
    """
    result: torch.Tensor = _Unitary.apply(hermitian)
    return result


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
