"""Sequences of gates on columns by machine code, with columns in the lanes of vectors; the functions of `plain`.

A tile is a few vectors of columns, and its state is (d**n, vectors, 2, lanes), real and imaginary parts side by side.
Code is written for d alone. Where a gate acts is in a table of strides, so that one code serves all chains of d levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.compiled.kernel import Kernel, lanes_of, threads_for
from ketscale.engines.compiled.language import (
    INTEGER,
    Arguments,
    Buffer,
    Complex,
    FunctionCode,
    Number,
    Operand,
    complex_vectors,
    complexes,
    fma,
    integers,
    lane_sums,
)
from ketscale.engines.dynamics.basis import has_all_entries, schroedinger
from ketscale.engines.dynamics.cpu import evolve
from ketscale.engines.dynamics.generators import EXACT, Evolution, Generators
from ketscale.engines.dynamics.tasks import kets
from ketscale.engines.pulses import plain
from ketscale.engines.pulses.plain import GateSequence, Place

# Entries of a row of the table before the offsets: the number of sites; then counts and strides of the three loops over
# the amplitudes of the other sites, outermost first. Strides and offsets count complex vectors.
HEAD = 6
SITES, OUTER, OUTER_STRIDE, MIDDLE, MIDDLE_STRIDE, INNER = range(HEAD)

# The state of a tile and its cotangent take at most so many bytes, if they can: most of a first-level cache.
TILE_BYTES = 32 * 1024


class GatesPlan(NamedTuple):
    """levels: d."""

    levels: int

    @property
    def row(self) -> int:
        """Entries of a row of the table."""
        return HEAD + self.levels**2


def vectors(dimension: int, columns: int, lanes: int) -> int:
    """How many vectors of columns a tile has."""
    fitting = TILE_BYTES // (2 * 2 * 8 * lanes * dimension)
    return max(1, min(fitting, -(-columns // lanes)))


@lru_cache(maxsize=64)
def table(sequence: GateSequence, vectors: int) -> torch.Tensor:
    """How the gates of each place step through memory, int64 (places, row): counts, strides and offsets."""
    return torch.tensor([_row(sequence, place, vectors) for place in sequence.places])


def _row(sequence: GateSequence, place: Place, vectors: int) -> list[int]:
    d, n = sequence.levels, sequence.sites
    stride = {site: d ** (n - 1 - site) * vectors for site in place}
    first, last = min(place), max(place)
    middle = (d ** (last - first - 1), d * stride[last]) if last > first else (1, 0)
    offsets = [0]
    for site in place:
        offsets = [offset + level * stride[site] for offset in offsets for level in range(d)]
    head = [len(place), d**first, d * stride[first], *middle, stride[last]]
    return head + offsets + [0] * (d * d - len(offsets))


ARGUMENTS = {
    # Threads take tiles until none is left.
    "tiles tile_vectors count wanted": INTEGER,
    # The gates in the order of their action: a row of the table, and where the matrix starts; see `GateSequence`.
    "items": integers("count", 2),
    "table": integers("places", "row"),
    "gates": complexes("numbers"),
    "states cotangents": complex_vectors("tiles", "tile_vectors"),
    # Gradients of the first numbers of the gates, 0 at the start.
    "to_gates": complexes("tiles", "wanted"),
}

# The rows of larger gates are a loop instead of unrolled.
UNROLLED = 9

# Entries of a gate's gradient that are summed at once: they are two vectors each and have to stay in registers.
SUMMED = 9


def write_forward(k: FunctionCode, args: Arguments, plan: GatesPlan) -> None:
    """All gates on the states, in place."""
    with k.tasks(args.tiles) as tile:
        state = args.states[tile]
        with k.loop(args.count) as number:
            _with_gate(k, args, plan, number, lambda gate: gate.apply(state))


def write_backward(k: FunctionCode, args: Arguments, plan: GatesPlan) -> None:
    """All gates' inverses on states and cotangents, in place, and the gates' gradients."""
    with k.tasks(args.tiles) as tile:
        state, cotangent, gradients = args.states[tile], args.cotangents[tile], args.to_gates[tile]

        def undo(gate: _ColumnGate) -> None:
            gate.apply(state, inverse=True)
            with k.when(gate.start < args.wanted):
                gate.differentiate(state, cotangent, gradients)
            gate.apply(cotangent, inverse=True)

        with k.loop(args.count, backwards=True) as number:
            _with_gate(k, args, plan, number, undo)


def _with_gate(
    k: FunctionCode, args: Arguments, plan: GatesPlan, number: Number, write: Callable[[_ColumnGate], None]
) -> None:
    """Write what is done with a gate of the sequence, for one site and for two."""
    row, start = args.table[args.items[number, 0]], args.items[number, 1]
    one, two = (
        lambda sites=sites: write(_ColumnGate(k, plan.levels**sites, row, args.gates, start))
        for sites in (1, 2)
    )
    k.either(row[SITES] == 2, two, one)


class _ColumnGate:
    """Writes what is done with a gate of `size` rows, whose row of the table and start in the buffer are given."""

    def __init__(self, k: FunctionCode, size: int, row: Buffer, gates: Buffer, start: Number) -> None:
        self.k, self.size, self.start = k, size, start
        self._row, self._matrix = row, gates.part(start, size, size)

    def _offset(self, level: Operand) -> Number:
        """How far the amplitudes of a level of the gate's sites are from those of level 0, in complex vectors."""
        offset: Number = self._row[level + HEAD]
        return offset

    @contextmanager
    def _blocks(self) -> Iterator[Number]:
        """Loop over the levels of the other sites, and the vectors of columns; yields where their level 0 is."""
        k, row = self.k, self._row
        with k.loop(row[OUTER]) as i, k.loop(row[MIDDLE]) as j:
            first = i * row[OUTER_STRIDE] + j * row[MIDDLE_STRIDE]
            with k.loop(row[INNER]) as vector:
                yield first + vector

    def apply(self, state: Buffer, inverse: bool = False) -> None:
        """The gate, or its conjugate transpose, on a tile's state in place."""
        offsets = [self._offset(level) for level in range(self.size)]
        with self._blocks() as block:
            amplitudes = [state[block + offset] for offset in offsets]
            if self.size <= UNROLLED:
                for row, offset in enumerate(offsets):
                    state[block + offset] = self._row_times(row, amplitudes, inverse)
            else:
                with self.k.loop(self.size) as each:
                    state[block + self._offset(each)] = self._row_times(each, amplitudes, inverse)

    def _row_times(self, row: Operand, amplitudes: list[Complex], inverse: bool) -> Complex:
        """The product of a row of the gate, or of its conjugate transpose, and a vector."""
        total: Any = None
        for column, amplitude in enumerate(amplitudes):
            entry = self._matrix[column, row].conjugate() if inverse else self._matrix[row, column]
            total = fma(entry, amplitude, total)
        value: Complex = total
        return value

    def differentiate(self, state: Buffer, cotangent: Buffer, gradients: Buffer) -> None:
        """Add the gradient, the sum over columns of cotangent times the state's conjugate, to that of the buffer.

        state: before the gate. cotangent: of the state after it.
        """
        k, own = self.k, gradients.part(self.start, self.size, self.size)
        high, wide = _summed(self.size)
        with k.loop(self.size // high) as i, k.loop(self.size // wide) as j:
            rows = [i * high + number for number in range(high)]
            columns = [j * wide + number for number in range(wide)]
            sums = self._outer(rows, columns, state, cotangent)
            places = [(row, column) for row in rows for column in columns]
            # So many complex numbers have their parts summed over lanes into one vector.
            few = k.lanes // 2
            for start in range(0, len(sums), few):
                parts = [part for each in sums[start : start + few] for part in (each.real, each.imag)]
                total = lane_sums([*parts, *[k.vector(0.0)] * (k.lanes - len(parts))])
                for number, place in enumerate(places[start : start + few]):
                    own.add(place, Complex(total.lane(2 * number), total.lane(2 * number + 1)))

    def _outer(
        self, rows: list[Number], columns: list[Number], state: Buffer, cotangent: Buffer
    ) -> list[Complex]:
        """The sums of cotangent times conjugate state over the blocks, by row and column."""
        k, zero = self.k, Complex(self.k.vector(0.0), self.k.vector(0.0))
        above, before = ([self._offset(each) for each in levels] for levels in (rows, columns))
        sums = k.variable([zero] * (len(rows) * len(columns)))
        with self._blocks() as block:
            conjugate = [state[block + offset].conjugate() for offset in before]
            totals = iter(sums.value)
            sums.value = [
                fma(each, part, next(totals))
                for part in (cotangent[block + offset] for offset in above)
                for each in conjugate
            ]
        values: list[Complex] = sums.value
        return values


def _summed(size: int) -> tuple[int, int]:
    """How many rows and columns of a gradient are summed at once; both divide its size.

    As many entries as fit, and of these shapes the nearest to a square, which loads least.
    """
    divisors = [k for k in range(1, size + 1) if size % k == 0]
    fitting = [(rows, columns) for rows in divisors for columns in divisors if rows * columns <= SUMMED]
    return max(fitting, key=lambda each: (each[0] * each[1], -abs(each[0] - each[1])))


LANES = lanes_of(torch.float64)


def enter(columns: torch.Tensor, sequence: GateSequence) -> torch.Tensor:
    """The columns' state, real (tiles, d**n, vectors, 2, lanes); see above. Missing columns are 0."""
    size = vectors(columns.shape[1], len(columns), LANES) * LANES
    tiles = -(-len(columns) // size)
    padded = columns.new_zeros(tiles * size, columns.shape[1])
    padded[: len(columns)] = columns
    parts = torch.view_as_real(padded.resolve_conj()).reshape(
        tiles, size // LANES, LANES, columns.shape[1], 2
    )
    return parts.permute(0, 3, 1, 4, 2).contiguous()


def leave(state: torch.Tensor, columns: int) -> torch.Tensor:
    """The inverse of `enter`."""
    parts = state.permute(0, 2, 4, 1, 3).flatten(0, 2)
    return torch.view_as_complex(parts[:columns].contiguous())


def forward(sequence: GateSequence, gates: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """The state after all gates, which overwrites the given one."""
    _call("write_forward", sequence, {"gates": gates, "states": state})
    return state


def backward(
    sequence: GateSequence, gates: torch.Tensor, state: torch.Tensor, cotangent: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """See `plain.backward`; the given state and cotangent are overwritten."""
    to_gates = gates.new_zeros(len(state), count)
    tensors = {"gates": gates, "states": state, "cotangents": cotangent, "to_gates": to_gates}
    _call("write_backward", sequence, tensors)
    total = to_gates[0] if len(state) == 1 else to_gates.sum(0)
    if count < len(gates):
        total = torch.cat([total, gates.new_zeros(len(gates) - count)])
    return state, cotangent, total


def unitary(hermitian: torch.Tensor) -> torch.Tensor:
    """See `plain.unitary`: each matrix is a task whose controls are its coordinates, and the kets are columns of the result."""
    d = hermitian.shape[-1]
    if has_all_entries(d):
        return plain.unitary(hermitian)
    elements, parts = _elements(d)
    entries = torch.view_as_real(hermitian.resolve_conj()).reshape(-1, 2 * d * d)
    controls = (entries @ torch.from_numpy(parts))[:, None]
    identity = torch.view_as_real(torch.eye(d, dtype=torch.complex128)).flatten(1)
    evolution = Evolution(elements, 1.0, EXACT[torch.float64], kets=True)
    made = evolve(controls[:, 0, :0], controls, identity.expand(len(controls), -1, -1), evolution)
    return kets(made).mT.reshape(hermitian.shape)


@lru_cache(maxsize=16)
def _elements(levels: int) -> tuple[Generators, NDArray[np.float64]]:
    """The elements of any Hermitian matrix as controls, and of what parts of its entries they are, (2 d**2, d**2).

    All numbers are exact: the rounding of a normalised basis is the same in every step, and adds up.
    """
    one = np.eye(levels**2).reshape(-1, levels, levels) * np.where(np.tri(levels, k=-1), 1j, 1)
    half = (one + one.conj().swapaxes(1, 2)) / 2
    elements = map(schroedinger, half / np.abs(half).max((1, 2), keepdims=True))
    return Generators(2 * levels, (), tuple(elements), paired=True), half.reshape(-1, levels**2).view(float).T


def _call(name: str, sequence: GateSequence, tensors: dict[str, torch.Tensor]) -> None:
    state = tensors["states"]
    tiles = len(state)
    if tiles == 0 or len(sequence) == 0:
        return
    # Kept until the call has returned.
    used = {key: tensor.resolve_conj().contiguous() for key, tensor in tensors.items()}
    gradient_count = tensors["to_gates"].shape[1] if "to_gates" in tensors else 0
    work = 4 * sequence.levels * len(sequence) * state.numel() // 2
    # fmt: off
    _kernel(sequence.levels).run(
        name, threads_for(tiles, work), tiles=tiles, count=len(sequence), wanted=gradient_count,
        tile_vectors=state[0].numel() // (2 * LANES), items=sequence.items, table=table(sequence, state.shape[2]),
        **used,
    )
    # fmt: on


@lru_cache(maxsize=16)
def _kernel(levels: int) -> Kernel:
    functions = write_forward, write_backward
    return Kernel(functions, ARGUMENTS, torch.float64, LANES, GatesPlan(levels))
