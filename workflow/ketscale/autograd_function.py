"""`torch.autograd.Function` for compiled code: its rules under autograd, forward mode and torch.func, without torch's own cost.

Under torch.func, torch makes a class for each call and transformation and asks pytree about all arguments: a sine of 32
numbers takes 234 µs under vmap, 474 under grad and 691 under vmap of grad, and 84, 251 and 338 by `applied` (one core of
an Intel Xeon, torch 2.13). Another version may change the private functions; tests/unit/test_private_torch.py then fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol

import torch
from torch._C import _functorch
from torch._functorch.pyfunctorch import (
    FuncTorchInterpreter,
    VmapInterpreter,
    retrieve_current_functorch_interpreter,
)
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from ketscale.private_torch import forward_mode, transforms_active


def at_once(function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> torch.Tensor:
    """A member's result of a function that takes the tensors of all members, (members, ...), and gives (members, ...).

    Only where `only_mapped`.
    """
    interpreter = retrieve_current_functorch_interpreter()
    assert isinstance(interpreter, VmapInterpreter)
    members = interpreter.batch_size()
    pairs = [_of_members(tensor, interpreter) for tensor in tensors]
    with interpreter.lower():
        if members:
            result = function(*(x if each else x.expand(members, *x.shape) for x, each in pairs))
        else:
            result = function(*(_one_of_zeros(x) if each else x[None] for x, each in pairs))[:0]
    return _functorch._add_batch_dim(result, 0, interpreter.level())


def _of_members(tensor: torch.Tensor, interpreter: VmapInterpreter) -> tuple[torch.Tensor, bool]:
    """A tensor of all members, (members, ...), and True; or one that they share, and False."""
    if not _functorch.is_batchedtensor(tensor) or _functorch.maybe_get_level(tensor) != interpreter.level():
        return tensor, False
    dim, plain = _functorch.maybe_get_bdim(tensor), _functorch.get_unwrapped(tensor)
    return plain if dim == 0 else plain.movedim(dim, 0), True


def _one_of_zeros(members: torch.Tensor) -> torch.Tensor:
    """A member where there are none, whose results tell their shapes."""
    return members.new_zeros(1, *members.shape[1:])


class Differentiable(Protocol):
    """Maps tensors to tensors outside of torch, and knows its derivatives, which can be differentiated and mapped again."""

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The results."""

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], needs: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        """The gradients by the tensors that need one."""

    def push(
        self, tensors: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor, ...]:
        """The derivatives of the results along the tangents, of which one at least is not None, for 0."""

    def many(self, members: int, mapped: Sequence[bool], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The results (members, ...) for tensors (members, ...) where `mapped`, and tensors that members share."""


def applied(function: Differentiable, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The results of a function in all of torch's transformations, in any order."""
    interpreter = retrieve_current_functorch_interpreter() if transforms_active() else None
    if isinstance(interpreter, VmapInterpreter):
        plain, mapped = zip(*(_of_members(tensor, interpreter) for tensor in tensors), strict=True)
        with interpreter.lower():
            if not any(mapped):
                return applied(function, *plain)
            members = interpreter.batch_size()
            if not members:
                plain = tuple(_one_of_zeros(x) if each else x for x, each in zip(plain, mapped, strict=True))
            results = function.many(members or 1, mapped, *plain)
            results = results if members else tuple(each[:0] for each in results)
        return tuple(_functorch._add_batch_dim(each, 0, interpreter.level()) for each in results)
    if interpreter is not None:
        # What belongs to a transformation outside of this one is not to be recorded, nor to carry tangents, here.
        level = interpreter.level()
        tensors = tuple(
            x if _functorch.maybe_get_level(x) == level else _functorch._wrap_for_grad(x, level)
            for x in tensors
        )
    if forward_mode() or (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
        with nullcontext() if interpreter is None else enable_single_level_autograd_function():
            return _apply(function, interpreter, *tensors)
    with torch.no_grad():
        return _below(interpreter, partial(applied, function) if interpreter else function, *tensors)


def _below(
    interpreter: FuncTorchInterpreter | None,
    call: Callable[..., tuple[torch.Tensor, ...]],
    *tensors: torch.Tensor | None,
) -> tuple[torch.Tensor, ...]:
    """The results of a call of which the innermost transformation, None outside of all, learns nothing."""
    if interpreter is None:
        return call(*tensors)
    level = interpreter.level()
    plain = (None if tensor is None else _functorch._unwrap_for_grad(tensor, level) for tensor in tensors)
    # torch takes both from all transformations while it asks a function; those outside of this one need them.
    with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), interpreter.lower():
        outputs = call(*plain)
    return tuple(_functorch._wrap_for_grad(each, level) for each in outputs)


class _Applied(torch.autograd.function._SingleLevelFunction):
    """Calls a function, and tells the innermost transformation, or autograd alone, how it is differentiated."""

    @staticmethod
    def forward(
        ctx: Any, function: Differentiable, interpreter: FuncTorchInterpreter | None, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        results = _below(interpreter, partial(applied, function) if interpreter else function, *tensors)
        ctx.interpreter = interpreter
        ctx.set_materialize_grads(False)
        ctx.function, ctx.results = function, [(each.shape, each.dtype) for each in results]
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if any(each is None for each in cotangents):
            there = next((each for each in cotangents if each is not None), None)
            if there is None:
                return (None,) * len(ctx.needs_input_grad)
            cotangents = tuple(
                there.new_zeros(shape, dtype=dtype) if each is None else each
                for each, (shape, dtype) in zip(cotangents, ctx.results, strict=True)
            )
        # What the forward pass kept may belong to a transformation that is over.
        saved = tuple(map(_functorch.unwrap_if_dead, ctx.saved_tensors))
        return None, None, *ctx.function.pull(saved, cotangents, ctx.needs_input_grad[2:])

    @staticmethod
    def jvp(ctx: Any, _: None, __: None, *tangents: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        def push(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            results: tuple[torch.Tensor, ...] = ctx.function.push(tensors[:count], tensors[count:])
            return results

        count, tensors = len(tangents), ctx.saved_tensors
        if ctx.interpreter is None:
            # They still have their tangents, by which a function that is asked within `push` would be differentiated again.
            tensors = [forward_ad.unpack_dual(tensor).primal for tensor in tensors]
        # One level down, since operators of this level carry no tangents here, whatever is outside of it.
        return _below(ctx.interpreter, push, *tensors, *tangents)


_apply: Callable[..., tuple[torch.Tensor, ...]] = _Applied.apply  # type: ignore[attr-defined]
