"""Functions with derivatives of their own, where somebody wants to differentiate those too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch.autograd import forward_ad

from ketscale.autograd_function import applied
from ketscale.errors import UserError
from ketscale.private_torch import forward_mode, is_grad_batched, transforms_active

P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function that torch.compile cannot trace, and for which it is to break its graph."""

    @wraps(function)
    def called(*arguments: P.args, **keywords: P.kwargs) -> R:
        # Importing the compiler takes a second, so only a caller that compiles does it.
        compiling = torch.compiler.is_compiling()
        return (torch.compiler.disable(function) if compiling else function)(*arguments, **keywords)

    return called


def is_recorded(*tensors: torch.Tensor) -> bool:
    """Whether somebody may ask for derivatives by these tensors."""
    if transforms_active() or forward_mode():
        return True
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def first_derivatives_only(what: str, instead: str = "leave out create_graph=True") -> None:
    """Refuse second derivatives: called in a backward pass that cannot be differentiated.

    torch's `once_differentiable` rejects them only where the cotangent has a graph. If it is a constant, as in a sum,
    the second derivative would be 0 without a word.

    what: has no second derivatives. instead: what to do.

    Raises:
        UserError: the backward pass is to be differentiated.
    """
    if torch.is_grad_enabled():
        raise UserError(f"{what} has first derivatives only: {instead}")


def one_gradient(what: str, cotangent: torch.Tensor, instead: str = "take jacrev of torch.func") -> None:
    """Called in a backward pass that computes one gradient at a time.

    Raises:
        UserError: it is asked for several at once.
    """
    if is_grad_batched(cotangent):
        raise UserError(
            f"{what} computes one gradient at a time: leave out is_grads_batched=True or vectorize=True, or {instead}"
        )


def paired(values: torch.Tensor, cotangent: torch.Tensor) -> torch.Tensor:
    """A real number whose gradient by `values` is `cotangent`, of the same shape, for `torch.autograd` to start from.

    Given a tensor and a cotangent instead, torch imports its symbolic shapes and SymPy, which takes half as long as
    `import torch`.
    """
    with torch.enable_grad():
        return (values * cotangent.conj()).sum().real


class ByOperators(ABC):
    """A function with derivatives of its own, whose further ones are those of torch's operators.

    It is given to `autograd_function.applied`, which has the rules of each method. A subclass has `__call__`, and `plainly` or
    both of `pull` and `push`.
    """

    @abstractmethod
    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The results, of tensors that no transformation sees."""

    def plainly(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The results by torch's operators, or by functions that know their derivatives."""
        raise NotImplementedError

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], needs: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        """See `autograd_function.Differentiable.pull`."""
        gradients: Sequence[torch.Tensor] = torch.func.vjp(self.plainly, *tensors)[1](tuple(cotangents))
        return gradients

    def push(
        self, tensors: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor, ...]:
        """See `autograd_function.Differentiable.push`: the gradient of the gradient.

        torch.func.jvp does not work within torch.autograd.forward_ad.
        """
        values, pull = torch.func.vjp(self.plainly, *tensors)[:2]
        tangents_of = tuple(
            torch.zeros_like(tensor) if tangent is None else tangent
            for tangent, tensor in zip(tangents, tensors, strict=True)
        )
        push = torch.func.vjp(lambda *given: pull(given), *map(torch.zeros_like, values))[1]
        result: tuple[torch.Tensor, ...] = push(tangents_of)
        return result

    def many(self, members: int, mapped: Sequence[bool], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `autograd_function.Differentiable.many`: a call for each member."""
        pairs = list(zip(tensors, mapped, strict=True))
        results = [
            applied(copy(self), *(each[number] if own else each for each, own in pairs))
            for number in range(members)
        ]
        return tuple(torch.stack(each) for each in zip(*results, strict=True))


class Rows(ByOperators):
    """Maps tensors (rows, ...), whose other dimensions may differ, to tensors (rows, ...), each row by itself."""

    @property
    def recorded(self) -> bool:
        """Whether autograd records a call, so that it can be differentiated without these rules."""
        return False

    def many(self, members: int, mapped: Sequence[bool], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.many`; rows of all members are one longer batch."""
        flat = [
            (x if each else x.expand(members, *x.shape)).flatten(0, 1)
            for x, each in zip(tensors, mapped, strict=True)
        ]
        return tuple(result.unflatten(0, (members, -1)) for result in self.called(*flat))

    def called(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The results; if nothing but autograd differentiates, it records the function itself, which then runs once."""
        return applied(self, *tensors) if not self.recorded or transformed(*tensors) else self(*tensors)


def transformed(*tensors: torch.Tensor) -> bool:
    """Whether torch.func is at work, or a tensor carries a tangent: simulators see through neither."""
    if transforms_active():
        return True
    return forward_mode() and any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)
