"""What a quantum function reads besides its arguments, watched from call to call: one level deep, as by torch.compile.

That is its closure, the globals that its code loads, its defaults, and the object that it is a method of; of an object
among these what `vars()` has, of a module what the code names. Functions, classes and operators are taken not to change.
"""

from __future__ import annotations

import dis
import marshal
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cached_property, partial
from inspect import getattr_static
from operator import getitem, is_
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from pennylane.operation import Operator
from pennylane.wires import Wires

from ketscale.errors import UserError
from ketscale.interop.recorder import continuous

PLAIN = (bool, int, float, complex, str, bytes, type(None))
FIXED = (
    type,
    Enum,
    range,
    Wires,
    np.dtype,
    np.ufunc,
    torch.dtype,
    torch.device,
    BuiltinFunctionType,
    CodeType,
)
LIBRARIES = frozenset(sys.stdlib_module_names) | {"jax", "numpy", "pennylane", "scipy", "torch"}
OF_MODULES = vars(torch.nn.Module()).keys() - {"_parameters", "_buffers", "training"}

# Larger arrays, in bytes, are not read at each call.
LARGEST = 2**20

Read = Callable[[], Any]


class Watched(NamedTuple):
    """What is read in one place: an object that must be the same one, or a plain value, an array or a tensor."""

    kind: str
    name: str
    read: Read
    value: object


class Outside:
    """Reads at each call what a function depends on besides its arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._generation = 0
        self._watched: list[Watched] = []
        self._reads: dict[str, list[Read]] = {}
        self._held: list[object] = []

    def look(self) -> None:
        """Find anew what there is to watch.

        Raises:
            UserError: the function reads something of which changes cannot be seen.
        """
        found = list(_function(self._function))
        held = [each.value for each in found if each.kind == "fixed"]
        same = [each[:2] for each in found] == [each[:2] for each in self._watched]
        if not same or not all(map(is_, held, self._held)):
            self._generation += 1
        reads: dict[str, list[Read]] = {"fixed": [], "plain": [], "array": [], "tensor": []}
        for each in found:
            reads[each.kind].append(each.read)
        self._watched, self._held, self._reads = found, held, reads

    def now(self) -> tuple[object, list[torch.Tensor]]:
        """A key that differs wherever anything but the tensors' numbers does, and the tensors."""
        try:
            return self._read()
        except (AttributeError, LookupError, TypeError, ValueError):  # something is of another kind
            self.look()
            return self._read()

    def _read(self) -> tuple[object, list[torch.Tensor]]:
        reads = self._reads
        if not all(map(is_, [read() for read in reads["fixed"]], self._held)):
            raise LookupError
        # Version 2 writes equal values equally, and tells 1, 1.0 and True apart.
        key = [self._generation, marshal.dumps([read() for read in reads["plain"]], 2)]
        for read in reads["array"]:
            value = read()
            array = np.asarray(value.cpu() if isinstance(value, torch.Tensor) else value)
            key += [array.dtype.str, array.shape, array.tobytes()]
        tensors = [read() for read in reads["tensor"]]
        first: dict[int, int] = {}
        for number, tensor in enumerate(tensors):
            key += [tensor.shape, tensor.dtype, tensor.device, first.setdefault(id(tensor), number)]
        return tuple(key), tensors


def _function(function: Any) -> Iterator[Watched]:
    """What a function reads, or a method, a partial function or a callable object, and what it wraps."""
    if isinstance(function, partial):
        for part in ("args", "keywords"):
            yield from _value(getattr(function, part), partial(getattr, function, part), part)
        yield from _function(function.func)
    elif not isinstance(function, FunctionType):
        owner = getattr(function, "__self__", function)
        method = getattr(function, "__func__", type(function).__call__)
        if not isinstance(method, FunctionType):
            raise _refused(f"what a {type(function).__name__} calls")
        yield from _value(owner, lambda: owner, "self", _names(method.__code__)[1])
        yield from _function(method)
    else:
        code, scope = function.__code__, function.__globals__
        loaded, named = _names(code)
        yield from _value(function, lambda: function, "the quantum function")
        if str(scope.get("__name__")).partition(".")[0] not in LIBRARIES:
            cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
            reads: dict[str, Read] = {name: partial(scope.get, name) for name in loaded if name in scope}
            reads |= {name: partial(_contents, cell) for name, cell in cells}
            reads |= {part: partial(getattr, function, part) for part in ("__defaults__", "__kwdefaults__")}
            for name, read in reads.items():
                yield from _value(read(), read, name, named)
        if hasattr(function, "__wrapped__"):
            yield from _function(function.__wrapped__)


