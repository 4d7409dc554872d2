"""What a user's own model keeps outside its parameters and buffers, which checkpoints and saved weights lack."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from ketscale.errors import OWN
from ketscale.training import together

# Attributes of a module that are in its state, or are looked into by themselves.
_OF_MODULE = ("_parameters", "_buffers", "_modules")


def snapshot(model: nn.Module) -> dict[str, torch.Tensor | str]:
    """The values of a model's attributes and those of its modules by place, such as 'self.steps'.

    They are plain values, tensors, arrays, and generators of torch and of numpy.random.default_rng, also in containers and in
    objects of classes of the user's; other objects do not count.
    """
    values: dict[str, torch.Tensor | str] = {}
    seen = {id(tensor) for tensor in model.state_dict(keep_vars=True).values()}
    waiting: list[tuple[str, Any]] = [("self", model)]
    for place, value in waiting:
        # It also holds what is made here, so that no id is that of two objects.
        if id(value) in seen:
            continue
        if isinstance(value, torch.Tensor):
            values[place] = (value if value.layout == torch.strided else value.to_dense()).detach().clone()
        elif isinstance(value, float | np.number):
            values[place] = torch.tensor(value)
        elif isinstance(value, torch.Generator):
            values[place] = value.get_state()
        elif isinstance(value, np.random.Generator):
            values[place] = repr(value.bit_generator.state)
        elif isinstance(value, np.ndarray):
            values[place] = repr(value.tolist())
        elif value is None or isinstance(value, str | bytes | int | complex | set | frozenset):
            values[place] = repr(value)
        else:
            seen.add(id(value))
            waiting += _parts(place, value)
    return values


def _parts(place: str, value: object) -> Iterator[tuple[str, Any]]:
    """The parts of a container, of a module, or of an object of a user's class, by place."""
    inner: Mapping[str, Any] = {}
    if isinstance(value, Mapping):
        yield from ((f"{place}[{key!r}]", each) for key, each in value.items())
    elif isinstance(value, list | tuple | deque):
        yield from ((f"{place}[{number}]", each) for number, each in enumerate(value))
    elif isinstance(value, nn.Module):
        inner = {name: each for name, each in vars(value).items() if name not in _OF_MODULE}
        inner |= {name: value._buffers[name] for name in value._non_persistent_buffers_set} | value._modules
    elif type(value).__module__.startswith(OWN):
        inner = getattr(value, "__dict__", {})
    yield from ((f"{place}.{name}", each) for name, each in inner.items())


def change(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The first place whose value differs between two snapshots; '' if there is none."""
    for place in {**one, **other}:
        mine, others = one.get(place), other.get(place)
        if isinstance(mine, torch.Tensor) and isinstance(others, torch.Tensor):
            alike = together.close(mine.nan_to_num(), others.nan_to_num())
        else:
            alike = type(mine) is type(others) and bool(mine == others)
        if not alike:
            return place
    return ""
