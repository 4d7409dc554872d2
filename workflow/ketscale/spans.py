"""Spans: where the time of a training step goes, measured only while a `Recorder` is active.

Spans nest. Each has its *exclusive* time, without that of its children, so the spans of a step add up to the step.
Without an active recorder a span costs one comparison. Autograd itself enters and leaves backward spans: identity
functions around a part of the graph mark where its backward pass begins and ends.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from ketscale.private_torch import transforms_active


class Recorder:
    """Collects the exclusive seconds of one step by span name; synchronises `device` when a span begins or ends."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.exclusive_s: dict[str, float] = {}
        self.overlapped_s: dict[str, float] = {}
        self._open: list[list[Any]] = []

    def now(self) -> float:
        """The time in seconds, read when the device has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def enter(self, name: str) -> None:
        """Open a span inside the one that is open now."""
        self._open.append([name, self.now(), 0.0])

    def leave(self) -> None:
        """Close the innermost open span."""
        name, start, inner = self._open.pop()
        duration = self.now() - start
        self.exclusive_s[name] = self.exclusive_s.get(name, 0.0) + duration - inner
        if self._open:
            self._open[-1][2] += duration

    @property
    def innermost(self) -> str | None:
        """Name of the innermost open span, to which time now counts; None if no span is open."""
        return self._open[-1][0] if self._open else None

    def overlap(self, name: str, duration_s: float) -> None:
        """Count what ran at the same time as the open spans and so is not part of their sum."""
        self.overlapped_s[name] = self.overlapped_s.get(name, 0.0) + duration_s


_active: Recorder | None = None


def active() -> Recorder | None:
    """The recorder of the step that is being sampled, or None."""
    return _active


@contextlib.contextmanager
def recording(recorder: Recorder | None) -> Iterator[None]:
    """Make `recorder` the active one inside the block (None: record nothing)."""
    global _active
    previous, _active = _active, recorder
    try:
        yield
    finally:
        _active = previous


class _Span:
    """Opens and closes a span of a recorder; a generator's context manager takes five times as long."""

    __slots__ = ("name", "recorder")

    def __init__(self, recorder: Recorder | None, name: str) -> None:
        self.recorder, self.name = recorder, name

    def __enter__(self) -> None:
        if self.recorder is not None:
            self.recorder.enter(self.name)

    def __exit__(self, *error: object) -> None:
        if self.recorder is not None:
            self.recorder.leave()


_UNRECORDED = _Span(None, "")


def span(name: str) -> _Span:
    """A context manager that counts the time of its block as `name`."""
    return _UNRECORDED if _active is None else _Span(_active, name)


class _Mark:
    """Whether the backward pass of one call is between its two ends."""

    def __init__(self, name: str) -> None:
        self.name, self.inside = name, False


class _End(torch.autograd.Function):
    """Identity on several tensors, also under torch.func.vmap, where all copies are one call.

    Its backward opens a span or closes it; it runs when all gradients of the tensors are known. When gradients are
    differentiated, some of the second ones come from outside the call alone, and no span is open.
    """

    @staticmethod
    def forward(mark: _Mark, opens: bool, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(value.view_as(value) for value in values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.mark, ctx.opens = inputs[:2]

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        return cls.apply(*inputs), in_dims[2:]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        mark, opens = ctx.mark, ctx.opens
        if _active is not None and (opens or mark.inside):
            if opens:
                _active.enter(mark.name)
            else:
                _active.leave()
            mark.inside = opens
        return None, None, *gradients


Output = TypeVar("Output", torch.Tensor, tuple[torch.Tensor, ...])


def with_backward_span(name: str, function: Callable[..., Output], *tensors: torch.Tensor) -> Output:
    """`function(*tensors)`, one tensor or several, whose backward pass counts as `name` while a recorder is active."""
    # Mark only tensors that need a gradient: if any input of the identity needs one, all its outputs do. Under
    # torch.func a tensor does not tell.
    hidden = transforms_active()
    marked = [i for i, tensor in enumerate(tensors) if tensor.requires_grad or hidden]
    if _active is None or not marked or not torch.is_grad_enabled():
        return function(*tensors)
    arguments, mark = list(tensors), _Mark(name)
    for i, tensor in zip(marked, _End.apply(mark, False, *(tensors[i] for i in marked)), strict=True):
        arguments[i] = tensor
    outputs = function(*arguments)
    if isinstance(outputs, torch.Tensor):
        (entered,) = _End.apply(mark, True, outputs)
        return entered
    return tuple(_End.apply(mark, True, *outputs))
