"""Values whose gradients are computed without a graph of autograd, by calls of our own.

For a small model that graph takes as long as all the arithmetic of a training step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import nn


class Slots(Protocol):
    """Where the gradients of parameters belong."""

    def slot(self, parameter: torch.Tensor) -> torch.Tensor:
        """The memory for a parameter's gradient, of its shape and type: to be written once in a step, and as a whole."""
        ...


# Puts the gradients of all parameters into their slots, for the cotangent of a value; the cotangent of its inputs, None
# if nobody asked for it.
PullBack: TypeAlias = Callable[[torch.Tensor, Slots], torch.Tensor | None]


class Pulled(NamedTuple):
    """A value, and what to call with its cotangent, once at most; both without gradients enabled.

    All numbers of one run are those of the same call with autograd, to the last bit. Where all parameters and inputs have
    a first dimension of runs, so has the value.
    """

    value: torch.Tensor
    back: PullBack


def offered(module: nn.Module, instead_of: str) -> Callable[..., Any] | None:
    """The method `pulled` of a module, which does what the named one does; None if it does not, or somebody watches.

    A subclass or an object that changes one of the two alone does not have it. Hooks see only calls of modules.
    """
    own = vars(module)
    changed = instead_of in own or "pulled" in own or not _together(type(module), instead_of)
    if changed or module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
        return None
    function: Callable[..., Any] = module.pulled  # type: ignore[assignment]
    return function


def _together(kind: type, instead_of: str) -> bool:
    """Whether the first class that defines one of the two methods defines both."""
    for each in kind.__mro__:
        names = vars(each)
        if instead_of in names or "pulled" in names:
            return instead_of in names and "pulled" in names
    return False
