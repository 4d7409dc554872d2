"""A circuit as the table that the kernels read, and the layout of their buffers.

A *vector* holds `lanes` floats: 2**lane_bits amplitudes (the lowest bits of a basis index) of each of
`samples` samples. A *tile* is the state of that many samples: 2**(n - lane_bits) vectors, or pairs of
them (real, imaginary). Everything that is computed for a tile stays in the cache of one core.
A *group* is the samples of one set of weights; no tile has samples of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused.hessians import Argument
from ketscale.engines.circuits.fused.kernels import (
    DIAGONAL,
    LANES,
    ODD,
    PAIRS,
    STEP_FIELDS,
    TWO,
    WORDS,
    parity,
)
from ketscale.engines.circuits.fused.mixing import pairs_of
from ketscale.engines.circuits.fused.program import Move, Program, Rotation, reduce
from ketscale.engines.circuits.fused.schedule import (
    Pass,
    Phases,
    Span,
    measurement_passes,
    reversed_passes,
    schedule,
)
from ketscale.engines.compiled.library import vector_bytes

# A tile has at most as many samples as let a state and its adjoint take at most so many bytes together, about a first-level cache.
TILE_BYTES = 64 * 1024
# A tile's state and adjoint take at most this many bytes in circuits with moves, whose samples should not share vectors.
PERMUTATION_BYTES = 512 * 1024
# They are one block if they take at most so many bytes, and else blocks of so many, each of which is copied there and back.
STATE_BYTES, BLOCK_BYTES = 256 * 1024, 16 * 1024
# Up to this many amplitudes vectors have 256 bits: in a training step, between torch's kernels, wider ones took 20 us more.
FEW_AMPLITUDES = 512
# So many words of one flip, or more, are done together.
FEWEST_WORDS = 3


class Call(NamedTuple):
    """What is asked of a circuit.

    words: whose expectation values; None asks for the state. batch: samples of each group; groups: each has weights of its
    own. from_zero: the initial state is |0...0> instead of a given one. wanted: the gradients. partners: for each
    amplitude of the computed state the one that the reversal of all wires puts in its place, if a superposition with the reversed
    state is measured (`mixing`); each sample then has a lane of its own.
    """

    circuit: Circuit
    words: tuple[str, ...] | None
    dtype: torch.dtype
    batch: int
    groups: int = 1
    from_zero: bool = True
    kinds: tuple[Argument, ...] = ()
    partners: tuple[int, ...] | None = None


class Listing:
    """A call's circuit as a table: `sizes` and `tables`, by the names of the arguments.

    lanes: floats in a vector. lane_bits: how many bits of a basis index are in a vector's lanes. real: whether all amplitudes
    are real, and imaginary parts are left out. samples: in a tile. state_vectors: of a tile's state. steps: all rotations and
    diagonals, in the order of the forward pass.
    """

    def __init__(self, call: Call) -> None:
        dtype, from_zero, kinds, partners = call.dtype, call.from_zero, call.kinds, call.partners
        columns = call.circuit.inputs, call.circuit.weights
        self.program = program = reduce(call.circuit, call.words, partners is not None)
        self.kinds, self.real = kinds, from_zero and program.real and partners is None
        self.lanes = lanes = _lanes(call.batch << program.qubits, dtype.itemsize)
        self.lane_bits = lane_bits = 0 if partners else _lane_bits(call, program, lanes, self.real)
        self.samples, self._bits = lanes >> lane_bits, program.qubits - lane_bits
        parts = 1 if self.real else 2
        self.state_vectors = parts << self._bits
        amplitude = lanes * dtype.itemsize * parts
        most = STATE_BYTES if 2 * amplitude << self._bits <= STATE_BYTES else BLOCK_BYTES
        self._dimensions = min(self._bits, (most // (2 * amplitude)).bit_length() - 1)
        forward = schedule(program, self._dimensions, lane_bits, from_zero)
        backward = reversed_passes(forward, self._dimensions, lane_bits) if kinds else ()
        by_product = any(rotation.angle.kind in kinds for rotation in forward.product)

        self.steps = [*forward.product, *(step for each in forward.passes for step in each.steps)]
        self._diagonals = list(dict.fromkeys(step for step in self.steps if isinstance(step, Phases)))
        phases = [phase for each in self._diagonals for phase in each.rotations]
        ends = np.cumsum([0, *(len(each.rotations) for each in self._diagonals)])
        # The distinct angles of single rotations, those of each sample first: columns, of which the last is of constants, and
        # factors.
        self._first = {"input": 0, "weight": columns[0], "constant": sum(columns)}
        rotations = [step for step in self.steps if isinstance(step, Rotation)]
        rotations.sort(key=lambda step: step.angle.shared)
        angles = list(dict.fromkeys(map(self._angle, rotations)))
        self._turns = {angle: number for number, angle in enumerate(angles)}
        own = sum(column < columns[0] for column, _ in angles)

        table = _Table(self._bits)
        self._list_product(table, forward.product)
        self._list(table, forward.passes)
        forward_passes = len(table.passes)
        self._list_words(table)
        word_passes = len(table.passes) - forward_passes
        self._list(table, backward)
        if by_product:
            self._list_product(table, forward.product[::-1])
        steps = table.every_step()
        tables: dict[str, tuple[Any, torch.dtype]] = {
            "passes": (table.passes, torch.int64),
            "steps": ([step[:STEP_FIELDS] for step in steps], torch.int64),
            "blocks": (np.concatenate([[0], *table.blocks])[1:], torch.int64),
            "factors": ([step.factor for step in steps], dtype),
            "move_factors": (np.concatenate([[0.0], *table.move_factors])[1:], dtype),
            "angle_columns": ([column for column, _ in angles[:own]], torch.int64),
            "half_factors": ([factor / 2 for _, factor in angles[:own]], dtype),
            "shared_columns": ([column - columns[0] for column, _ in angles[own:]], torch.int64),
            "shared_factors": ([factor / 2 for _, factor in angles[own:]], dtype),
            "diagonal_parts": (np.stack([ends[:-1], np.diff(ends)], axis=1), torch.int64),
            "phases": ([(r.z, self._angle(r)[0] - columns[0]) for r in phases], torch.int64),
            "phase_factors": ([r.angle.factor / 2 for r in phases], dtype),
            "partners": (pairs_of(partners or ()), torch.int64),
        }
        self.tables = {name: torch.from_numpy(np.array(v)).to(kind) for name, (v, kind) in tables.items()}

        size, words = 1 << program.qubits, program.words or ()
        table_size = max(size, lanes)  # floats of the real, or imaginary, part of a diagonal
        # Vectors of a worker: the overlaps of the diagonals that one backward pass has, psi and the adjoint, and blocks of
        # them, unless the state is one block, which stays where it is.
        diagonals = (sum(isinstance(step, Phases) for step in each.steps) for each in backward)
        pending = max(diagonals, default=0) * table_size // lanes
        vectors = self.state_vectors if kinds or partners else 0
        block = 0 if self._dimensions == self._bits else parts << self._dimensions
        field = 1 << self._dimensions if words else 0
        all_columns = sum(columns) + 1
        shared = -(-(len(angles) - own) // lanes) * lanes  # of whole vectors
        self.sizes = {
            "input_columns": columns[0],
            "weight_columns": columns[1],
            "all_columns": all_columns,
            "columns": 2 * size if program.words is None else len(words),
            "words": len(words),
            "qubits": program.qubits,
            "size": size,
            "amplitude_floats": 2 * size,
            "lane_bits": lane_bits,
            "samples": self.samples,
            "vectors": 1 << self._bits,
            "own_angles": own,
            "shared_angles": len(angles) - own,
            "diagonals": len(self._diagonals),
            "table_size": table_size,
            # Floats that `prepare` writes for a group: cosines and sines, then the diagonals.
            "shared_stride": 2 * (shared + table_size * len(self._diagonals)),
            "pending": pending,
            "kept_vectors": vectors,
            "block_vectors": block,
            "field_vectors": field,
            "scratch_vectors": 2 * all_columns
            + 2 * len(angles)
            + len(words)
            + pending
            + field
            + 2 * (vectors + block),
            "mixed": int(partners is not None),
            "mix_size": 0 if partners is None else 4 + 2 * len(partners),
            "from_zero": int(from_zero),
            **{f"{name}_wanted": int(name in kinds) for name in ("input", "weight", "initial", "mix")},
            "forward_passes": forward_passes,
            "word_passes": word_passes,
            "backward_passes": len(table.passes) - forward_passes - word_passes,
        }

    def _angle(self, rotation: Rotation) -> tuple[int, float]:
        angle = rotation.angle
        return self._first[angle.kind] + angle.index, angle.factor

    def _list(self, table: _Table, passes: Iterable[Pass]) -> None:
        for each in passes:
            if each.move is not None:
                table.move(each.move)
                continue
            basis, steps, pending = self._basis(each.basis), list[_Step](), 0
            for step in each.steps:
                if isinstance(step, Phases):
                    steps.append(_Step(DIAGONAL, number=self._diagonals.index(step), column=pending))
                    pending += 1
                else:
                    steps.append(self._rotation(step, basis))
            table.add(_in_pairs(steps), basis)

    def _list_product(self, table: _Table, steps: Sequence[Rotation]) -> None:
        """A pass over the whole state of the rotations that make a product state: the support doubles with every bit."""
        basis, rows = tuple(1 << bit for bit in range(self._bits)), list[_Step]()
        for step in steps:
            bit = step.x.bit_length() - 1 - self.lane_bits
            rows.append(self._rotation(step, basis)._replace(size=2 << bit if bit >= 0 else 1))
        if rows:
            table.add(rows)

    def _list_words(self, table: _Table) -> None:
        """The passes of measured words."""
        # With real amplitudes, words with an odd number of Y are 0.
        words = [
            (number, word)
            for number, word in enumerate(self.program.words or ())
            if not (self.real and word.ys % 2)
        ]
        flips = dict.fromkeys(word.x for _, word in words)
        for span, masks in measurement_passes(flips, self._dimensions, self.lane_bits):
            basis, steps = self._basis(span), list[_Step]()
            for mask, odd in product(masks, (0, 1)):
                members = tuple(
                    self._about(word.x, word.z, 1 - word.sign - word.ys, basis)._replace(number=number)
                    for number, word in words
                    if word.x == mask and word.ys % 2 == odd
                )
                if len(members) < FEWEST_WORDS:
                    steps += members
                else:
                    group = self._about(mask, 0, odd, basis)
                    steps.append(group._replace(kind=WORDS + odd, column=len(members), members=members))
            # Words that exchange vectors, and no lanes, come last.
            table.add(sorted(steps, key=lambda step: step.kind * (step.kind & ~ODD == PAIRS)), basis)

    def _basis(self, span: Sequence[int]) -> tuple[int, ...]:
        """The basis of a span that is widened by single bits, the lowest first, to the blocks' dimensions; ascending."""
        wider = Span(span)
        for bit in range(self._bits):
            if len(wider.basis) >= self._dimensions:
                break
            wider = wider.joined(1 << bit)
        return tuple(sorted(wider.basis))

    def _rotation(self, rotation: Rotation, basis: Sequence[int]) -> _Step:
        """A rotation on blocks of a basis."""
        column, factor = self._angle(rotation)
        step = self._about(rotation.x, rotation.z, 3 * (1 + rotation.ys), basis)
        return step._replace(number=self._turns[column, factor], column=column, factor=factor)

    def _about(self, x: int, z: int, power: int, basis: Sequence[int]) -> _Step:
        """A step about the word of masks x and z, times i**power, whose sign is that of z at the image's place."""
        rest, functional, lanes = x >> self.lane_bits, z >> self.lane_bits, (1 << self.lane_bits) - 1
        move = within = pivots = 0
        for i, vector in enumerate(basis):
            pivot = 1 << (vector.bit_length() - 1)
            pivots |= pivot
            within |= parity(functional & vector) << i
            if rest & pivot:
                rest, move = rest ^ vector, move | 1 << i
        return _Step(
            ODD * (power % 2) | LANES * bool(x & lanes) | PAIRS * (move > 0),
            move,
            pivot=max(move.bit_length() - 1, 0),
            within=within,
            base=functional & ~pivots,
            flip=x & lanes,
            signs=z & lanes,
            negative=power % 4 // 2,
        )


