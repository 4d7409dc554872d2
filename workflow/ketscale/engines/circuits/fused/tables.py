"""A program as tables of real arithmetic in device memory, which the GPU's kernels and `stepwise` read.

A complex number is a pair of reals; the highest bit of an index says which part it is. So i is a signed exchange of
the pair: (re, im) becomes (-im, re). Pauli words, alone or times a power of i, are signed exchanges too. If every
amplitude is real, there is no such bit and half as many numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from ketscale.engines.circuits.fused.hessians import Argument
from ketscale.engines.circuits.fused.program import Program, Rotation

# The sources of angles, by their numbers in the table: INPUT, WEIGHT and CONSTANT of `triton_kernels`.
SOURCES = ("input", "weight", "constant")


class Exchange(NamedTuple):
    """The map to number k from number k ^ x, times `sign`, and times -1 if k & z has an odd number of bits."""

    x: int
    z: int
    sign: int


class Columns(NamedTuple):
    """How derivatives by half angles add up to the gradients of columns.

    slots, factors: (columns, most rotations of a column); a column with fewer has factors 0.
    """

    slots: torch.Tensor
    factors: torch.Tensor

    def sums(self, derivatives: torch.Tensor, columns: int) -> torch.Tensor:
        """(rows, columns) from (rows, slots); columns that the circuit does not have get 0."""
        # Neither a matrix product, which may round to TF32, nor an atomic sum.
        parts = derivatives.index_select(1, self.slots.flatten()).unflatten(1, self.slots.shape)
        return torch.nn.functional.pad((parts * self.factors).sum(2), (0, columns - len(self.slots)))


@dataclass(frozen=True)
class Tables:
    """A program on a device, for one set of wanted gradients; the kernels' arguments give the shapes.

    qubits: number of the circuit's qubits. bits: bits of an index. slot_of: where each rotation's gradient goes, -1 if it is
    not wanted.
    rotation_table, word_table: for the kernels, whose columns `triton_kernels` names. rotation_masks, word_masks: x and z.
    first: the first rotation whose gradient is wanted (0 with the initial state's).
    slots: the number of rotations whose gradient is wanted.
    """

    qubits: int
    bits: int
    slot_of: tuple[int, ...]
    kinds: tuple[Argument, ...]
    rotation_table: torch.Tensor
    rotation_masks: torch.Tensor
    factors: torch.Tensor
    first: int
    slots: int
    inputs: Columns
    weights: Columns
    word_table: torch.Tensor
    word_masks: torch.Tensor
    signs: torch.Tensor
    places: torch.Tensor | None
    place_signs: torch.Tensor | None


def tabulate(
    program: Program,
    real: bool,
    kinds: tuple[Argument, ...],
    dtype: torch.dtype,
    device: torch.device,
    lanes: int,
) -> Tables:
    """The tables of a program without moves.

    real: leave out imaginary parts; only for expectation values of a program that is `Program.real`.
    lanes: how many numbers of a state make a row of a block.
    """
    rotations = [r for r in program.rotations if isinstance(r, Rotation)]
    # -i times a word, since a rotation is cos - i sin times the word.
    part = 0 if real else 2**program.qubits
    exchanges = [exchange(r.x, r.z, r.ys + 3, part) for r in rotations]
    factors = [e.sign * r.angle.factor / 2 for e, r in zip(exchanges, rotations, strict=True)]
    differentiated = [i for i, r in enumerate(rotations) if r.angle.kind in kinds]
    slots = {rotation: slot for slot, rotation in enumerate(differentiated)}
    first = 0 if "initial" in kinds else min(differentiated, default=len(rotations))
    slot_of = tuple(slots.get(i, -1) for i in range(len(rotations)))
    rows = [
        (e.x % lanes, e.x // lanes, e.z, SOURCES.index(r.angle.kind), r.angle.index, slot)
        for e, r, slot in zip(exchanges, rotations, slot_of, strict=True)
    ]
    words = []
    for w in program.words or ():
        word = exchange(w.x, w.z, w.ys, part)
        words.append(word._replace(sign=word.sign * w.sign))

    def integers(values: ArrayLike, kind: type = np.int32) -> torch.Tensor:
        return torch.tensor(np.asarray(values, dtype=kind), device=device)

    def reals(values: ArrayLike) -> torch.Tensor:
        return torch.tensor(np.asarray(values, dtype=np.float64), dtype=dtype, device=device)

    def columns(kind: Argument) -> Columns:
        summands: dict[int, list[tuple[int, float]]] = {}
        for rotation in differentiated:
            angle = rotations[rotation].angle
            if angle.kind == kind:
                summands.setdefault(angle.index, []).append((slots[rotation], factors[rotation]))
        shape = (max(summands, default=-1) + 1, max(map(len, summands.values()), default=0), 2)
        table = np.zeros(shape)
        for column, pairs in summands.items():
            table[column, : len(pairs)] = pairs
        return Columns(integers(table[..., 0], np.int64), reals(table[..., 1]))

    places = place_signs = None
    if program.words is None:
        numbers, signs = _places(program)
        places, place_signs = integers(numbers), reals(signs)
    return Tables(
        qubits=program.qubits,
        bits=program.qubits + (not real),
        slot_of=slot_of,
        kinds=kinds,
        rotation_table=integers(np.reshape(rows, (-1, 6))),
        rotation_masks=integers(np.reshape([(e.x, e.z) for e in exchanges], (-1, 2)), np.int64),
        factors=reals(factors),
        first=first,
        slots=len(slots),
        inputs=columns("input"),
        weights=columns("weight"),
        word_table=integers(np.reshape([(e.x % lanes, e.x // lanes, e.z) for e in words], (-1, 3))),
        word_masks=integers(np.reshape([(e.x, e.z) for e in words], (-1, 2)), np.int64),
        signs=reals([e.sign for e in words]),
        places=places,
        place_signs=place_signs,
    )


def exchange(x: int, z: int, power: int, part: int) -> Exchange:
    """i**power times X on mask `x` after Z on mask `z`, on pairs of reals or on reals alone.

    part: the bit that says which part a number is; 0 if there are no imaginary parts. Then an odd power, which makes
        reals imaginary, gives their real part, 0.
    """
    if power % 2 and not part:
        return Exchange(0, 0, 0)
    if power % 2:
        # i itself is X after Z on the part's bit, since the imaginary part becomes the real one with a minus.
        x, z = x | part, z | part
    # Z acts on k ^ x, the origin of the number, so its sign for k has a further factor (-1)**bits(x & z).
    minus = power // 2 + (x & z).bit_count()
    return Exchange(x, z, -1 if minus % 2 else 1)


def _places(program: Program) -> tuple[Sequence[int], Sequence[int]]:
    """The place of each real number of the computed state in the true one, and its sign there."""
    size = 2**program.qubits
    order = np.asarray(program.order or range(size))
    powers = np.asarray(program.powers or [0] * size)
    parts = np.arange(2)[:, None]
    places = 2 * order + (parts ^ powers % 2)
    minus = powers // 2 + powers % 2 * parts
    return places.ravel().tolist(), (1 - 2 * (minus % 2)).ravel().tolist()
