"""Compiled functions that share arguments: writes them once for each kind of processor, and calls them from torch."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from llvmlite import ir

from ketscale.engines.compiled.language import COUNTERS, REAL, Arguments, Code, Type
from ketscale.engines.compiled.library import Library, Recipe, vector_bytes


class Kernel:
    """Functions of one precision and one number of lanes, compiled when first made, and then found on disk.

    functions: each writes the body of the function of its name from (code, arguments), and the plan if there is one.
    arguments: their types; a name may be several, with spaces between them. plan: what the code is written for,
    besides; its repr is equal for equal code only. sources: modules that take part in writing, besides the functions'
    own and this package's.

    Raises:
        UserError: the cache folder cannot be written.
    """

    def __init__(
        self,
        functions: Sequence[Callable[..., None]],
        arguments: Mapping[str, Type],
        dtype: torch.dtype,
        lanes: int,
        plan: Any = None,
        sources: Sequence[ModuleType] = (),
    ) -> None:
        double = dtype == torch.float64
        names = [function.__name__ for function in functions]
        types = [(name, kind) for several, kind in arguments.items() for name in several.split()]
        slots = {name: (COUNTERS + number, kind) for number, (name, kind) in enumerate(types)}
        modules = {sys.modules[function.__module__] for function in functions} | set(sources)

        def write() -> ir.Module:
            module = ir.Module("ketscale")
            for name, function in zip(names, functions, strict=True):
                code = Code(module, name, lanes, double)
                function(code, Arguments(code, slots, plan), *(() if plan is None else (plan,)))
                code.b.ret_void()
            return module

        identity = f"{functions[0].__module__} {names} {arguments} {double} {lanes} {plan!r}"
        files = sorted({Path(str(module.__file__)) for module in modules})
        self.library = Library(Recipe(identity, tuple(names), write, tuple(files)))
        self._slots = {name: slot for name, (slot, kind) in slots.items() if kind != REAL}
        self._reals = {name: 8 * slot for name, (slot, kind) in slots.items() if kind == REAL}
        self._pack = struct.Struct("d" if double else "f").pack_into
        self._blank = array("q", [0] * (COUNTERS + len(slots)))

    def __call__(self, function: str, threads: int = 1, /, **values: Any) -> None:
        """Run a function on so many threads; an argument that is missing or None is an address of 0.

        values: tensors and arrays, whose elements are as the kernel says, side by side; integers and floats.

        Raises:
            KeyError: there is no such argument.
            UserError: this build of torch has no threads for compiled code.
        """
        arguments, slots = self._blank[:], self._slots
        for name, value in values.items():
            kind = type(value)
            if kind is int:
                arguments[slots[name]] = value
            elif kind is float:
                self._pack(arguments, self._reals[name], value)
            else:
                arguments[slots[name]] = _address(value)
        if threads == 1:
            self.library.on_one_thread[function](arguments.buffer_info()[0])
        else:
            self.library.on_threads(function, arguments.buffer_info()[0], threads)


def _address(values: torch.Tensor | array[Any] | None) -> int:
    """The address of the first element."""
    if isinstance(values, array):
        return values.buffer_info()[0]
    return 0 if values is None else values.data_ptr()


def threads_for(parts: int, work: int, least: int) -> int:
    """How many threads share work of so many parts; each gets at least `least` of it, since more cost more than they save."""
    return 1 if work < 2 * least else max(1, min(torch.get_num_threads(), parts, work // least))


def lanes_of(dtype: torch.dtype) -> int:
    """Floats in a vector of this processor."""
    return vector_bytes() // dtype.itemsize
