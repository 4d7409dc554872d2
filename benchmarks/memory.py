"""What a training step needs in memory, in a process of its own, and what torch's operators move through it."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks import machine, steps
from benchmarks.runner import OUT_OF_MEMORY
from benchmarks.steps import ModelCase
from ketscale.measure import host
from ketscale.optional import needed_for
from ketscale.process import keep_freed_memory

# This share of the free memory may be used; above it a step fails instead of taking the machine down.
SHARE = 0.9
WARM_STEPS = 2


def peak_bytes(case: ModelCase, arm: str, threads: int) -> int | str:
    """The most that two training steps need beyond what the process had before, or why that is not known."""
    result = subprocess.run(
        machine.child("memory", *case, arm, threads),
        env=machine.child_environment(threads),
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode == 0:
        return int(json.loads(result.stdout))
    last = (result.stderr.strip().splitlines() or [f"exit status {result.returncode}"])[-1]
    words = ("MemoryError", "can't allocate memory", "std::bad_alloc", "exit status -9")
    return OUT_OF_MEMORY if any(word in last for word in words) else last


def _measured(model: str, qubits: str, batch: str, arm: str, threads: str) -> int:
    with needed_for("ketscale bench models", "bench"):
        import psutil

    keep_freed_memory()
    torch.set_num_threads(int(threads))
    call = steps.step(ModelCase(model, int(qubits), int(batch)), arm)
    process = psutil.Process()
    before = process.memory_info().rss
    limit = process.memory_info().vms + int(SHARE * psutil.virtual_memory().available)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for _ in range(WARM_STEPS):
        call()
    return max(0, host.peak_rss_bytes() - before)


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
            actual = _tensors(value)
            written = argument.alias_info is not None and argument.alias_info.is_write
            if written:
                changed += actual
            if not (written and (argument.is_out or func._schema.name in _OVERWRITE)):
                read += actual
        results = _tensors(result)
        addresses = {t.untyped_storage().data_ptr() for t in read + changed}
        values = [t for t in results if t.untyped_storage().data_ptr() not in addresses]
        if values or changed or not results:  # else it has only made views
            self.bytes += sum(map(_bytes, read + changed + values))
        return result

    @staticmethod
    def _in_order(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        return [*args, *(kwargs.get(argument.name) for argument in func._schema.arguments[len(args) :])]


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _bytes(tensor: torch.Tensor) -> int:
    """A dimension that is only expanded is there once."""
    return min(tensor.nbytes, tensor.untyped_storage().nbytes())


if __name__ == "__main__":
    print(json.dumps(_measured(*sys.argv[1:])))
