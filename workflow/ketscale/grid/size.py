"""How a model's size is written in a path: a letter and a number for each of its family's size axes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ketscale.errors import UserError


@dataclass(frozen=True)
class SizeAxis:
    """One number that says how big a model is.

    letter: in paths (any but b, the batch's). name: in configs and tables, e.g. 'layers'. title: in figures, e.g.
    'circuit layers'.
    """

    letter: str
    name: str
    title: str


def encode(axes: Sequence[SizeAxis], values: Mapping[str, int]) -> str:
    """The size in a path, such as 'q4-l3' of {'qubits': 4, 'layers': 3}."""
    return "-".join(f"{axis.letter}{values[axis.name]}" for axis in axes)


def decode(axes: Sequence[SizeAxis], size: str) -> dict[str, int]:
    """The numbers by name of a size in a path; the inverse of `encode`.

    Raises:
        UserError: the letters are not those of `axes` in their order.
    """
    parts = re.findall(r"([a-z])(\d+)", size)
    if [letter for letter, _ in parts] != [axis.letter for axis in axes]:
        pattern = "-".join(f"{axis.letter}<{axis.name}>" for axis in axes)
        raise UserError(f"size {size}: of this workload's models it is written {pattern}")
    return {axis.name: int(value) for axis, (_, value) in zip(axes, parts, strict=True)}
