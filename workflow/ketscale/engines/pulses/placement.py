"""Gates on one or two sites of a lattice: which acts where, in which order, and where a buffer holds its matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch

Place = tuple[int, ...]  # the sites that a gate acts on; the first is the slower index of its matrix


@dataclass(frozen=True, eq=False)
class Sequence:
    """Gates in the order of their action, whose matrices are in one flat buffer; several may share a matrix.

    levels, sites: of the lattice. places: where gates act. items: int64 (gates, 2), the number of a gate's place and
    where its matrix starts in the buffer.
    """

    levels: int
    sites: int
    places: tuple[Place, ...]
    items: torch.Tensor

    def __len__(self) -> int:
        return len(self.items)

    def divided(self, number: int) -> tuple[Sequence, Sequence]:
        """So many of the first gates, and the others."""
        first, others = self.items[:number], self.items[number:]
        return replace(self, items=first), replace(self, items=others)

    @cached_property
    def steps(self) -> list[tuple[Place, int]]:
        """The place and the start of each gate."""
        return [(self.places[place], start) for place, start in self.items.tolist()]


def layers(pairs: tuple[Place, ...]) -> list[list[int]]:
    """The pairs' numbers in layers of disjoint pairs, each in the first layer with room; a chain has two."""
    made: list[list[int]] = []
    for number, pair in enumerate(pairs):
        for layer in made:
            if not any(set(pair) & set(pairs[other]) for other in layer):
                layer.append(number)
                break
        else:
            made.append([number])
    return made
