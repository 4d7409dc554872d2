"""Our own simulators of circuits under test: `fused`, and the floor below it."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from benchmarks.circuits import Call, Loss, torch_call
from ketscale.engines.circuits.fused import Fused
from ketscale.engines.circuits.shots import Shots
from ketscale.simulators.spanned import Spanned


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
