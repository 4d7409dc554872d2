"""What functions with backward passes of their own do where somebody wants to differentiate those too."""

from __future__ import annotations

import torch

from ketscale.errors import UserError


def first_derivatives_only(what: str, instead: str = "leave out create_graph=True") -> None:
    """Refuse second derivatives: called in a backward pass that cannot be differentiated.

    torch's `once_differentiable` refuses them only where the cotangent has a graph. If it is a constant, as in a sum,
    the second derivative would be 0 without a word.

    what: has no second derivatives. instead: what to do.

    Raises:
        UserError: the backward pass is to be differentiated.
    """
    if torch.is_grad_enabled():
        raise UserError(f"{what} has first derivatives only: {instead}")


def paired(values: torch.Tensor, cotangent: torch.Tensor) -> torch.Tensor:
    """A real number whose gradient by `values` is `cotangent`, of the same shape, for `torch.autograd` to start from.

    Given a tensor and a cotangent instead, torch imports its symbolic shapes and SymPy, which takes half as long as
    `import torch`.
    """
    with torch.enable_grad():
        return (values * cotangent.conj()).sum().real
