"""What a user's own model keeps outside its parameters and buffers, which checkpoints and saved weights lack."""

from __future__ import annotations

import contextlib
import io
import pickle
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ketscale.errors import OWN

# Attributes of a module that are in its state, or are looked into by themselves.
_OF_MODULE = ("_parameters", "_buffers", "_modules")
_PLAIN = ("builtins", "collections", "numpy", "torch")


def snapshot(model: nn.Module) -> dict[str, bytes]:
    """The values of a model's attributes and those of its modules, such as 'self.steps', as bytes that are equal for equal ones.

    They are plain values, tensors, arrays, and generators of torch and of numpy.random.default_rng, also in containers and in
    objects of classes of the user's; other objects and functions do not count.
    """
    found = {}
    for place, module in model.named_modules(prefix="self"):
        buffers = {name: module._buffers[name] for name in module._non_persistent_buffers_set}
        for name, value in {**vars(module), **buffers}.items():
            if name not in _OF_MODULE:
                content = io.BytesIO()
                with contextlib.suppress(Exception):  # what cannot be pickled may raise anything
                    _Pickler(content).dump(value)
                    found[f"{place}.{name}"] = content.getvalue()
    return found


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> str | None:
        """What stands for an object that does not count; None for one that does."""
        kind = type(value).__module__
        counts = kind.startswith(OWN) or (kind.split(".")[0] in _PLAIN and not callable(value))
        return None if counts else "left out"

    def reducer_override(self, value: Any) -> Any:
        """The values of a tensor, and not where they are stored."""
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        plain = value.detach().cpu().to_dense().resolve_conj().resolve_neg()
        return bytes, (f"{plain.dtype}{plain.shape}".encode() + plain.numpy().tobytes(),)


def change(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> str:
    """The first place whose value differs between two snapshots; '' if there is none."""
    return next((place for place in {**one, **other} if one.get(place) != other.get(place)), "")