def _value(
    value: Any, read: Read, name: str, named: Iterable[str] = (), within: bool = False
) -> Iterator[Watched]:
    """A value and what it holds; `within` is whether an object has it: objects in objects are not looked into.

    named: what the code names, of which every change must be seen.
    """
    if _plain(value):
        yield Watched("plain", name, read, None)
    elif isinstance(value, torch.Tensor) and continuous(value):
        yield Watched("tensor", name, read, None)
    elif isinstance(value, torch.Tensor | np.ndarray | np.generic):
        if value.nbytes > LARGEST or value.dtype == object:
            raise _refused(f"{name} (an array of objects, or of more than 1 MiB)")
        yield Watched("array", name, read, None)
    else:
        yield Watched("fixed", name, read, value)
        if isinstance(value, FunctionType):
            # A notebook that loads edited modules again gives functions other code.
            yield Watched("fixed", f"{name}.__code__", partial(getattr, value, "__code__"), value.__code__)
        elif isinstance(value, MethodType):
            yield from _value(value.__self__, partial(getattr, value, "__self__"), name, named, within)
        elif isinstance(value, Operator):
            tensors = [each for each in value.data if isinstance(each, torch.Tensor)]
            yield from _items(tensors, range(len(tensors)), name)
        elif isinstance(value, list | tuple):
            yield Watched("plain", f"the length of {name}", partial(len, value), None)
            yield from _items(value, range(len(value)), name, named, within)
        elif isinstance(value, dict):
            keys = partial(list, value) if _plain(list(value)) else lambda: list(map(id, value))
            yield Watched("plain", f"the keys of {name}", keys, None)
            yield from _items(value, list(value), name, named, within)
        elif isinstance(value, ModuleType):
            if not within and value.__name__.partition(".")[0] not in LIBRARIES:
                yield from _attributes(value, sorted(named), name, named)
        elif not isinstance(value, FIXED):
            if within or not hasattr(value, "__dict__"):
                raise _refused(f"{name} ({type(value).__name__})")
            yield Watched("plain", f"the names of {name}", partial(list, vars(value)), None)
            for each in getattr(value, "_modules", ()):
                if each in named or each.isdigit():
                    raise _refused(f"{name}.{each} (a module within a module)")
            unread = OF_MODULES if isinstance(value, torch.nn.Module) else ()
            yield from _attributes(value, [each for each in vars(value) if each not in unread], name, named)


def _items(value: Any, keys: Iterable[Any], name: str, *more: Any) -> Iterator[Watched]:
    for key in keys:
        yield from _value(value[key], partial(getitem, value, key), f"{name}[{key!r}]", *more)


def _attributes(owner: Any, names: Iterable[str], name: str, named: Iterable[str]) -> Iterator[Watched]:
    """What an object has; what cannot be watched is left out unless the code names it."""
    for each in names:
        # What is cached is made of the rest.
        if each in vars(owner) and not isinstance(getattr_static(type(owner), each, None), cached_property):
            try:
                read = partial(getitem, vars(owner), each)
                yield from list(_value(read(), read, f"{name}.{each}", named, within=True))
            except UserError:
                if each in named:
                    raise


def _names(code: CodeType) -> tuple[list[str], frozenset[str]]:
    """The globals that code loads, and all that it names, also in functions within it."""
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    own = [each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"]
    loaded = dict.fromkeys([*own, *(name for names, _ in inner for name in names)])
    return [*loaded], frozenset(code.co_names).union(*(named for _, named in inner))


def _plain(value: Any) -> bool:
    """Whether a value is a number, a text, or a container of these, of which `marshal` writes all that there is."""
    if type(value) in (tuple, list, set, frozenset):
        return all(map(_plain, value))
    if type(value) is dict:
        return all(map(_plain, value)) and all(map(_plain, value.values()))
    return type(value) in PLAIN


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return None


def _refused(what: str) -> UserError:
    return UserError(
        f"from_qnode: the quantum function reads {what}, whose changes cannot be seen: pass what it reads as an "
        "argument, or write from_qnode(qnode, trace='always')"
    )
