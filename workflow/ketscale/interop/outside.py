"""What a quantum function reads besides its arguments, watched from call to call: one level deep, as by torch.compile.

That is its closure, the globals that its code names, its defaults, and the object that it is a method of; of an object
among these what `vars()` has, of a module what the code names. Functions, classes and operators are taken not to change.
"""

from __future__ import annotations

import dis
import marshal
import sys
from collections.abc import Callable
from enum import Enum
from functools import lru_cache, partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from pennylane.operation import Operator
from pennylane.wires import Wires

from ketscale.errors import UserError
from ketscale.interop.recorder import continuous

PLAIN = (bool, int, float, complex, str, bytes, type(None))
FIXED = (
    type, Enum, range, Wires, np.dtype, np.ufunc, torch.dtype, torch.device, BuiltinFunctionType, FunctionType,
    Operator,
)  # fmt: skip
LIBRARIES = frozenset(sys.stdlib_module_names) | {"jax", "numpy", "pennylane", "scipy", "torch"}

# Larger arrays, in bytes, are not read at each call.
LARGEST = 2**20


class Outside:
    """What a function depends on besides its arguments, as it is now.

    key: differs wherever anything but the numbers of `tensors` does, while `references` keeps it alive.

    Raises:
        UserError: the function reads something whose changes cannot be tracked.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.tensors: list[torch.Tensor] = []
        self.references: list[object] = []
        self._parts: list[object] = []
        self._function(function)
        self.key = tuple(self._parts)

    def _function(self, function: Any) -> None:
        """What a function reads, or a method, a partial function or a callable object, and what it wraps."""
        while isinstance(function, partial):
            self._value([function.args, function.keywords], "an argument of a partial function")
            function = function.func
        if not isinstance(function, FunctionType):
            owner = getattr(function, "__self__", function)
            function = getattr(function, "__func__", type(function).__call__)
            if not isinstance(function, FunctionType):
                raise _unsupported(f"what a {type(owner).__name__} calls")
            self._value(owner, "self", _names(function.__code__)[1])
        self._same(function, function.__code__)
        (loaded, names), scope = _names(function.__code__), function.__globals__
        if not _of_library(scope.get("__name__")):
            read = {name: scope[name] for name in loaded if name in scope}
            cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            # A variable may have no value yet.
            read |= {name: cell.cell_contents for name, cell in cells if cell != CellType()}
            read |= {"its defaults": [function.__defaults__, function.__kwdefaults__]}
            for name, value in read.items():
                self._parts.append(name)
                self._value(value, name, names)
        if hasattr(function, "__wrapped__"):
            self._function(function.__wrapped__)

    def _value(
        self, value: Any, name: str, names: frozenset[str] = frozenset(), within: bool = False
    ) -> None:
        """A value and what it holds; `within` is whether an object has it: objects in objects are not looked into.

        names: what the code names, every change of which must be detected.
        """
        if _plain(value):
            # Version 2 writes equal values equally, and distinguishes 1, 1.0 and True.
            self._parts.append(marshal.dumps(value, 2))
        elif isinstance(value, torch.Tensor) and continuous(value):
            first = next((n for n, each in enumerate(self.tensors) if each is value), len(self.tensors))
            self._parts.append((value.shape, value.dtype, value.device, first))
            self.tensors.append(value)
        elif isinstance(value, torch.Tensor | np.ndarray | np.generic):
            if value.nbytes > LARGEST or value.dtype == object:
                raise _unsupported(f"{name} (an array of objects, or of more than 1 MiB)")
            array = np.asarray(value.cpu() if isinstance(value, torch.Tensor) else value)
            self._parts.append((type(value), array.dtype.str, array.shape, array.tobytes()))
        elif isinstance(value, list | tuple | dict):
            items = value if isinstance(value, dict) else dict(enumerate(value))
            self._parts.append((type(value), *items))
            for key, each in items.items():
                self._value(each, f"{name}[{key!r}]", names, within)
        elif isinstance(value, FIXED) or (isinstance(value, ModuleType) and _of_library(value.__name__)):
            # A notebook that loads edited modules again gives functions other code.
            self._same(value, getattr(value, "__code__", None))
            for each in value.data if isinstance(value, Operator) else ():
                if isinstance(each, torch.Tensor):
                    self._value(each, name)
        else:
            self._object(value, name, names, within)

    def _object(self, value: Any, name: str, names: frozenset[str], within: bool) -> None:
        """An object, or a module of a user's; what the code does not name of it may be anything."""
        if within or not hasattr(value, "__dict__"):
            raise _unsupported(f"{name} ({type(value).__name__})")
        self._same(value)
        # The code that calls torch's Sequential names none of the networks within it.
        for each, own in {**vars(value), **getattr(value, "_modules", {})}.items():
            if each in names or not isinstance(value, ModuleType):
                self._parts.append(each)
                try:
                    self._value(own, f"{name}.{each}", names, within=True)
                except UserError:
                    if each in names or each.isdigit():
                        raise

    def _same(self, *values: object) -> None:
        """Objects that must be the same ones."""
        self._parts += map(id, values)
        self.references += values


@lru_cache(maxsize=1024)
def _names(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The globals that code loads, and all that it names, also in functions within it, such as list comprehensions."""
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    own = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
    loaded = own.union(*(names for names, _ in inner))
    return frozenset(loaded), frozenset(code.co_names).union(*(named for _, named in inner))


def _plain(value: Any) -> bool:
    """Whether a value is a number, a text, or a container of these, of which `marshal` writes all that there is."""
    if type(value) in (tuple, list, set, frozenset):
        return all(map(_plain, value))
    if type(value) is dict:
        return all(map(_plain, value)) and all(map(_plain, value.values()))
    return type(value) in PLAIN


def _of_library(module: object) -> bool:
    return str(module).partition(".")[0] in LIBRARIES


def _unsupported(what: str) -> UserError:
    return UserError(
        f"from_qnode: the quantum function reads {what}, whose changes cannot be seen: pass what it reads as an "
        "argument, or write from_qnode(qnode, trace='always')"
    )
