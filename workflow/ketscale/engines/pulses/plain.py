"""What machine code does, by torch's operators on any device: gates on one or two sites of a chain, and exponentials.

The functions are those of `cpu`, whose reference they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from ketscale.autograd_function import applied
from ketscale.engines.dynamics.spectral import Exponential

Place = tuple[int, ...]  # the sites that a gate acts on; the first is the slower index of its matrix


@dataclass(frozen=True, eq=False)
class GateSequence:
    """Gates in the order of their action, whose matrices are in one flat buffer; several may share a matrix.

    levels, sites: of the chain. places: where gates act. items: int64 (gates, 2), the number of a gate's place and
    where its matrix starts in the buffer.
    """

    levels: int
    sites: int
    places: tuple[Place, ...]
    items: torch.Tensor

    def __len__(self) -> int:
        return len(self.items)

    def divided(self, number: int) -> tuple[GateSequence, GateSequence]:
        """So many of the first gates, and the others."""
        first, others = self.items[:number], self.items[number:]
        return replace(self, items=first), replace(self, items=others)

    @cached_property
    def steps(self) -> list[tuple[Place, int]]:
        """The place and the start of each gate."""
        return [(self.places[place], start) for place, start in self.items.tolist()]


def layers(pairs: tuple[Place, ...]) -> list[list[int]]:
    """The pairs' numbers in layers of disjoint pairs, each in the first layer with room; a chain has two."""
    groups: list[list[int]] = []
    for number, pair in enumerate(pairs):
        for layer in groups:
            if not any(set(pair) & set(pairs[other]) for other in layer):
                layer.append(number)
                break
        else:
            groups.append([number])
    return groups


def enter(columns: torch.Tensor, sequence: GateSequence) -> torch.Tensor:
    """Columns (columns, d**n) in the layout that a sequence acts on."""
    return columns.T.clone()


def leave(state: torch.Tensor, columns: int) -> torch.Tensor:
    """The inverse of `enter`."""
    return state.T.contiguous()


def forward(sequence: GateSequence, gates: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """The state (d**n, columns) after all gates, differentiable in both tensors."""
    for place, start in sequence.steps:
        state = on_sites(_matrix(sequence, gates, place, start), state, place, sequence)
    return state


def backward(
    sequence: GateSequence, gates: torch.Tensor, state: torch.Tensor, cotangent: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The state before the gates, its cotangent and that of the buffer, from the final state and its cotangent.

    count: of the numbers in the buffer, how many of the first need a cotangent; the others have 0.
    """
    to_gates = torch.zeros_like(gates)
    for place, start in reversed(sequence.steps):
        inverse = _matrix(sequence, gates, place, start).mH
        state = on_sites(inverse, state, place, sequence)
        if start < count:
            product = _by_place(cotangent, place, sequence) @ _by_place(state, place, sequence).mH
            to_gates[start : start + product.numel()] += product.flatten()
        cotangent = on_sites(inverse, cotangent, place, sequence)
    return state, cotangent, to_gates


def _matrix(sequence: GateSequence, gates: torch.Tensor, place: Place, start: int) -> torch.Tensor:
    size = sequence.levels ** len(place)
    return gates[start : start + size * size].reshape(size, size)


def on_sites(matrix: torch.Tensor, state: torch.Tensor, place: Place, sequence: GateSequence) -> torch.Tensor:
    """A matrix on the sites of a place, applied to the columns of a state (d**n, columns)."""
    applied = matrix @ _by_place(state, place, sequence)
    shape = [sequence.levels] * sequence.sites + [state.shape[-1]]
    order = [*place, *(axis for axis in range(len(shape)) if axis not in place)]
    tensor = applied.reshape([shape[axis] for axis in order])
    return tensor.movedim(tuple(range(len(place))), place).reshape(state.shape)


def _by_place(state: torch.Tensor, place: Place, sequence: GateSequence) -> torch.Tensor:
    """The state with the indices of a place's sites as rows, and all others as columns."""
    tensor = state.reshape([sequence.levels] * sequence.sites + [-1])
    return tensor.movedim(place, tuple(range(len(place)))).reshape(sequence.levels ** len(place), -1)


def unitary(hermitian: torch.Tensor) -> torch.Tensor:
    """exp(-i H) of Hermitian matrices (..., d, d), with derivatives of any order in Hermitian directions."""
    (matrix,) = applied(Exponential(1.0), (hermitian + hermitian.mH) / 2)
    # One Newton step makes it unitary to rounding: the same gate acts in every step, and its error adds up.
    return 1.5 * matrix - 0.5 * matrix @ (matrix.mH @ matrix)
