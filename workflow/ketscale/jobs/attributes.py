"""Snapshots of all that a user's own model keeps outside its parameters and buffers, and that its code keeps.

Checkpoints, saved weights and stacks of several seeds lack it. Only `ketscale try` takes them.
"""

from __future__ import annotations

import enum
import operator
import random
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from ketscale.errors import OWN, short
from ketscale.training import together

_PLAIN = (type(None), str, bytes, int, float, complex, enum.Enum, np.generic)
# Objects of these modules of Python, and of the user's own, are looked into.
_SEEN_INTO = ("builtins", "collections", "functools", "types")
# Attributes of a module that are in its state, or have other names here.
_OF_MODULE = ("_parameters", "_buffers", "_modules")


class Attributes:
    """A snapshot of a model's and its code's values by place, such as 'self.steps'.

    It has plain values, tensors, arrays and generators of random numbers, also inside containers, modules, closures
    and objects of the user's classes. Of other libraries' objects only the type counts.

    code: the modules of the user's code.
    """

    def __init__(self, model: nn.Module, code: Iterable[ModuleType]) -> None:
        self._values: dict[str, Any] = {}
        seen = {id(tensor) for tensor in model.state_dict(keep_vars=True).values()}
        waiting: list[tuple[str, Any]] = [("self", model)]
        for module in code:
            name = module.__name__.partition(".")[2]
            waiting += [(f"{name}.{variable}", each) for variable, each in _variables(module).items()]
        # It also holds what is made here, so that no id is that of two objects.
        for place, value in waiting:
            if id(value) in seen:
                continue
            leaf = _leaf(value)
            inner = list(_inside(place, value)) if leaf is None else []
            if not inner:
                self._values[place] = _described(value) if leaf is None else leaf
            elif not isinstance(value, tuple):  # equal ones may be one object or several
                seen.add(id(value))
            waiting += inner

    def change(self, other: Attributes) -> str:
        """The first place whose value differs in the other; '' if there is none."""
        mine, others = self._values, other._values
        places = (place for place in {**mine, **others} if not _equal(mine.get(place), others.get(place)))
        return short(next(places, ""))


def _leaf(value: Any) -> Any:
    """The comparable content of a plain value, a tensor, an array, a set or a generator; None for all else."""
    if isinstance(value, _PLAIN):
        return (value,) if value is None else value
    if isinstance(value, torch.Tensor):
        return (value if value.layout == torch.strided else value.to_dense()).detach().clone()
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state(legacy=False))
    return value.getstate() if isinstance(value, random.Random) else None


def _inside(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a value that is no leaf, by place; none of another library's object."""
    kind = type(value)
    own = str(value.__module__ if isinstance(value, type | FunctionType) else kind.__module__).startswith(OWN)
    inner: dict[str, Any] = {}
    if isinstance(value, Mapping):
        yield from ((f"{place}[{key!r}]", each) for key, each in value.items())
    elif isinstance(value, list | tuple | deque | np.ndarray):
        yield from ((f"{place}[{number}]", each) for number, each in enumerate(value))
    if isinstance(value, nn.Module):
        inner = {name: each for name, each in vars(value).items() if name not in _OF_MODULE}
        inner |= {name: value._buffers[name] for name in value._non_persistent_buffers_set} | value._modules
    elif isinstance(value, FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        inner = (
            {**vars(value), "defaults": (value.__defaults__, value.__kwdefaults__), **dict(cells)}
            if own
            else {}
        )
    elif isinstance(value, MethodType):
        inner = {"__func__": value.__func__, "__self__": value.__self__}
    elif isinstance(value, CellType):
        if value != CellType():  # an empty one
            yield place, value.cell_contents
    elif isinstance(value, type):
        inner = _variables(value) if own else {}
    elif (own or kind.__module__ in _SEEN_INTO) and not isinstance(value, ModuleType):
        slots = {name for each in kind.__mro__ for name in getattr(each, "__slots__", ())}
        inner = {name: getattr(value, name) for name in sorted(slots) if hasattr(value, name)}
        inner |= getattr(value, "__dict__", {})
    yield from ((f"{place}.{name}", each) for name, each in inner.items())


def _variables(value: ModuleType | type) -> dict[str, Any]:
    """The variables of a module or a class, without those that Python makes."""
    return {
        name: each
        for name, each in vars(value).items()
        if not (name.startswith("__") and name.endswith("__"))
    }


def _described(value: object) -> tuple[Any, ...]:
    """The comparable content of an empty or foreign object: its type, how many items are left, and the text of Python's own."""
    kind = type(value)
    said = repr(value) if kind.__module__ in sys.stdlib_module_names else ""
    return kind, operator.length_hint(value, -1), "" if " at 0x" in said else said


def _equal(one: Any, other: Any) -> bool:
    if (
        type(one) is type(other)
        and isinstance(one, _PLAIN)
        and (one == other or (one != one and other != other))
    ):
        return True
    if isinstance(one, float) and isinstance(other, float):
        one, other = (torch.tensor(each, dtype=torch.float64) for each in (one, other))
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.shape != other.shape or not torch.equal(one.isnan(), other.isnan()):
            return False
        return together.close(one.nan_to_num(), other.nan_to_num())
    return type(one) is type(other) and bool(one == other)
