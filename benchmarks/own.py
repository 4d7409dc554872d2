"""Our own simulators of circuits under test: `fused`, for several sets at once too, and the floor below it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.func import vmap

from benchmarks.circuits import SETS, TOLERANCES, Call, Loss, distance, torch_call, vector
from ketscale.engines.circuits.circuit import Angles
from ketscale.engines.circuits.fused import Fused
from ketscale.engines.circuits.shots import Shots
from ketscale.simulators.spanned import Spanned

Parts = tuple[torch.Tensor, ...]


class Own:
    """What a model pays for `fused`, autograd included."""

    uncapturable: str | None = None

    def __init__(self, name: str, device: torch.device) -> None:
        self._simulator = Spanned(Fused())
        self._device = device

    def prepare(self, loss: Loss) -> Call:
        """See `Simulator.prepare`."""
        simulator = Shots(self._simulator, loss.shots) if loss.shots else self._simulator
        return torch_call(
            loss, lambda angles: simulator.expval(loss.circuit, angles, loss.words), self._device
        )


class Groups:
    """`SETS` sets of inputs and weights, as of seeds that are trained together, in one call or in one call each.

    The first set is the loss's own, whose value and gradients a call returns.
    """

    uncapturable: str | None = None

    def __init__(self, name: str, device: torch.device) -> None:
        self._together = name == "fused-together"
        self._device = device

    def prepare(self, loss: Loss) -> Call:
        """See `Simulator.prepare`.

        Raises:
            ValueError: the numbers of any set are not those of a call of its own.
        """
        joint, apart = (self._call(loss, joint) for joint in (True, False))
        error = max(
            distance(vector(value), vector(expected))
            for value, expected in zip(zip(*joint(), strict=True), zip(*apart(), strict=True), strict=True)
        )
        if not error <= TOLERANCES[loss.real.type]:
            raise ValueError(
                f"a set's numbers are off by {error:.1e} of the norm from those of a call of its own"
            )
        call = joint if self._together else apart
        return lambda: tuple(part[0] for part in call())

    def _call(self, loss: Loss, joint: bool) -> Call:
        """Losses and gradients of all sets, each (SETS, ...)."""
        coefficients = torch.tensor(loss.coefficients, device=self._device)
        parts = (torch.tensor(part, device=self._device) for part in (loss.inputs, loss.weights))
        # Sets differ, so that one cannot pass for another.
        inputs, weights = (torch.stack([part + k / SETS for k in range(SETS)]) for part in parts)
        simulator = Spanned(Fused())

        def value(inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
            return (simulator.expval(loss.circuit, Angles(inputs, weights), loss.words) * coefficients).sum()

        def differentiated(function: Callable[..., torch.Tensor], angles: Sequence[torch.Tensor]) -> Parts:
            values = function(*angles)
            # autograd refuses a tensor that nothing depends on, such as weights of shape (0,).
            leaves = [tensor for tensor in angles if tensor.numel()]
            return values.detach(), *torch.autograd.grad(values.sum(), leaves)

        if joint:
            leaves = [tensor.requires_grad_() for tensor in (inputs, weights)]
            return lambda: differentiated(vmap(value), leaves)
        sets = [[part.clone().requires_grad_() for part in own] for own in zip(inputs, weights, strict=True)]
        return lambda: tuple(zip(*(differentiated(value, own) for own in sets), strict=True))


class Floor:
    """The least that any compiled simulator costs in torch: a call of C that does next to nothing, forward and backward.

    It simulates nothing: its results are uninitialised memory. On the CPU only.
    """

    uncapturable: str | None = None

    def __init__(self, name: str, device: torch.device) -> None:
        # What a simulator's compiled function costs to be called with a pointer.
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(("labs", ctypes.CDLL(None)))

    def prepare(self, loss: Loss) -> Call:
        """See `Simulator.prepare`."""
        words, cpu = len(loss.words), torch.device("cpu")
        return torch_call(loss, lambda angles: Nothing.apply(self._function, words, *angles), cpu)


class Nothing(torch.autograd.Function):
    """Uninitialised values (batch, words) and gradients; a function is called with the pointer of each, if there is one."""

    @staticmethod
    def forward(ctx: Any, function: Any, words: int, inputs: torch.Tensor, *others: torch.Tensor) -> Any:
        ctx.save_for_backward(inputs, *others)
        ctx.function = function
        out = torch.empty(inputs.shape[0], words, dtype=inputs.dtype)
        if function:
            function(out.data_ptr())
        return out

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        gradients = tuple(torch.empty_like(saved) for saved in ctx.saved_tensors)
        if ctx.function:
            ctx.function(gradients[0].data_ptr())
        return None, None, *gradients
