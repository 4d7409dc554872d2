"""The least that any compiled simulator costs in torch: an empty compiled call, forward and backward."""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm
import torch
from llvmlite import ir

from ketscale.bench.calls import torch_call
from ketscale.bench.cases import Call, Case
from ketscale.engines.circuits.circuit import Angles


class Floor:
    """A simulator that simulates nothing: its results are uninitialised memory. On the CPU only."""

    uncapturable: str | None = None

    def __init__(self) -> None:
        module = ir.Module("floor")
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType()]), "f")
        ir.IRBuilder(function.append_basic_block()).ret_void()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine()
        # The engine owns the code: it must live as long as the function.
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
        self._engine.finalize_object()
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._engine.get_function_address("f"))

    def prepare(self, case: Case) -> Call:
        """See `Subject.prepare`."""
        words = len(case.words)
        return torch_call(case, lambda angles: self._expval(angles, words), torch.device("cpu"))

    def _expval(self, angles: Angles, words: int) -> torch.Tensor:
        return _Empty.apply(self._function, words, *angles)


class _Empty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Any, words: int, inputs: torch.Tensor, weights: torch.Tensor) -> Any:
        ctx.save_for_backward(inputs, weights)
        ctx.function = function
        out = torch.empty(inputs.shape[0], words, dtype=inputs.dtype)
        function(out.data_ptr())
        return out

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        inputs, weights = ctx.saved_tensors
        gradients = torch.empty_like(inputs), torch.empty_like(weights)
        ctx.function(gradients[0].data_ptr())
        return None, None, *gradients
