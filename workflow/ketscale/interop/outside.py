"""What a quantum function reads besides its arguments, found in its bytecode and watched from call to call.

That is its closure, its globals, the object that a method is bound to, defaults of arguments, and the same of every
function that it calls. Only what the code names is followed: of `self.depth` just the attribute, of `self` in a call
the whole object. Python, torch, PennyLane and the packages beneath them are taken not to change.
"""

from __future__ import annotations

import dis
import inspect
import marshal
import os
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from operator import getitem, is_
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, NamedTuple

import numpy as np
import pennylane as qml
import torch

from ketscale.errors import UserError

LIBRARIES = frozenset(sys.stdlib_module_names) | {
    "autograd", "autoray", "jax", "jaxlib", "ketscale", "networkx", "numpy", "opt_einsum", "pennylane",
    "pennylane_lightning", "rustworkx", "scipy", "sklearn", "sympy", "torch",
}  # fmt: skip

# Objects that stay what they are, or of which PennyLane's operations read nothing that changes.
FIXED = (
    Enum, range, slice, torch.dtype, torch.device, np.dtype, np.ufunc, qml.devices.Device, type(Ellipsis),
    BuiltinFunctionType, WrapperDescriptorType, MethodDescriptorType,
)  # fmt: skip

# The attributes of objects that may change; everything else of them stays as it was made. The first kind that fits decides.
PARTS: dict[type, tuple[str, ...]] = {
    partial: ("func", "args", "keywords"), qml.QNode: ("func",), qml.ops.LinearCombination: ("coeffs", "ops"),
    qml.ops.CompositeOp: ("operands",), qml.ops.op_math.SymbolicOp: ("base", "scalar"), qml.operation.Operator: ("data",),
}  # fmt: skip

# Functions of Python by which code reads or writes what no name tells.
UNNAMED = ("eval", "exec", "globals", "input", "locals", "open", "vars")

# The parts of a graph of networkx, whose views are other objects at each look.
GRAPH = ("graph", "_node", "_adj")

# Functions of libraries whose results depend on more than their arguments.
STATEFUL = (
    os.getenv, pathlib.Path, inspect.currentframe, inspect.stack, sys._getframe, sys.getrecursionlimit, np.load, np.loadtxt, np.genfromtxt,
    np.fromfile, torch.load, torch.is_grad_enabled, torch.get_num_threads, torch.get_default_dtype,
)  # fmt: skip

Read = Callable[[], Any]


class Missing:
    """In place of what is not there."""


class Watched(NamedTuple):
    """How to read what was found: objects that must be the same ones, plain values, arrays and tensors."""

    names: list[str]
    fixed: list[Read]
    held: list[Any]
    plain: list[Read]
    arrays: list[Read]
    tensors: list[Read]


class Outside:
    """Reads at each call what a function depends on besides its arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._generation = 0
        self._watched: Watched | None = None

    def look(self) -> None:
        """Find anew what there is to watch.

        Raises:
            UserError: the function reaches something that cannot be watched, or changes something.
        """
        walk = _Walk()
        walk.value(self._function, lambda: self._function, "the quantum function", called=True)
        before, found = self._watched, walk.found
        if before is None or before.names != found.names or not all(map(is_, before.held, found.held)):
            self._generation += 1
        self._watched = found

    def now(self) -> tuple[object, list[torch.Tensor]]:
        """A key that differs wherever anything but the tensors' numbers does, and the tensors."""
        if self._watched is not None:
            found = self._read(self._watched)
            if found is not None:
                return found
        self.look()
        assert self._watched is not None
        again = self._read(self._watched)
        if again is None:
            raise _refused("an object that gives others at each call")
        return again

    def _read(self, watched: Watched) -> tuple[object, list[torch.Tensor]] | None:
        """None if something is not what was watched."""
        try:
            if not all(map(is_, [read() for read in watched.fixed], watched.held)):
                return None
            tensors = [read() for read in watched.tensors]
            key: list[object] = [self._generation]
            if watched.plain:
                # Version 2 writes equal values equally, and tells 1, 1.0 and True apart.
                key.append(marshal.dumps([read() for read in watched.plain], 2))
            for read in watched.arrays:
                array = read()
                key += [array.dtype.str, array.shape, array.tobytes()]
            first: dict[int, int] = {}
            for number, tensor in enumerate(tensors):
                key += [tensor.shape, tensor.dtype, tensor.device, first.setdefault(id(tensor), number)]
        except (AttributeError, LookupError, TypeError, ValueError):
            return None
        return tuple(key), tensors