class _Step(NamedTuple):
    """A row of the table of steps, in the order of `kernels.KIND` and the others (number: `INDEX`); then the factor of its
    gradient, and the steps that are done together with it.
    """

    kind: int
    move: int = 0
    pivot: int = 0
    within: int = 0
    base: int = 0
    flip: int = 0
    signs: int = 0
    negative: int = 0
    number: int = 0
    column: int = 0
    size: int = 0
    next: int = 0
    factor: float = 0.0
    members: tuple[_Step, ...] = ()


def _in_pairs(steps: Sequence[_Step]) -> list[_Step]:
    """The steps of a pass, where two neighbouring rotations that both exchange vectors are done together."""
    result: list[_Step] = []
    rest = list(steps)
    while rest:
        step = rest.pop(0)
        other = rest[0] if rest else step
        span = Span().joined(step.move).joined(other.move)
        if max(step.kind, other.kind) < DIAGONAL and step.kind & other.kind & PAIRS and len(span.basis) == 2:
            del rest[0]
            kind = (
                TWO + (step.kind & ODD) + 2 * (other.kind & ODD) + 4 * bool((step.kind | other.kind) & LANES)
            )
            low, high = sorted(vector.bit_length() - 1 for vector in span.basis)
            step = step._replace(kind=kind, pivot=low, members=(other._replace(pivot=high),))
        result.append(step)
    return result


