"""Names of torch that begin with an underscore: all that KetScale uses outside of `autograd_function`, with the reason for each.

Another version of torch may change them. tests/unit/test_private_torch.py then says which, and says too if a third file uses
one. Modules and functions are bound here by public names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from torch._C import _functorch
from torch._functorch.pyfunctorch import VmapInterpreter, retrieve_all_functorch_interpreters
from torch._ops import OpOverload as OpOverload
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree  # noqa: F401
from torch.utils._python_dispatch import TorchDispatchMode

M = TypeVar("M", bound=nn.Module)
F = TypeVar("F", bound=Callable[..., object])

# pytree: nested results of a QNode as torch flattens them; torch has no public module for that.
# OpOverload: the type of what a record calls; the public torch.ops has only instances.

# Whether torch.func is at work: a simulator that computes outside of torch must not run then. torch.func does not say.
transforms_active: Callable[[], bool] = torch._C._are_functorch_transforms_active

# Whether a gradient is one of several that autograd asks for at once (is_grads_batched, vectorize).
is_grad_batched: Callable[[torch.Tensor], bool] = _functorch.is_legacy_batchedtensor

# One call for all tensors, where a loop of copy_ takes a microsecond for each.
copy_all: Callable[..., None] = torch._foreach_copy_

# Adam's step alone: the classes of torch.optim import the compiler at their first one, which takes two seconds.
fused_adam_step: Callable[..., None] = torch._fused_adam_


class DispatchMode(TorchDispatchMode):
    """torch's, whose first operation does not import the compiler: torch.compile may look into it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def constant_when_traced(function: F) -> F:
    """Decorates a function of constants, which torch.compile then calls once, while it traces.

    `torch.compiler.assume_constant_result` does that and no more, but imports the compiler, which takes a second.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def forward_mode() -> bool:
    """Whether a level of forward mode is open, so that tensors may carry tangents, which count."""
    return forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled()


def is_mapped(tensor: torch.Tensor) -> bool:
    """Whether torch.func.vmap maps a tensor, perhaps beneath other transformations: it then has no value to look at."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        if _functorch.is_batchedtensor(tensor):
            return True
        tensor = _functorch.get_unwrapped(tensor)
    return False


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor beneath transformations of torch.func, which has the values of all that vmap maps."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def is_differentiated(tensor: Any) -> bool:
    """Whether it is a tensor by which derivatives may be asked for: with a gradient, a tangent, or one of torch.func's."""
    if not isinstance(tensor, torch.Tensor):
        return False
    if tensor.requires_grad or _functorch.is_functorch_wrapped_tensor(tensor):
        return True
    return forward_mode() and forward_ad.unpack_dual(tensor).tangent is not None


def release_capture(device: int, pool: tuple[int, int]) -> None:
    """Let torch's allocator forget a capture of a CUDA graph that has failed, which has its memory from this pool."""
    torch._C._cuda_endAllocateToPool(device, pool)
    torch._C._cuda_releasePool(device, pool)


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


def differentiates() -> bool:
    """Whether torch.func differentiates, in any of its transformations."""
    levels = retrieve_all_functorch_interpreters() if transforms_active() else []
    return not all(isinstance(each, VmapInterpreter) for each in levels)