class _Walk:
    """One walk through everything that a function reaches."""

    def __init__(self) -> None:
        self.found = Watched([], [], [], [], [], [])
        self._seen: dict[object, object] = {}
        self._held: set[tuple[int, str]] = set()

    def _first(self, *objects: object) -> bool:
        """Whether these were not walked together before; they are kept, so that no other has their identity."""
        key = tuple(map(id, objects))
        return self._seen.setdefault(key, objects) is objects

    def _place(self, kind: list[Read], read: Read, name: str) -> None:
        self.found.names.append(f"{kind is self.found.fixed} {name}")
        kind.append(read)

    def _hold(self, value: object, read: Read, name: str) -> None:
        if (id(value), name) not in self._held:
            self._held.add((id(value), name))
            self._place(self.found.fixed, read, name)
            self.found.held.append(value)

    def value(self, value: Any, read: Read, name: str, called: bool = False) -> None:
        """Watch a value with all that it holds."""
        if isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex()):
            # Such as wires: their values decide what the circuit is.
            self._place(self.found.arrays, lambda: read().cpu().numpy(), name)
        elif isinstance(value, torch.Tensor):
            self._place(self.found.tensors, read, name)
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self._place(self.found.arrays, read, name)
        elif isinstance(value, qml.wires.Wires):
            self.value(value.labels, lambda: read().labels, name)
        elif not _plain(value):
            self._hold(value, read, name)
            self._inside(value, name, called)
        else:
            self._place(self.found.plain, read, name)

    def _inside(self, value: Any, name: str, called: bool) -> None:
        """Watch what an object holds that is known by its identity."""
        if type(value).__module__ == "ctypes":
            raise _refused(f"{name} ({type(value).__name__})")
        if isinstance(value, FIXED) or _root(type(value)) in ("jax", "jaxlib"):
            owner = getattr(value, "__self__", None)
            if isinstance(value, BuiltinFunctionType) and not isinstance(owner, ModuleType | type | None):
                self.value(owner, partial(getattr, value, "__self__"), name)
        elif isinstance(value, Mapping):
            # A key that is no plain value is itself; it lives as long as what reads its item.
            keys = partial(list, value) if _plain(list(value)) else lambda: list(map(id, value))
            self._place(self.found.plain, keys, f"the keys of {name}")
            if self._first(value):
                for key in list(value):
                    self.value(value[key], partial(getitem, value, key), f"{name}[{key!r}]")
        elif isinstance(value, Sequence):
            self._place(self.found.plain, partial(len, value), f"the length of {name}")
            if self._first(value):
                for number, item in enumerate(value):
                    self.value(item, partial(getitem, value, number), f"{name}[{number}]")
        elif isinstance(value, ModuleType):
            if _root(value) not in LIBRARIES:
                raise _refused(f"the module {name}")
        elif isinstance(value, type):
            self._class(value, name)
        elif isinstance(value, FunctionType):
            self._function(value, name, {})
        elif isinstance(value, MethodType):
            self._method(value.__func__, value.__self__, name)
        elif isinstance(value, tuple(PARTS)) or _root(type(value)) == "networkx":
            parts = next((parts for kind, parts in PARTS.items() if isinstance(value, kind)), GRAPH)
            for part in parts if self._first(value) else ():
                if hasattr(value, part):
                    self._attribute(value, part, name)
        elif called and _root(type(value)) not in LIBRARIES:
            self._method(type(value).__call__, value, name)
        elif hasattr(value, "__dict__") and not isinstance(value, torch.Generator):
            if self._first(value):
                self._class(type(value), name)
                self.value(vars(value), lambda: vars(value), name)
        else:
            raise _refused(f"{name} ({type(value).__name__})")

    def _attribute(self, owner: Any, attribute: str, name: str) -> None:
        self.value(getattr(owner, attribute), partial(getattr, owner, attribute), f"{name}.{attribute}")

    def _class(self, kind: type, name: str) -> None:
        """The functions and values of a class, and of what it inherits from."""
        for base in kind.__mro__:
            if _root(base) in LIBRARIES or not self._first(base):
                continue
            for attribute, member in list(vars(base).items()):
                function = _function_of(member)
                if function is not None:
                    self._function(function, f"{name}.{attribute}", {})
                if not attribute.startswith("__") and (
                    _plain(member) or isinstance(member, torch.Tensor | np.ndarray | Mapping | Sequence)
                ):
                    self._attribute(base, attribute, name)

    def _method(self, function: Any, owner: Any, name: str) -> None:
        """A function whose first argument is an object: of it only what the code names."""
        if isinstance(function, FunctionType):
            arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
            bound = arguments and owner is not Missing
            self._function(function, name, {arguments[0]: (owner, lambda: owner)} if bound else {})
        else:
            self.value(owner, lambda: owner, name)

    def _function(self, function: FunctionType, name: str, own: dict[str, tuple[Any, Read]]) -> None:
        if not self._first(function, *(value for value, _ in own.values())):
            return
        if _root(function) in LIBRARIES:
            # Such as what a decorator returns: of it just the functions that somebody gave it, and tables of them.
            for cell in function.__closure__ or ():
                if isinstance(_contents(cell), FunctionType | MethodType | partial | dict):
                    self.value(_contents(cell), partial(_contents, cell), name)
            return
        # A notebook that loads edited modules again gives functions other code.
        self._hold(function.__code__, partial(getattr, function, "__code__"), f"{name}.__code__")
        names = dict(own)
        for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            read = partial(_contents, cell)
            names[free] = (read(), read)
        if function.__defaults__ or function.__kwdefaults__:
            self._attribute(function, "__defaults__", name)
            self._attribute(function, "__kwdefaults__", name)
        self._code(function.__code__, function.__globals__, names, frozenset(own))

    def _code(
        self,
        code: CodeType,
        scope: dict[str, Any],
        names: dict[str, tuple[Any, Read]],
        local: frozenset[str] = frozenset(),
    ) -> None:
        """What code reads. names: of free variables and of `local`, with what they hold and how to read it."""
        instructions = list(dis.get_instructions(code))
        for place, instruction in enumerate(instructions):
            operation, name = instruction.opname, instruction.argval
            if operation in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
                operation in ("STORE_DEREF", "DELETE_DEREF") and name in code.co_freevars and name in names
            ):
                raise _writes(name)
            if operation == "IMPORT_NAME" and name.partition(".")[0] not in LIBRARIES:
                raise _refused(f"the module {name}")
            if operation in ("LOAD_GLOBAL", "LOAD_NAME"):
                read: Read = partial(scope.get, name, Missing)
                value = read()
                if value is Missing and operation == "LOAD_NAME":
                    continue
                if value is Missing and name in vars(sys.modules["builtins"]):
                    if name in UNNAMED:
                        raise _refused(f"{name}()")
                    self._hold(Missing, read, name)
                    if name == "super":
                        # The methods of its parents are found without being named: all of the object may be read.
                        for first in local:
                            self.value(*names[first], first)
                    continue
            elif (
                operation.startswith("LOAD_")
                and isinstance(name, str)
                and name in names
                and (
                    "DEREF" in operation
                    or ("FAST" in operation and name in local and name not in code.co_cellvars)
                )
            ):
                value, read = names[name]
            else:
                continue
            end = place + 1
            while end < len(instructions) and instructions[end].opname in ("LOAD_ATTR", "LOAD_METHOD"):
                end += 1
            attributes = [each.argval for each in instructions[place + 1 : end]]
            after = [each for each in instructions[end : end + 2] if each.opname != "COPY"]
            if after and (
                after[0].opname in ("STORE_ATTR", "DELETE_ATTR")
                or (len(after) == 1 and after[0].opname == "LOAD_ATTR")
            ):
                raise _writes(".".join([name, *attributes, after[0].argval]))
            self._chain(value, read, name, attributes)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._code(constant, scope, names)

    def _chain(self, value: Any, read: Read, name: str, attributes: Sequence[str]) -> None:
        """Watch what is read as `name.attribute.attribute`."""
        for attribute in attributes:
            if isinstance(value, ModuleType) and _root(value) in LIBRARIES:
                inner = getattr(value, attribute, Missing)
                if any(inner is each for each in STATEFUL):
                    raise _refused(f"{name}.{attribute}")
                if not isinstance(inner, ModuleType | Mapping | list):
                    return
            elif not isinstance(value, ModuleType | type | FunctionType) and (
                not hasattr(value, "__dict__")
                or isinstance(value, qml.operation.Operator)
                or (isinstance(value, torch.Tensor | np.ndarray) and attribute not in vars(value))
            ):
                break
            else:
                member = inspect.getattr_static(value, attribute, None)
                function = _function_of(member)
                if function is not None and not isinstance(value, ModuleType | type | FunctionType):
                    self._hold(value, read, name)
                    owner = type(value) if isinstance(member, property) else value
                    self._hold(*_found(owner, attribute), f"{name}.{attribute}")
                    if _root(type(value)) in LIBRARIES:
                        self._inside(value, name, called=False)
                    first = {classmethod: type(value), staticmethod: Missing}.get(type(member), value)
                    self._method(function, first, f"{name}.{attribute}")
                    return
                inner = getattr(value, attribute, Missing)
                if inner is not getattr(value, attribute, Missing):
                    break
                self._hold(value, read, name)
            value, read, name = inner, partial(getattr, value, attribute, Missing), f"{name}.{attribute}"
        self.value(value, read, name)