class _Table:
    """Passes and steps, the numbers that blocks and moves need, and the factors of moves. bits: of a vector's number."""

    def __init__(self, bits: int) -> None:
        self.passes: list[tuple[int, ...]] = []
        self.steps: list[_Step] = []
        self.blocks: list[NDArray[np.int64]] = []
        self.move_factors: list[NDArray[np.float64]] = []
        self._bits = bits
        self._ends = [0, 0]
        self._bases: dict[tuple[int, ...], tuple[int, int]] = {}
        self._moves: dict[Move, tuple[int, ...]] = {}

    def move(self, move: Move) -> None:
        """A pass that is a move."""
        if move not in self._moves:
            places, values = move.factors()
            listed = self._listed(np.concatenate([places, move.swaps.flatten()]))
            self.move_factors.append(values.view(float))
            self._moves[move] = len(places), 0, len(move.swaps), listed, self._ends[1], 0
            self._ends[1] += len(values)
        self.passes.append(self._moves[move])

    def add(self, steps: Sequence[_Step], basis: tuple[int, ...] | None = None) -> None:
        """A pass of steps on blocks of a basis, or on the whole state."""
        block = 0, 0, 0, 1
        if basis is not None:
            if basis not in self._bases:
                offsets = [0]
                for vector in basis:
                    offsets += [offset ^ vector for offset in offsets]
                pivots = sorted(vector.bit_length() - 1 for vector in basis)
                first = self._listed(np.array([*pivots, *offsets]))
                self._bases[basis] = first, first + len(basis)
            block = len(basis), *self._bases[basis], 1 << (self._bits - len(basis))
        self.passes.append((len(self.steps), len(steps), *block))
        self.steps += steps

    def every_step(self) -> list[_Step]:
        """The steps, and after all of them those that are done together with one."""
        steps, members = list[_Step](), list[_Step]()
        for step in self.steps:
            steps.append(step._replace(next=len(self.steps) + len(members)) if step.members else step)
            members += step.members
        return steps + members

    def _listed(self, numbers: NDArray[np.int64]) -> int:
        """Add numbers to the blocks; the place of the first."""
        self.blocks.append(numbers)
        self._ends[0] += len(numbers)
        return self._ends[0] - len(numbers)


def _lanes(amplitudes: int, float_bytes: int) -> int:
    """Floats in a vector, for a batch with this many amplitudes."""
    width = min(vector_bytes(), 32) if amplitudes <= FEW_AMPLITUDES else vector_bytes()
    return width // float_bytes


def _lane_bits(call: Call, program: Program, lanes: int, real: bool) -> int:
    """How many bits of a basis index to put into a vector's lanes.

    Few, since samples in lanes need no shuffles; more if the batch is smaller than a vector, or if the states and adjoints
    of so many samples would take too many bytes.
    """
    most = PERMUTATION_BYTES if any(isinstance(step, Move) for step in program.rotations) else TILE_BYTES
    state_bytes = call.dtype.itemsize * (2 - real) << program.qubits
    bits = 0
    while (
        bits < program.qubits
        and lanes >> bits > 1
        and (lanes >> (bits + 1) >= call.batch or (lanes >> bits) * 2 * state_bytes > most)
    ):
        bits += 1
    return bits
