"""Functions with derivatives of their own, where somebody wants to differentiate those too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


def pushed(
    function: Callable[..., tuple[torch.Tensor, ...]],
    values: Sequence[torch.Tensor],
    tangents: Sequence[torch.Tensor | None],
) -> tuple[torch.Tensor, ...]:
    """The derivatives of a function along tangents, None for 0, as the gradient of its gradient.

    torch.func.jvp does not work within torch.autograd.forward_ad.
    """
    results, pull = torch.func.vjp(function, *values)[:2]
    moved = tuple(
        torch.zeros_like(value) if tangent is None else tangent
        for tangent, value in zip(tangents, values, strict=True)
    )
    push = torch.func.vjp(lambda *given: pull(given), *map(torch.zeros_like, results))[1]
    made: tuple[torch.Tensor, ...] = push(moved)
    return made


def one_by_one(
    function: Callable[..., tuple[torch.Tensor, ...]],
    members: int,
    mapped: Sequence[bool],
    tensors: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """The results (members, ...) of a call for each member; see `private_torch.Differentiable.many`."""
    given = list(zip(tensors, mapped, strict=True))
    found = [function(*(each[k] if own else each for each, own in given)) for k in range(members)]
    return tuple(torch.stack(each) for each in zip(*found, strict=True))