def _found(owner: Any, attribute: str) -> tuple[object, Read]:
    """The function or property that an attribute is, bound or not, and how to read it: other code may be put in its place."""

    def read() -> object:
        member = getattr(owner, attribute)
        return getattr(member, "__func__", member)

    return read(), read


def _function_of(member: Any) -> FunctionType | None:
    """The function of a member of a class, if it has one."""
    if isinstance(member, staticmethod | classmethod | property):
        member = member.fget if isinstance(member, property) else member.__func__
    return member if isinstance(member, FunctionType) else None


def _plain(value: Any) -> bool:
    """Whether a value is a number, a text, or a container of these, of which `marshal` writes all that there is."""
    if type(value) in (tuple, list, set, frozenset):
        return all(map(_plain, value))
    if type(value) is dict:
        return all(map(_plain, value)) and all(map(_plain, value.values()))
    plain = type(value) in (bool, int, float, complex, str, bytes)
    return plain or value is None or isinstance(value, np.number | np.bool)


def _root(value: Any) -> str:
    """The package that a module, class or function is from."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return str(name).partition(".")[0]


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return Missing


def _refused(what: str) -> UserError:
    return UserError(
        f"from_qnode: the quantum function reads {what}, whose changes cannot be seen: pass what it reads as an "
        "argument, or write from_qnode(qnode, trace='always')"
    )


def _writes(name: str) -> UserError:
    return UserError(
        f"from_qnode: the quantum function writes to {name}, but runs once only: leave that out, or write "
        "from_qnode(qnode, trace='always')"
    )
