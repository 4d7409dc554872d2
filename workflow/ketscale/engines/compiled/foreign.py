"""Compiled functions as typed foreign calls of XLA, so that JAX runs them without Python between.

XLA calls one handler, which is machine code too. It finds a `Table` by the address in the call's attribute: which
functions to run, one after the other, and which of their arguments are buffers of the call. All memory is XLA's, so calls
may run at the same time. A function's threads are torch's (`threads`), as in torch.

The layouts are those of XLA's C interface, version 0 (`xla/ffi/api/c_api.h` in jaxlib's folder of headers).
"""

from __future__ import annotations

import ctypes
import re
import secrets
from array import array
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from llvmlite import ir

from ketscale.engines.compiled.language import I8, I32, I64, VOID, Buffer, FunctionCode, Number, select
from ketscale.engines.compiled.library import Library, Recipe
from ketscale.engines.compiled.threads import pool

# The name by which XLA knows the handler.
TARGET = "ketscale"


class Place(NamedTuple):
    """Argument `slot` of the functions is the address of a buffer of the call, its operands before its results."""

    buffer: int
    slot: int


class Table:
    """What one foreign call does; the executables that call it must keep it.

    functions: in their order; each has its address, and whether threads share it. threads: at most so many of them.
    slots: the values of the functions' arguments, the counters among them. places: the slots that each call fills.
    owner: what else must live as long, such as the functions' code.
    """

    def __init__(
        self,
        functions: Sequence[tuple[int, bool]],
        threads: int,
        slots: Sequence[int],
        places: Sequence[Place],
        owner: Any,
    ) -> None:
        self._owner = owner
        parallel: Any = pool() if threads > 1 else None
        address = 0 if parallel is None else ctypes.cast(parallel, ctypes.c_void_p).value or 0
        counts = (address, threads, len(functions), len(places), len(slots))
        pairs = (*functions, *places)
        self._numbers = array("q", (*counts, *(int(number) for pair in pairs for number in pair), *slots))

    def attributes(self) -> Mapping[str, int]:
        """The attributes of the foreign call."""
        address, _ = self._numbers.buffer_info()
        return {"process": registered(), "table": address}


@cache
def registered() -> int:
    """Tells XLA of the handler, once in a process; a number that no other process has.

    An executable that another process has compiled names a table of that process: the handler rejects it.
    """
    import jax

    # What is used of version 0 is alike in its minor versions so far. XLA expects its own.
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    (minor,) = map(int, re.findall(r"#define XLA_FFI_API_MINOR (\d+)", header))
    names = ("begin", "answer")
    library = Library(Recipe(f"XLA {minor}", names, lambda: _module(minor), (Path(__file__),)))
    process = secrets.randbits(62)
    library.on_one_thread["begin"](process)
    handler = ctypes.cast(library.on_one_thread["answer"], ctypes.c_void_p)
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(handler), platform="cpu")
    _LIBRARIES.append(library)
    return process


# XLA may call the handler until the process ends.
_LIBRARIES: list[Library] = []

FOREIGN = "this executable was compiled by another process: KetScale's calls are valid in their own alone"

# The structures of XLA's interface as words of 64 bits, each with its size and its extensions in front. Of a frame:
EXTENSION, API, OPERAND_COUNT, OPERANDS, RESULTS, ATTRIBUTES = 1, 2, 7, 9, 14, 20
# The function of the interface that makes an error, in words after its version.
ERROR_CREATE = 6
# The value of a scalar, and the data of a buffer; the kind of an extension that asks for metadata, and where these go.
VALUE, DATA, METADATA, TO_METADATA = 1, 3, 1, 3
INVALID_ARGUMENT = 9


def _module(minor: int) -> ir.Module:
    """`begin`, which keeps the process's number, and `answer`, the handler."""
    module = ir.Module("foreign")
    process = ir.GlobalVariable(module, I64, "process")
    process.linkage, process.initializer = "internal", ir.Constant(I64, 0)
    begin = FunctionCode(module, "begin", 1, True)
    _at(begin, _global(begin, "process"))[0] = _argument(begin)
    begin.b.ret_void()
    _Handler(module, minor).write()
    return module


