"""A circuit as the table that the kernels read, and the layout of their buffers.

A *vector* holds `lanes` floats: 2**lane_bits amplitudes (the lowest bits of a basis index) of each of
`samples` samples. A *tile* is the state of that many samples: 2**(n - lane_bits) vectors, or pairs of
them (real, imaginary). Everything that is computed for a tile stays in the cache of one core.
A *group* is the samples of one set of weights; no tile has samples of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.circuits.fused.hessians import Wanted
from ketscale.engines.circuits.fused.kernels import (
    COUNT,
    DIAGONAL,
    KIND,
    LANES,
    MOVE,
    NEXT,
    ODD,
    PAIRS,
    PIVOT,
    SEVERAL,
    STEP_FIELDS,
    TWO,
    WORDS,
    WORDS_AT_ONCE,
    parity,
)
from ketscale.engines.circuits.fused.mixing import orbits_of
from ketscale.engines.circuits.fused.program import Move, Program, Rotation, Word
from ketscale.engines.circuits.fused.schedule import (
    Pass,
    Phases,
    Schedule,
    Span,
    Step,
    measurement_passes,
    reversed_passes,
    schedule,
)

# A tile has at most as many samples as let a state and its adjoint take at most so many bytes together, about a first-level cache.
TILE_BYTES = 64 * 1024
# They are one block if they take at most so many bytes, and else blocks of so many, each of which is copied there and back.
WHOLE_BYTES, BLOCK_BYTES = 256 * 1024, 16 * 1024
# So many words of one flip, or more, are done together.
FEWEST_WORDS = 3


@dataclass(frozen=True)
class Listing:
    """One program with one layout, precision and set of wanted gradients.

    lanes: floats in a vector. lane_bits: how many bits of a basis index are in a vector's lanes. from_zero: the initial state is
    |0...0> instead of a given one. partners: for each amplitude of the computed state the one that the reversal of all wires
    puts in its place, if a superposition with the reversed state is measured (`mixing`); each sample then has a lane of its own.
    """

    program: Program
    input_columns: int
    weight_columns: int
    double: bool
    lanes: int
    lane_bits: int
    from_zero: bool
    wanted: tuple[Wanted, ...]
    partners: tuple[int, ...] | None = None

    @property
    def samples(self) -> int:
        """Samples in a tile."""
        return self.lanes >> self.lane_bits

    @property
    def vectors(self) -> int:
        """Vectors (pairs, if the state is complex) in a tile."""
        return 1 << self._bits

    @property
    def real(self) -> bool:
        """Whether all amplitudes are real, and imaginary parts are left out."""
        return self.from_zero and self.program.real and self.partners is None

    @property
    def state_vectors(self) -> int:
        """Vectors of a tile's state."""
        return self.vectors * (1 if self.real else 2)

    @property
    def _bits(self) -> int:
        return self.program.qubits - self.lane_bits

    @property
    def _dimensions(self) -> int:
        """The blocks' dimensions."""
        amplitude = self.lanes * (8 if self.double else 4) * (1 if self.real else 2)
        most = WHOLE_BYTES if 2 * amplitude << self._bits <= WHOLE_BYTES else BLOCK_BYTES
        return min(self._bits, (most // (2 * amplitude)).bit_length() - 1)

    @cached_property
    def forward(self) -> Schedule:
        """The schedule of the forward pass."""
        made = schedule(self.program, self._dimensions, self.lane_bits, self.from_zero)
        passes = (Pass(tuple(map(_single, each.steps)), each.basis, each.move) for each in made.passes)
        return Schedule(made.product, tuple(passes))

    @cached_property
    def backward(self) -> tuple[Pass, ...]:
        """The passes of the backward pass, before which there is nothing but the product state."""
        return reversed_passes(self.forward, self._dimensions, self.lane_bits) if self.wanted else ()

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """All rotations and diagonals, in the order of the forward pass."""
        return (*self.forward.product, *(step for each in self.forward.passes for step in each.steps))

    @cached_property
    def _diagonals(self) -> list[Phases]:
        return list(dict.fromkeys(step for step in self.steps if isinstance(step, Phases)))

    @cached_property
    def _turns(self) -> dict[tuple[int, float], int]:
        """The distinct angles of single rotations, a column and its factor: those of each sample first."""
        alone = [step for step in self.steps if isinstance(step, Rotation)]
        alone.sort(key=lambda step: step.angle.shared)
        return {angle: i for i, angle in enumerate(dict.fromkeys(map(self._angle, alone)))}

    def _angle(self, rotation: Rotation) -> tuple[int, float]:
        angle = rotation.angle
        first = {"input": 0, "weight": self.input_columns, "constant": self.all_columns - 1}[angle.kind]
        return first + angle.index, angle.factor

    @cached_property
    def _own_angles(self) -> int:
        """How many angles each sample has of its own."""
        return sum(column < self.input_columns for column, _ in self._turns)

    @property
    def _shared_angles(self) -> int:
        return len(self._turns) - self._own_angles

    @property
    def shared_stride(self) -> int:
        """Floats that `prepare` writes for a group: cosines and sines, each whole vectors, then the diagonals."""
        padded = -(-self._shared_angles // self.lanes) * self.lanes
        return 2 * (padded + self.table_size * len(self._diagonals))

    @property
    def mix_size(self) -> int:
        """Floats of a superposition's coefficients and constant."""
        return 0 if self.partners is None else 4 + 2 * len(self.partners)

    @property
    def table_size(self) -> int:
        """Floats of the real (or imaginary) part of a diagonal."""
        return max(1 << self.program.qubits, self.lanes)

    @property
    def columns(self) -> int:
        """Floats of a sample's result."""
        words = self.program.words
        return self.amplitude_floats if words is None else len(words)

    @property
    def amplitude_floats(self) -> int:
        """Floats of a sample's complex amplitudes."""
        return 2 << self.program.qubits

    @property
    def all_columns(self) -> int:
        """Columns of inputs and weights, and one of constants."""
        return self.input_columns + self.weight_columns + 1

    @cached_property
    def _pending(self) -> int:
        """Vectors of the overlaps of the diagonals that one backward pass has."""
        most = max((sum(isinstance(s, Phases) for s in p.steps) for p in self.backward), default=0)
        return most * self.table_size // self.lanes

    @cached_property
    def scratch(self) -> dict[str, int]:
        """The size of each buffer of a worker, in vectors."""
        return {
            "columns": self.all_columns,
            "turns": 2 * len(self._turns),
            "words": len(self.program.words or ()),
            "gradients": self.all_columns,
            "pending": self._pending,
            "field": self._field,
            "states": 2 * self._kept,
            "blocks": 2 * self._block_vectors,
        }

    @property
    def _field(self) -> int:
        """Vectors of a block's field of words."""
        return 1 << self._dimensions if self.program.words else 0

    @property
    def scratch_vectors(self) -> int:
        """Vectors of all buffers of a worker."""
        return sum(self.scratch.values())

    @property
    def _kept(self) -> int:
        """Vectors of psi and of the adjoint, if there are such."""
        return self.state_vectors if self.wanted or self.partners else 0

    @property
    def _block_vectors(self) -> int:
        """Vectors of a block's place; none if the state is one block, which stays where it is."""
        return 0 if self._dimensions == self._bits else (1 if self.real else 2) << self._dimensions

    def sizes(self) -> dict[str, int]:
        """The arguments that say how large things are, by name."""
        own = (
            "scratch_vectors input_columns weight_columns all_columns columns amplitude_floats lane_bits samples vectors "
            "mix_size shared_stride table_size"
        )
        return {
            **{name: getattr(self, name) for name in own.split()},
            "words": len(self.program.words or ()),
            "own_angles": self._own_angles,
            "shared_angles": self._shared_angles,
            "diagonals": len(self._diagonals),
            "pending": self._pending,
            "field_vectors": self._field,
            "qubits": self.program.qubits,
            "size": 1 << self.program.qubits,
            "kept_vectors": self._kept,
            "mixed": int(self.partners is not None),
            "block_vectors": self._block_vectors,
            "from_zero": int(self.from_zero),
            **{f"{name}_wanted": int(name in self.wanted) for name in ("input", "weight", "initial", "mix")},
        }

    def listed(self) -> tuple[dict[str, int], dict[str, torch.Tensor]]:
        """How many passes there are, and the tables, by the names of the arguments."""
        table = _Table(self.lane_bits, self._bits, self._dimensions)
        self._list_product(table, self.forward.product)
        self._list(table, self.forward.passes)
        forward = len(table.passes)
        # With real amplitudes, words with an odd number of Y are 0.
        table.words(self.program.words or (), self.real)
        words = len(table.passes) - forward
        if self.wanted:
            self._list(table, self.backward)
            self._list_product(table, self.forward.product[::-1])
        table.end()
        counts = {
            "forward_passes": forward,
            "word_passes": words,
            "backward_passes": len(table.passes) - forward - words,
        }
        dtype = torch.float64 if self.double else torch.float32
        angles, own = list(self._turns), self._own_angles
        orbits = dict(zip(("pairs", "singles"), orbits_of(self.partners or ()), strict=True))
        counts |= {name: len(found) for name, found in orbits.items()}
        phases = [phase for each in self._diagonals for phase in each.rotations]
        ends = np.cumsum([0, *(len(each.rotations) for each in self._diagonals)])
        tables: dict[str, tuple[Any, torch.dtype]] = {
            "passes": (table.passes, torch.int64),
            "steps": (table.steps, torch.int64),
            "blocks": (np.concatenate([[0], *table.blocks])[1:], torch.int64),
            "factors": (table.factors, dtype),
            "move_factors": (np.concatenate([[0.0], *table.move_factors])[1:], dtype),
            "angle_columns": ([column for column, _ in angles[:own]], torch.int64),
            "half_factors": ([factor / 2 for _, factor in angles[:own]], dtype),
            "shared_columns": ([column - self.input_columns for column, _ in angles[own:]], torch.int64),
            "shared_factors": ([factor / 2 for _, factor in angles[own:]], dtype),
            "diagonal_parts": (np.stack([ends[:-1], np.diff(ends)], axis=1), torch.int64),
            "phases": ([(r.z, self._angle(r)[0] - self.input_columns) for r in phases], torch.int64),
            "phase_factors": ([r.angle.factor / 2 for r in phases], dtype),
            **{f"orbit_{name}": (found, torch.int64) for name, found in orbits.items()},
        }
        return counts, {name: torch.from_numpy(np.array(v)).to(kind) for name, (v, kind) in tables.items()}

    def _list(self, table: _Table, passes: Iterable[Pass]) -> None:
        for each in passes:
            if each.move is not None:
                table.move(each.move)
                continue
            table.begin(_filled(Span(each.basis), self._dimensions, self._bits), len(each.steps))
            pending = 0
            for step in each.steps:
                if isinstance(step, Phases):
                    table.diagonal(self._diagonals.index(step), pending)
                    pending += 1
                else:
                    table.rotation(step, *self._numbers(step))
            table.join()

    def _list_product(self, table: _Table, steps: Sequence[Rotation]) -> None:
        """A pass of the rotations that make a product state: the support doubles with every bit."""
        if steps:
            table.begin_whole(len(steps))
        for step in steps:
            bit = step.x.bit_length() - 1 - self.lane_bits
            table.rotation(step, *self._numbers(step), size=2 << bit if bit >= 0 else 1)

    def _numbers(self, rotation: Rotation) -> tuple[int, int, float]:
        """The numbers of a rotation's angle and of its column, and the factor of its gradient."""
        column, factor = self._angle(rotation)
        return self._turns[column, factor], column, factor


def _single(step: Step) -> Step:
    """A diagonal of one rotation as that."""
    return step.rotations[0] if isinstance(step, Phases) and len(step.rotations) == 1 else step


class _Table:
    """Passes and steps as rows of numbers."""

    def __init__(self, lane_bits: int, bits: int, dimensions: int) -> None:
        self.passes: list[tuple[int, ...]] = []
        self.steps: list[tuple[int, ...]] = []
        self.factors: list[float] = []
        self.blocks: list[NDArray[np.int64]] = []
        self.move_factors: list[NDArray[np.float64]] = []
        self._ends = [0, 0]
        self._basis: tuple[int, ...] = ()
        self._lane_bits, self._bits, self._dimensions = lane_bits, bits, dimensions
        self._bases: dict[tuple[int, ...], tuple[int, int]] = {}
        self._moves: dict[Move, tuple[int, ...]] = {}
        self._others: list[tuple[int, ...]] = []
        self._other_factors: list[float] = []

    def move(self, move: Move) -> None:
        """A pass that is a move."""
        if move not in self._moves:
            places, values = move.factors()
            listed = self._listed(np.concatenate([places, move.swaps.flatten()]))
            starts = listed, self._factors(values.view(float))
            self._moves[move] = len(places), 0, len(move.swaps), *starts, 0
        self.passes.append(self._moves[move])

    def _listed(self, numbers: NDArray[np.int64]) -> int:
        """Add numbers to the blocks; the place of the first."""
        self.blocks.append(numbers)
        self._ends[0] += len(numbers)
        return self._ends[0] - len(numbers)

    def _factors(self, parts: NDArray[np.float64]) -> int:
        """Add real and imaginary parts to the factors of moves; the number of their first pair."""
        self.move_factors.append(parts)
        self._ends[1] += len(parts) // 2
        return self._ends[1] - len(parts) // 2

    def begin(self, basis: tuple[int, ...], count: int) -> None:
        """A pass of so many steps, which follow, on blocks of a basis."""
        if basis not in self._bases:
            offsets = [0]
            for vector in basis:
                offsets += [offset ^ vector for offset in offsets]
            first = self._listed(np.array([*sorted(vector.bit_length() - 1 for vector in basis), *offsets]))
            self._bases[basis] = first, first + len(basis)
        self._basis = basis
        blocks = 1 << (self._bits - len(basis))
        self.passes.append((len(self.steps), count, len(basis), *self._bases[basis], blocks))

    def begin_whole(self, count: int) -> None:
        """A pass of so many steps, which follow, on the whole state."""
        self._basis = tuple(1 << bit for bit in range(self._bits))
        self.passes.append((len(self.steps), count, 0, 0, 0, 1))

    def rotation(self, rotation: Rotation, angle: int, column: int, factor: float, size: int = 0) -> None:
        """A rotation of the pass, with the numbers of its angle and column, and its factor; size: see `kernels.SIZE`."""
        power = 3 * (1 + rotation.ys) % 4
        self._step(rotation.x, rotation.z, power, angle, column, factor, size=size)

    def diagonal(self, number: int, pending: int) -> None:
        """A diagonal of the pass, which is its `pending`-th."""
        self.steps.append((DIAGONAL, 0, 0, 0, 0, 0, 0, 0, number, pending, 0, 0))
        self.factors.append(0.0)

    def join(self) -> None:
        """Have two neighbouring rotations of the pass done together, where both exchange vectors."""
        begin = len(self.steps) - self.passes[-1][COUNT]
        left = list(zip(self.steps[begin:], self.factors[begin:], strict=True))
        del self.steps[begin:], self.factors[begin:]
        while left:
            step, factor = left.pop(0)
            other, factor_ = left[0] if left else (step, factor)
            span = Span().joined(step[MOVE]).joined(other[MOVE])
            pairs = max(step[KIND], other[KIND]) < DIAGONAL and step[KIND] & other[KIND] & PAIRS
            if pairs and len(span.basis) == 2:
                del left[0]
                lanes = 4 * bool((step[KIND] | other[KIND]) & LANES)
                flags = (step[KIND] & ODD) + 2 * (other[KIND] & ODD)
                low, high = sorted(vector.bit_length() - 1 for vector in span.basis)
                step = _with(_with(step, KIND, TWO + flags + lanes), PIVOT, low)
                step = self._followed(step, [_with(other, PIVOT, high)], [factor_])
            self.steps.append(step)
            self.factors.append(factor)
        self.passes[-1] = _with(self.passes[-1], COUNT, len(self.steps) - begin)

    def _followed(
        self, step: tuple[int, ...], others: Sequence[tuple[int, ...]], factors: Sequence[float]
    ) -> tuple[int, ...]:
        """A step with others that are done together with it; these are listed after all passes."""
        step = _with(step, NEXT, len(self._others))
        self._others += others
        self._other_factors += factors
        return step

    def end(self) -> None:
        """List the steps that are done together with others."""
        first = len(self.steps)
        self.steps = [
            _with(step, NEXT, first + step[NEXT]) if step[KIND] >= WORDS else step for step in self.steps
        ]
        self.steps += self._others
        self.factors += self._other_factors

    def words(self, words: Sequence[Word], real: bool) -> None:
        """The passes of measured words."""
        seen = [(number, word) for number, word in enumerate(words) if not (real and word.ys % 2)]
        for span, masks in measurement_passes([word for _, word in seen], self._dimensions, self._lane_bits):
            begin = len(self.steps)
            self.begin(_filled(Span(span), self._dimensions, self._bits), 0)
            for mask, odd in product(masks, (0, 1)):
                first = len(self.steps)
                for number, word in seen:
                    if word.x == mask and word.ys % 2 == odd:
                        power = (1 - word.sign - word.ys) % 4
                        self._step(word.x, word.z, power, number, 0, 0.0)
                members = self.steps[first:]
                if len(members) >= FEWEST_WORDS:
                    del self.steps[first:], self.factors[first:]
                    self._step(mask, 0, odd, 0, len(members), 0.0)
                    group = _with(self.steps[-1], KIND, WORDS + odd)
                    self.steps[-1] = self._followed(group, members, [0.0] * len(members))
            self._join_words(begin)
            self.passes[-1] = _with(self.passes[-1], COUNT, len(self.steps) - begin)

    def _join_words(self, begin: int) -> None:
        """Have words that exchange vectors, and no lanes, done together, several of one kind at a time."""
        rows = self.steps[begin:]
        for kind in (PAIRS, PAIRS + ODD):
            alike = [row for row in rows if row[KIND] == kind]
            rows = [row for row in rows if row[KIND] != kind]
            while len(alike) >= WORDS_AT_ONCE:
                members, alike = alike[:WORDS_AT_ONCE], alike[WORDS_AT_ONCE:]
                group = _with((0,) * STEP_FIELDS, KIND, SEVERAL + kind - PAIRS)
                rows.append(self._followed(group, members, [0.0] * len(members)))
            rows += alike
        self.steps[begin:], self.factors[begin:] = rows, [0.0] * len(rows)

    def _step(
        self,
        x: int,
        z: int,
        power: int,
        index: int,
        column: int,
        factor: float,
        size: int = 0,
    ) -> None:
        """A step about the word of masks x and z, times i**power, whose sign is that of z at the image's place."""
        rest, functional, lanes = x >> self._lane_bits, z >> self._lane_bits, (1 << self._lane_bits) - 1
        move = within = pivots = 0
        for i, vector in enumerate(self._basis):
            pivot = 1 << (vector.bit_length() - 1)
            pivots |= pivot
            within |= parity(functional & vector) << i
            if rest & pivot:
                rest, move = rest ^ vector, move | 1 << i
        kind = ODD * (power % 2) | LANES * bool(x & lanes) | PAIRS * (move > 0)
        pivot = max(move.bit_length() - 1, 0)
        signs = within, functional & ~pivots, x & lanes, z & lanes, power // 2
        self.steps.append((kind, move, pivot, *signs, index, column, size, 0))
        self.factors.append(factor)


def _filled(span: Span, dimensions: int, bits: int) -> tuple[int, ...]:
    """A basis of a span that is widened by single bits, the lowest first, up to so many dimensions; ascending."""
    for bit in range(bits):
        if len(span.basis) >= dimensions:
            break
        span = span.joined(1 << bit)
    return tuple(sorted(span.basis))


def _with(row: tuple[int, ...], field: int, value: int) -> tuple[int, ...]:
    """A row with another value in a field."""
    return (*row[:field], value, *row[field + 1 :])
