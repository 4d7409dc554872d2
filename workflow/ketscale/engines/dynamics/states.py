"""What is read from density matrices: fidelities, and whether they are physical."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from ketscale.engines.dynamics.settings import Form
from ketscale.engines.dynamics.tasks import as_complex, as_states, check_batches
from ketscale.errors import UserError
from ketscale.shapes import Float, Shaped

# From the overlap Tr(rho sigma) with a pure target. The published loss is 1 - `squared`.
FORMS: dict[Form, Callable[[torch.Tensor], torch.Tensor]] = {
    "overlap": lambda overlap: overlap,
    "squared": lambda overlap: overlap.square().clamp(0, 1),
}


def fidelity(
    rho: Shaped[torch.Tensor, "*states d d"] | NDArray[Any], target: Any, form: Form = "overlap"
) -> Float[torch.Tensor, "*states"]:
    """The fidelity of density matrices (..., d, d) with pure targets (d,) or (..., d), real (...).

    form: overlap: <t|rho|t> = Tr(rho sigma), which is the fidelity; squared: its square between 0 and 1, as the
        published code has it. Where a state is not physical, overlap may be above 1 and squared has no gradient.

    Raises:
        UserError: there is no such form, these are no density matrices, or the targets have another dimension or number.

    Example:
        >>> fidelity(torch.eye(2, dtype=torch.complex128) / 2, [1, 0]).item()
        0.5
    """
    if form not in FORMS:
        raise UserError(f"form: {form!r} is not one of {', '.join(FORMS)}")
    rho = _density_matrices(rho)
    state = as_complex(target, rho.real)
    if not state.ndim or state.shape[-1] != rho.shape[-1]:
        raise UserError(f"target must be a state of {rho.shape[-1]} amplitudes, not {tuple(state.shape)}")
    check_batches(rho.shape[:-2], state.shape[:-1])
    terms = "i,...ij,j->..." if state.ndim == 1 else "...i,...ij,...j->..."
    return FORMS[form](torch.einsum(terms, state.conj(), rho, state).real)


class Violations(NamedTuple):
    """How far density matrices are from physical ones; each is (...) and at least 0.

    trace: |Tr rho - 1|. hermiticity: largest |rho - rho^+|. negativity: minus the smallest eigenvalue, if that is
    negative, else 0.
    """

    trace: torch.Tensor
    hermiticity: torch.Tensor
    negativity: torch.Tensor


@torch.no_grad()
def violations(rho: Any) -> Violations:
    """How far density matrices (..., d, d) are from physical ones: `trace`, `hermiticity`, `negativity`, each (...), ideally 0.

    `trace` is |Tr rho - 1|, `hermiticity` the largest |rho - rho^+|, and `negativity` minus the smallest eigenvalue where that
    is negative.

    Raises:
        UserError: these are no density matrices.

    Example:
        >>> violations(torch.eye(2, dtype=torch.complex128)).trace.item()
        1.0
    """
    rho = _density_matrices(rho)
    trace = (rho.diagonal(dim1=-2, dim2=-1).sum(-1) - 1).abs()
    eigenvalues = torch.linalg.eigvalsh((rho + rho.mH) / 2)
    return Violations(trace, (rho - rho.mH).abs().amax((-2, -1)), (-eigenvalues[..., 0]).clamp(min=0))


def _density_matrices(given: Any) -> torch.Tensor:
    rho = as_states("rho", given)
    if rho.ndim < 2 or rho.shape[-2] != rho.shape[-1]:
        raise UserError(
            f"rho: must be density matrices (..., d, d), not {tuple(rho.shape)}; of kets use ket_fidelity"
        )
    return rho
