"""The size of a model in a path: a letter and a number for each size axis of its family."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ketscale.errors import UserError


@dataclass(frozen=True)
class SizeAxis:
    """One of the numbers that give a model's size.

    letter: used in paths (any but b, which is the batch). name: used in configs and tables, e.g. 'layers'. title:
    used in figures, e.g. 'circuit layers'. sweep: the kind of study that sweeps it, by default `name`. most: its largest
    value.
    """

    letter: str
    name: str
    title: str
    sweep: str = ""
    most: int = 100_000


def encode(axes: Sequence[SizeAxis], values: Mapping[str, int]) -> str:
    """The size as a path has it, such as 'q4-l3' for {'qubits': 4, 'layers': 3}."""
    return "-".join(f"{axis.letter}{values[axis.name]}" for axis in axes)


def decode(axes: Sequence[SizeAxis], size: str) -> dict[str, int]:
    """The numbers by name, from the size in a path; the inverse of `encode`.

    Raises:
        UserError: the letters are not those of `axes` in their order.
    """
    parts = re.findall(r"([a-z])([0-9]+)", size)
    if [letter for letter, _ in parts] != [axis.letter for axis in axes]:
        pattern = "-".join(f"{axis.letter}<{axis.name}>" for axis in axes)
        raise UserError(f"size {size}: for models of this workload write {pattern}")
    return {axis.name: int(value) for axis, (_, value) in zip(axes, parts, strict=True)}
