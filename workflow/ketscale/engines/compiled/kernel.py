"""Compiled functions that share arguments: writes them once for each kind of processor, and calls them from torch."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from llvmlite import ir

from ketscale.engines.compiled.language import COUNTERS, REAL, Arguments, FunctionCode, Type
from ketscale.engines.compiled.library import Library, Recipe, vector_bytes


class Kernel:
    """Functions of one precision and one number of lanes, compiled when first needed, and then found on disk.

    functions: each writes the body of the function of its name from (code, arguments), and the plan if there is one.
    arguments: their types; a name may be several, with spaces between them. plan: what the code is written for,
    besides; its repr is equal for equal code only. sources: modules that take part in writing, besides the functions'
    own and this package's.
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
                code = FunctionCode(module, name, lanes, double)
                function(code, Arguments(code, slots, plan), *(() if plan is None else (plan,)))
                code.b.ret_void()
            return module

        identity = f"{functions[0].__module__} {names} {arguments} {double} {lanes} {plan!r}"
        files = sorted({Path(str(module.__file__)) for module in modules})
        self._recipe = Recipe(identity, tuple(names), write, tuple(files))
        self._types, self._double = types, double

    @cached_property
    def library(self) -> Library:
        """The functions, which are found on disk or compiled when they are asked for first."""
        return Library(self._recipe)

    @cached_property
    def run(self) -> Callable[..., None]:
        """Run a function, given by its name, on so many threads; an argument that is not given is 0.

        It takes tensors, whose elements are as the kernel says, side by side, or the addresses of such; integers; and
        floats; `last` has the last arguments, as an array. A name that the kernel does not have is a TypeError. As that of
        a dataclass, its code is generated: a loop takes twice as long, and a small layer takes a few microseconds.
        """
        entries = [
            f"bits({name})" if kind == REAL
            else f"{name} if type({name}) is int else {name}.data_ptr()" if kind.shape
            else name
            for name, kind in self._types
        ]  # fmt: skip
        source = f"""
def run(function, threads=1, last=None, *, {", ".join(f"{name}=0" for name, _ in self._types)}):
    arguments = array("q", ({"0, " * COUNTERS}{", ".join(entries)},))
    if last:
        arguments[-len(last):] = last
    on_threads(function, arguments.buffer_info()[0], threads)
"""
        real, integer = struct.Struct("d" if self._double else "f4x"), struct.Struct("q")
        names: dict[str, Any] = {
            "array": array,
            "bits": lambda number: integer.unpack(real.pack(number))[0],
            "on_threads": self.library.on_threads,
        }
        exec(source, names)
        run: Callable[..., None] = names["run"]
        return run


# With fewer multiply-adds for each thread, more threads cost more than they save: they take about 0.1 ms.
WORK_PER_THREAD = 4_000_000


def threads_for(parts: int, work: int, least: int = 0) -> int:
    """How many threads share work of so many parts, when each gets at least `least` of it (or `WORK_PER_THREAD`)."""
    least = least or WORK_PER_THREAD
    return 1 if work < 2 * least else max(1, min(torch.get_num_threads(), parts, work // least))


def lanes_of(dtype: torch.dtype) -> int:
    """Floats in a vector of this processor."""
    return vector_bytes() // dtype.itemsize
