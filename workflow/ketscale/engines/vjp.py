"""Vector-Jacobian products that are computed without a graph of autograd, by calls of our own.

For a small model that graph takes as long as all the arithmetic of a training step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import torch
from torch import nn

Method = TypeVar("Method", bound=Callable[..., Any])


class Slots(Protocol):
    """The places for the gradients of parameters."""

    def slot(self, parameter: torch.Tensor) -> torch.Tensor:
        """The memory for a parameter's gradient, of its shape and type: to be written once in a step, and as a whole."""
        ...


# Puts the gradients of all parameters into their slots, for the cotangent of a value; the cotangent of its inputs, None
# if it was not asked for.
PullBack: TypeAlias = Callable[[torch.Tensor, Slots], torch.Tensor | None]


class VJP(NamedTuple):
    """A value, and its vector-Jacobian product: what to call with its cotangent, once at most; without gradients enabled.

    All numbers of one run are those of the same call with autograd, to rounding. If all parameters and inputs have a
    first dimension of runs, so has the value.
    """

    value: torch.Tensor
    back: PullBack


def vjp_of(called: Callable[..., torch.Tensor]) -> Callable[[Method], Method]:
    """Decorates a method `vjp` with the method of its class whose value it computes.

    A class that changes that method, as a subclass or later, has to state a `vjp` of its own, or none is used.
    """

    def marked(method: Method) -> Method:
        method.vjp_of = called  # type: ignore[attr-defined]
        return method

    return marked


def offered(module: nn.Module) -> Callable[..., Any] | None:
    """The method `vjp` of a module; None if it has none for the method that is called, or it has hooks."""
    kind, own = type(module), module.__dict__
    called = getattr(getattr(kind, "vjp", None), "vjp_of", None)
    if called is None or getattr(kind, called.__name__) is not called:
        return None
    if called.__name__ in own or "vjp" in own or watched(module):
        return None
    function: Callable[..., Any] = module.vjp  # type: ignore[assignment]
    return function


def watched(module: nn.Module) -> bool:
    """Whether a module has hooks, which see only calls of modules, or tensors that autograd makes of parameters."""
    return any(watchers(module)[:4]) or "parametrizations" in module._modules


def watchers(module: nn.Module) -> tuple[Any, ...]:
    """What is no longer empty once a module is watched; the last one holds parts, so this is for modules without any."""
    hooks: Any = module
    return (
        hooks._forward_hooks,
        hooks._forward_pre_hooks,
        hooks._backward_hooks,
        hooks._backward_pre_hooks,
        module._modules,
    )
