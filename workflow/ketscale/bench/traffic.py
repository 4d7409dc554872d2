"""What is moved through memory: by torch's operators in a call, and by `fused` on a GPU at least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused.program import Rotation, reduce


def least_bytes(circuit: Circuit, words: Sequence[str], batch: int, itemsize: int = 4) -> int:
    """Bytes of one call on a batch, if each kernel reads and writes its arrays once and shared ones stay in caches.

    For each sample: its inputs and their gradient; the cosine and sine of every rotation, the final state and the
    derivative by every rotation that has an angle, all written and read again; the values and their cotangents.
    """
    program = reduce(circuit, tuple(words))
    rotations = [step for step in program.rotations if isinstance(step, Rotation)]
    derivatives = sum(rotation.angle.kind != "constant" for rotation in rotations)
    state = 2**circuit.qubits * (1 if program.real else 2)
    numbers = circuit.inputs + 2 * len(rotations) + state + derivatives + len(words)
    return 2 * numbers * batch * itemsize


def operand_bytes(call: Callable[[], Any]) -> int:
    """Bytes that torch's own operators read and write in a call; what is changed in place counts twice.

    More than what passes through memory, since caches keep some of it. Compiled code (of `fused`, layers, losses,
    clipping and optimisers) and other libraries are no operators of torch, and are not counted.
    """
    with _Operands() as operands:
        call()
    return operands.bytes


# What is in the target before does not matter to them.
_OVERWRITE = ("aten::zero_", "aten::fill_", "aten::copy_")
_ALLOCATE = ("aten::empty", "aten::new_empty")


class _Operands(TorchDispatchMode):
    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func._schema.name.startswith(_ALLOCATE):
            return result
        read, changed = [], []
        for argument, value in zip(func._schema.arguments, self._in_order(func, args, kwargs), strict=False):
            found = _tensors(value)
            written = argument.alias_info is not None and argument.alias_info.is_write
            if written:
                changed += found
            if not (written and (argument.is_out or func._schema.name in _OVERWRITE)):
                read += found
        results = _tensors(result)
        known = {t.untyped_storage().data_ptr() for t in read + changed}
        made = [t for t in results if t.untyped_storage().data_ptr() not in known]
        if made or changed or not results:  # else it has only made views
            self.bytes += sum(map(_bytes, read + changed + made))
        return result

    @staticmethod
    def _in_order(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        return [*args, *(kwargs.get(argument.name) for argument in func._schema.arguments[len(args) :])]


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _bytes(tensor: torch.Tensor) -> int:
    """A dimension that is only expanded is there once."""
    return min(tensor.nbytes, tensor.untyped_storage().nbytes())
