"""What a quantum function reads besides its arguments, watched from call to call: one level deep, as by torch.compile.

That is its closure, the globals that its code loads, its defaults, and the object that it is a method of; of an object
among these what `vars()` has, of a module what the code names. Functions, classes and operators are taken not to change.
"""

from __future__ import annotations

import dis
import marshal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cached_property, lru_cache, partial
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
    type, Enum, range, Wires, np.dtype, np.ufunc, torch.dtype, torch.device, BuiltinFunctionType, CodeType,
)  # fmt: skip
LIBRARIES = frozenset(sys.stdlib_module_names) | {"jax", "numpy", "pennylane", "scipy", "torch"}
OF_MODULES = vars(torch.nn.Module()).keys() - {"_parameters", "_buffers", "training"}

# Larger arrays, in bytes, are not read at each call.
LARGEST = 2**20


class Identity(NamedTuple):
    """An object that must be the same one."""

    value: object


class Outside(NamedTuple):
    """What a function reads. key: differs wherever anything but the tensors' numbers does, while `held` is kept alive."""

    key: tuple[object, ...]
    tensors: list[torch.Tensor]
    held: list[object]


def outside(function: Callable[..., Any]) -> Outside:
    """What a function depends on besides its arguments, as it is now.

    Raises:
        UserError: the function reads something of which changes cannot be seen.
    """
    found = Outside((), [], [])
    key: list[object] = []
    first: dict[int, int] = {}
    for part in _function(function):
        if isinstance(part, Identity):
            key.append(id(part.value))
            found.held.append(part.value)
        elif isinstance(part, torch.Tensor):
            key.append((part.shape, part.dtype, part.device, first.setdefault(id(part), len(first))))
            found.tensors.append(part)
        else:
            key.append(part)
    return found._replace(key=tuple(key))


# Bytes, tuples, texts, identities and tensors; those before decide of what the next one is.
Parts = Iterator[Any]


def _function(function: Any) -> Parts:
    """What a function reads, or a method, a partial function or a callable object, and what it wraps."""
    if isinstance(function, partial):
        yield from _values({"args": function.args, "keywords": function.keywords}, str)
        yield from _function(function.func)
    elif not isinstance(function, FunctionType):
        owner = getattr(function, "__self__", function)
        method = getattr(function, "__func__", type(function).__call__)
        if not isinstance(method, FunctionType):
            raise _refused(f"what a {type(function).__name__} calls")
        yield from _value(owner, "self", _names(method.__code__)[1])
        yield from _function(method)
    else:
        code, scope = function.__code__, function.__globals__
        loaded, named = _names(code)
        yield from _value(function, "the quantum function")
        if str(scope.get("__name__")).partition(".")[0] not in LIBRARIES:
            values = {name: scope.get(name) for name in loaded}
            values |= zip(code.co_freevars, map(_contents, function.__closure__ or ()), strict=True)
            values |= {"__defaults__": function.__defaults__, "__kwdefaults__": function.__kwdefaults__}
            yield from _values(values, str, named)
        if hasattr(function, "__wrapped__"):
            yield from _function(function.__wrapped__)


def _values(
    values: Mapping[Any, Any],
    spelt: Callable[[Any], str],
    named: Iterable[str] = (),
    within: bool = False,
    required: bool = True,
) -> Parts:
    """Several values; spelt: the name of each. What is not required is left out if it cannot be watched, unless it is named."""
    plain = [value if _plain(value) else ... for value in values.values()]
    # Version 2 writes equal values equally, and tells 1, 1.0 and True apart.
    yield marshal.dumps(plain, 2)
    for (key, value), written in zip(values.items(), plain, strict=True):
        if written is ...:
            try:
                yield from [*_value(value, spelt(key), named, within)]
            except UserError:
                if required or key in named:
                    raise
                yield key


def _value(value: Any, name: str, named: Iterable[str] = (), within: bool = False) -> Parts:
    """A value that is not plain and what it holds; `within` is whether an object has it: objects in objects are not looked into.

    named: what the code names, of which every change must be seen.
    """
    if isinstance(value, torch.Tensor) and continuous(value):
        yield value
    elif isinstance(value, torch.Tensor | np.ndarray | np.generic):
        if value.nbytes > LARGEST or value.dtype == object:
            raise _refused(f"{name} (an array of objects, or of more than 1 MiB)")
        array = np.asarray(value.cpu() if isinstance(value, torch.Tensor) else value)
        yield type(value), array.dtype.str, array.shape, array.tobytes()
    else:
        yield Identity(value)
        if isinstance(value, FunctionType):
            # A notebook that loads edited modules again gives functions other code.
            yield Identity(value.__code__)
        elif isinstance(value, MethodType):
            yield from _values({name: value.__self__}, str, named, within)
        elif isinstance(value, list | tuple | dict):
            items = value if isinstance(value, dict) else dict(enumerate(value))
            yield marshal.dumps([*items] if _plain([*items]) else [*map(id, items)], 2)
            yield from _values(items, lambda key: f"{name}[{key!r}]", named, within)
        elif isinstance(value, ModuleType):
            if not within and value.__name__.partition(".")[0] not in LIBRARIES:
                has = {each: vars(value).get(each) for each in sorted(named)}
                yield from _values(has, lambda key: f"{name}.{key}", named, within=True)
        elif isinstance(value, Operator):
            yield from (each for each in value.data if isinstance(each, torch.Tensor))
        elif not isinstance(value, FIXED):
            if within or not hasattr(value, "__dict__"):
                raise _refused(f"{name} ({type(value).__name__})")
            for each in getattr(value, "_modules", ()):
                if each in named or each.isdigit():
                    raise _refused(f"{name}.{each} (a module within a module)")
            unread = OF_MODULES if isinstance(value, torch.nn.Module) else ()
            # What is cached is made of the rest.
            has = {
                each: held
                for each, held in vars(value).items()
                if each not in unread and not isinstance(getattr(type(value), each, None), cached_property)
            }
            yield marshal.dumps([*has], 2)
            yield from _values(has, lambda key: f"{name}.{key}", named, within=True, required=False)


@lru_cache(maxsize=1024)
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