def _argument(k: FunctionCode) -> Number:
    """The only argument, an address."""
    return Number(k, k.b.ptrtoint(k.function.args[0], I64))


def _at(k: FunctionCode, address: Number) -> Buffer:
    """The words at an address."""
    return k.array_at(address, "integer", 1)


def _global(k: FunctionCode, name: str) -> Number:
    return Number(k, k.b.ptrtoint(k.module.globals[name], I64))


def _local(k: FunctionCode, *words: Number | int) -> Number:
    """The address of words of the function's own."""
    words_of = k.local(len(words), element="integer")
    for place, word in enumerate(words):
        words_of[place] = word
    return words_of.address


def _call(k: FunctionCode, address: Number, *arguments: Number, returns: Any = I64) -> Number:
    """Call a function at an address."""
    kind = ir.FunctionType(returns, [each.type for each in arguments])
    function = k.b.inttoptr(address.value, kind.as_pointer())
    return Number(k, k.b.call(function, [each.value for each in arguments]))


class _Handler(FunctionCode):
    """The code of `answer`, from a frame to an error of XLA's, or 0."""

    def __init__(self, module: ir.Module, minor: int) -> None:
        super().__init__(module, "answer", 1, True, returns=I64)
        self._minor = minor
        self._frame = _at(self, _argument(self))
        self._result = self.variable(self.integer(0))

    def write(self) -> None:
        """Metadata if these are asked for, or else the functions of a table."""
        kind = self.variable(self.integer(0))
        with self.when(self._frame[EXTENSION] != 0):
            kind.value = _at(self, self._frame[EXTENSION])[1] & (2**32 - 1)
        self.either(kind.value == METADATA, self._metadata, self._answer)
        self.b.ret(self._result.value.value)

    def _metadata(self) -> None:
        metadata = _at(self, _at(self, self._frame[EXTENSION])[TO_METADATA])
        # The version, whose major number is 0, and no traits.
        metadata[3], metadata[4] = self._minor << 32, 0

    def _answer(self) -> None:
        # They are sorted by name.
        process, table = (
            _at(self, _at(self, _at(self, self._frame[ATTRIBUTES])[place])[VALUE]) for place in (0, 1)
        )
        own = _at(self, _global(self, "process"))[0]
        self.either(process[0] == own, lambda: self._fill(_at(self, table[0])), self._refuse)

    def _fill(self, table: Buffer) -> None:
        """Fill the functions' arguments, and run these."""
        parallel, threads, functions, places, slots = (table[place] for place in range(5))
        listed, filled, start = table.part((5,), 1).split((functions, 2), (places, 2), (slots,))
        memory = self.b.alloca(I64, size=slots.value)
        memory.align = 16
        arguments = _at(self, Number(self, self.b.ptrtoint(memory, I64)))
        with self.each(slots) as slot:
            arguments[slot] = start[slot]
        operands = self._frame[OPERAND_COUNT]
        with self.each(places) as place:
            number = filled[place, 0]
            inner = number.signed < operands
            buffers = _at(self, select(inner, self._frame[OPERANDS], self._frame[RESULTS]))
            arguments[filled[place, 1]] = _at(self, buffers[select(inner, number, number - operands)])[DATA]
        with self.each(functions) as number:
            function, shared = listed[number, 0], listed[number, 1]
            # Functions take their tasks, and their threads' numbers, from two counters.
            arguments[0], arguments[1] = 0, 0
            serial = (function, arguments.address)
            threaded = (parallel, *serial, threads.truncated(I32), self.constant(0, I32))
            self.either(
                parallel * shared == 0,
                partial(_call, self, *serial, returns=VOID),
                partial(_call, self, *threaded, returns=VOID),
            )

    def _refuse(self) -> None:
        text = bytearray(FOREIGN.encode() + b"\0")
        message = ir.GlobalVariable(self.module, ir.ArrayType(I8, len(text)), "message")
        message.linkage, message.initializer = "internal", ir.Constant(message.value_type, text)
        error = _local(self, 28, 0, _global(self, message.name), INVALID_ARGUMENT)
        self._result.value = _call(self, _at(self, self._frame[API])[ERROR_CREATE], error)
