"""Names of torch that begin with an underscore: all that KetScale uses, with the reason for each.

Another version of torch may change them. tests/test_private_torch.py then says which, and says too if another file uses
one. Modules and functions are bound here by public names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import nn
from torch._C import _functorch
from torch._functorch.pyfunctorch import VmapInterpreter, retrieve_current_functorch_interpreter
from torch._ops import OpOverload
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, get_proxy_mode, has_proxy_slot
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "OpOverload",
    "TorchDispatchMode",
    "at_once",
    "constant_when_traced",
    "copy_all",
    "forward_mode",
    "fused_adam_step",
    "is_grad_batched",
    "is_mapped",
    "is_recorded",
    "mapped",
    "only_mapped",
    "pull_back",
    "pytree",
    "transforms_active",
    "unrecorded",
]

M = TypeVar("M", bound=nn.Module)
F = TypeVar("F", bound=Callable[..., object])

# pytree: nested results of a QNode as torch flattens them; torch has no public module for that.
# OpOverload: the type of what a record of `make_fx` calls; the public torch.ops has only instances.

# Whether torch.func is at work: a simulator that computes outside of torch must not run then. torch.func does not say.
transforms_active: Callable[[], bool] = torch._C._are_functorch_transforms_active

# Whether a gradient is one of several that autograd asks for at once (is_grads_batched, vectorize).
is_grad_batched: Callable[[torch.Tensor], bool] = _functorch.is_legacy_batchedtensor

# Whether torch.func.vmap maps a tensor.
is_mapped: Callable[[torch.Tensor], bool] = _functorch.is_batchedtensor

# One call for all tensors, where a loop of copy_ takes a microsecond for each.
copy_all: Callable[..., None] = torch._foreach_copy_

# Adam's step alone: the classes of torch.optim import the compiler at their first one, which takes two seconds.
fused_adam_step: Callable[..., None] = torch._fused_adam_

# A context in which `make_fx` records nothing.
unrecorded = disable_proxy_modes_tracing


def constant_when_traced(function: F) -> F:
    """Decorates a function of constants, which torch.compile then calls once, while it traces.

    `torch.compiler.assume_constant_result` does that and no more, but imports the compiler, which takes a second.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def forward_mode() -> bool:
    """Whether a level of forward mode is open, so that tensors may carry tangents, which count."""
    return forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled()


def is_recorded(tensor: torch.Tensor) -> bool:
    """Whether `make_fx` is at work and knows how a tensor came about."""
    mode = get_proxy_mode()
    return mode is not None and has_proxy_slot(tensor, mode.tracer)


def pull_back(values: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor]) -> None:
    """Add to the leaves the gradients of values, whose own are the cotangents, of the same shapes and types.

    It is `torch.autograd.backward` without what that does first: check what is known, and import SymPy, which takes half
    as long as `import torch`.
    """
    torch.autograd.Variable._execution_engine.run_backward(
        tuple(values), tuple(cotangents), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


def mapped(module: M, function: Callable[[torch.Tensor], torch.Tensor]) -> M:
    """The module, with a function of each parameter and buffer in its place; `Module.to` drops imaginary parts."""
    return module._apply(function)


def only_mapped() -> bool:
    """Whether torch.func does nothing but one vmap: autograd alone is outside of it."""
    if not transforms_active():
        return False
    top = _functorch.peek_interpreter_stack()
    return top is not None and top.level() == 1 and top.key() == _functorch.TransformType.Vmap


def at_once(function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> torch.Tensor:
    """A member's result of a function that takes the tensors of all members, (members, ...), and gives (members, ...).

    Only where `only_mapped`. It is what torch does with the rule of an autograd function, of which each call takes
    longer than a small circuit.
    """
    interpreter = retrieve_current_functorch_interpreter()
    assert isinstance(interpreter, VmapInterpreter)
    level, members = interpreter.level(), interpreter.batch_size()
    every = []
    for tensor in tensors:
        if _functorch.is_batchedtensor(tensor) and _functorch.maybe_get_level(tensor) == level:
            dim = _functorch.maybe_get_bdim(tensor)
            plain = _functorch.get_unwrapped(tensor)
            every.append(plain if dim == 0 else plain.movedim(dim, 0))
        else:
            every.append(tensor.expand(members, *tensor.shape))
    with interpreter.lower():
        made = function(*every)
    return _functorch._add_batch_dim(made, 0, level)
