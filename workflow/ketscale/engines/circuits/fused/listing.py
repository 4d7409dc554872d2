"""A circuit as the table that the kernels of `universal` read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import pi
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.circuits.fused.block import parity
from ketscale.engines.circuits.fused.mixing import orbits_of
from ketscale.engines.circuits.fused.plan import SweepPlan
from ketscale.engines.circuits.fused.program import Flip, Move, Rotation, Word
from ketscale.engines.circuits.fused.schedule import Span, measurement_passes
from ketscale.engines.circuits.fused.universal import LANES, ODD, PAIRS

# Dimensions of a block: of a state that is one, and of the blocks of larger states.
WHOLE, PART = 11, 8

# So many constant phases in a row are one pass, if the state is not too large to list its phases.
FEWEST_PHASES, MOST_QUBITS = 4, 14


@dataclass(frozen=True)
class Listing(SweepPlan):
    """One program with one layout, precision and set of wanted gradients; all of its amplitudes are complex.

    order: how many tangents there are.
    """

    order: int = 0

    @property
    def real(self) -> bool:
        """See `SweepPlan.real`."""
        return False

    @property
    def shared_stride(self) -> int:
        """Nothing is written for a group."""
        return 0

    @property
    def _bits(self) -> int:
        return self.program.qubits - self.lane_bits

    @property
    def _dimensions(self) -> int:
        """The blocks' dimensions."""
        return self._bits if self._bits <= WHOLE else PART

    @cached_property
    def steps(self) -> tuple[Rotation, ...]:
        """All rotations that are not part of a move."""
        return tuple(step for step in self._program if isinstance(step, Rotation))

    @cached_property
    def _program(self) -> list[Rotation | Move]:
        """The program's steps, with moves in place of flips, and of many constant phases in a row."""
        steps: list[Rotation | Move] = []
        for phases, several in groupby(self.program.rotations, _is_constant_phase):
            found = list(several)
            if phases and len(found) >= FEWEST_PHASES and self.program.qubits <= MOST_QUBITS:
                steps.append(_product(found, self.program.qubits))  # type: ignore[arg-type]
            else:
                steps += [
                    _moved(each, self.program.qubits) if isinstance(each, Flip) else each for each in found
                ]
        return steps

    @cached_property
    def _turns(self) -> dict[tuple[int, float], int]:
        """The distinct angles: a column and its factor."""
        return {angle: i for i, angle in enumerate(dict.fromkeys(map(self._angle, self.steps)))}

    def _angle(self, rotation: Rotation) -> tuple[int, float]:
        angle = rotation.angle
        first = {"input": 0, "weight": self.input_columns, "constant": self.all_columns - 1}[angle.kind]
        return first + angle.index, angle.factor

    @property
    def all_columns(self) -> int:
        """Columns of inputs and weights, and one of constants."""
        return self.input_columns + self.weight_columns + 1

    @cached_property
    def scratch(self) -> dict[str, int]:
        """See `SweepPlan.scratch`."""
        return {
            "columns": self.all_columns,
            "turns": (2 + self.order) * len(self._turns),
            "words": len(self.program.words or ()),
            "gradients": self.all_columns,
            "states": self.states * self._kept,
            "blocks": self.states * 2 << self._dimensions,
        }

    @property
    def states(self) -> int:
        """How many states a sweep moves: psi, the adjoint, and their tangents."""
        return 2**self.order * (2 if self.wanted or not self.order else 1)

    @property
    def _kept(self) -> int:
        """Vectors of psi, of the adjoint, and of their tangents, if there are such."""
        return self.state_vectors if self.wanted or self.partners or self.order else 0

    def sizes(self) -> dict[str, int]:
        """The arguments that say how large things are, by name."""
        own = (
            "scratch_vectors input_columns weight_columns all_columns columns amplitude_floats lane_bits samples vectors "
            "mix_size"
        )
        return {
            **{name: getattr(self, name) for name in own.split()},
            "words": len(self.program.words or ()),
            "angles": len(self._turns),
            "size": 1 << self.program.qubits,
            "kept_vectors": self._kept,
            "mixed": int(self.partners is not None),
            "block_vectors": 1 << self._dimensions,
            "from_zero": int(self.from_zero),
            **{f"{name}_wanted": int(name in self.wanted) for name in ("input", "weight", "initial", "mix")},
        }

    def listed(self) -> tuple[dict[str, int], dict[str, torch.Tensor]]:
        """How many passes there are, and the tables, by the names of the arguments."""
        table = _Table(self.lane_bits, self._bits, self._dimensions)
        wanted = (number for number, r in enumerate(self.steps) if r.angle.kind in self.wanted)
        first = -1 if "initial" in self.wanted else next(wanted, len(self.steps))
        passes = self._passes()

        def rotations(basis: tuple[int, ...], members: Sequence[int]) -> None:
            found = [(self.steps[i], *self._angle(self.steps[i])) for i in members]
            table.rotations(basis, [(r, self._turns[c, factor], c, factor) for r, c, factor in found])

        for basis, members in passes:
            if isinstance(basis, Move):
                table.move(basis)
            else:
                rotations(basis, members)
        table.end()
        forward = len(table.passes)
        table.words(self.program.words or ())
        words = len(table.passes) - forward
        last = len(self.steps)
        for basis, members in reversed(passes) if self.wanted else ():
            last = min([last, *members])
            if isinstance(basis, Move):
                if first < last:
                    table.move(basis.inverse)
            elif back := [i for i in reversed(members) if i >= first]:
                rotations(basis, back)
        table.end()
        counts = {
            "forward_passes": forward,
            "word_passes": words,
            "backward_passes": len(table.passes) - forward - words,
        }
        dtype = torch.float64 if self.double else torch.float32
        angles = list(self._turns)
        orbits = dict(zip(("pairs", "singles"), orbits_of(self.partners or ()), strict=True))
        counts |= {name: len(found) for name, found in orbits.items()}
        tables: dict[str, tuple[Any, torch.dtype]] = {
            "passes": (table.passes, torch.int64),
            "steps": (table.steps, torch.int64),
            "blocks": (np.concatenate([[0], *table.blocks])[1:], torch.int64),
            "factors": (table.factors, dtype),
            "move_factors": (np.concatenate([[0.0], *table.move_factors])[1:], dtype),
            "angle_columns": ([column for column, _ in angles], torch.int64),
            "half_factors": ([factor / 2 for _, factor in angles], dtype),
            **{f"orbit_{name}": (found, torch.int64) for name, found in orbits.items()},
        }
        return counts, {name: torch.from_numpy(np.array(v)).to(kind) for name, (v, kind) in tables.items()}

    def _passes(self) -> list[tuple[tuple[int, ...] | Move, list[int]]]:
        """The basis of each pass and the numbers of its rotations, in the order of the program; or a move."""
        passes: list[tuple[Span | Move, list[int]]] = []
        number = 0
        for step in self._program:
            if isinstance(step, Move):
                passes.append((step, []))
                continue
            flip = 0 if self._bits <= WHOLE else step.x >> self.lane_bits
            span, members = passes[-1] if passes else (None, [])
            if isinstance(span, Span) and len((wider := span.joined(flip)).basis) <= PART:
                passes[-1] = (wider, members)
            else:
                passes.append((Span().joined(flip), []))
            passes[-1][1].append(number)
            number += 1
        return [
            (span if isinstance(span, Move) else _filled(span, self._dimensions, self._bits), members)
            for span, members in passes
        ]


def _is_constant_phase(step: Rotation | Flip | Move) -> bool:
    return isinstance(step, Rotation) and not step.x and step.angle.kind == "constant"


def _product(phases: Sequence[Rotation], qubits: int) -> Move:
    """The move that constant rotations about words of Z are: a Walsh-Hadamard transform of their angles."""
    angles = np.zeros(2**qubits)
    for phase in phases:
        angles[phase.z] -= phase.angle.factor / pi
    for bit in range(qubits):
        even, odd = angles.reshape(-1, 2, 2**bit).swapaxes(0, 1)
        angles = np.stack([even + odd, even - odd], axis=1).reshape(-1)
    return Move.of(np.arange(2**qubits), angles)


def _moved(flip: Flip, qubits: int) -> Move:
    order = np.arange(2**qubits)
    odd = np.array([parity(index & flip.control) for index in order.tolist()]) if flip.control else 1
    return Move.of(order ^ flip.x * odd, np.zeros(2**qubits))


class _Table:
    """Passes and steps as rows of numbers."""

    def __init__(self, lane_bits: int, bits: int, dimensions: int) -> None:
        self.passes: list[tuple[int, ...]] = []
        self.steps: list[tuple[int, ...]] = []
        self.factors: list[float] = []
        self.blocks: list[NDArray[np.int64]] = []
        self.move_factors: list[NDArray[np.float64]] = []
        self._ends = [0, 0]
        self._phases: Move | None = None
        self._dense: dict[Move, int] = {}
        self._lane_bits, self._bits, self._dimensions = lane_bits, bits, dimensions
        self._bases: dict[tuple[int, ...], tuple[int, int]] = {}
        self._moves: dict[Move, tuple[int, ...]] = {}

    def move(self, move: Move) -> None:
        """A pass that is a move, or part of the next pass."""
        self.end()
        if len(move.swaps):
            self._moved(move)
        else:
            self._phases = move

    def end(self) -> None:
        """Nothing waits for the next pass."""
        if self._phases is not None:
            self._moved(self._phases)
        self._phases = None

    def _moved(self, move: Move) -> None:
        if move not in self._moves:
            places, values = move.factors()
            listed = self._listed(np.concatenate([places, move.swaps.flatten()]))
            starts = listed, self._factors(values.view(float))
            self._moves[move] = len(places), 0, len(move.swaps), *starts, 0
        self.passes.append(self._moves[move])

    def _taken(self) -> int:
        """What a pass has as PHASES."""
        move, self._phases = self._phases, None
        if move is None:
            return 0
        if move not in self._dense:
            values = np.ones(len(move.arrays[0]), dtype=complex)
            places, factors = move.factors()
            values[places] = factors
            parts = np.concatenate([values.real, values.imag])
            self._dense[move] = 1 + self._factors(parts)
        return self._dense[move]

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

    def rotations(
        self, basis: tuple[int, ...], rotations: Sequence[tuple[Rotation, int, int, float]]
    ) -> None:
        """A pass of rotations, each with the numbers of its angle and column, and its factor."""
        self._pass(basis, len(rotations))
        for rotation, angle, column, factor in rotations:
            power = 3 * (1 + rotation.ys) % 4
            self._step(basis, rotation.x, rotation.z, power, angle, column, factor)

    def words(self, words: Sequence[Word]) -> None:
        """The passes of measured words."""
        for span, masks in measurement_passes(words, self._dimensions, self._lane_bits):
            basis = _filled(Span(span), self._dimensions, self._bits)
            members = [(number, word) for number, word in enumerate(words) if word.x in masks]
            self._pass(basis, len(members))
            for number, word in members:
                power = (1 - word.sign - word.ys) % 4
                self._step(basis, word.x, word.z, power, number, 0, 0.0, pairs=False)

    def _pass(self, basis: tuple[int, ...], count: int) -> None:
        if basis not in self._bases:
            offsets = [0]
            for vector in basis:
                offsets += [offset ^ vector for offset in offsets]
            first = self._listed(np.array([*sorted(vector.bit_length() - 1 for vector in basis), *offsets]))
            self._bases[basis] = first, first + len(basis)
        self.passes.append((len(self.steps), count, len(basis), *self._bases[basis], self._taken()))

    def _step(
        self,
        basis: tuple[int, ...],
        x: int,
        z: int,
        power: int,
        index: int,
        column: int,
        factor: float,
        pairs: bool = True,
    ) -> None:
        """A step about the word of masks x and z, times i**power, whose sign is that of z at the image's place."""
        rest, functional, lanes = x >> self._lane_bits, z >> self._lane_bits, (1 << self._lane_bits) - 1
        move = within = pivots = 0
        for i, vector in enumerate(basis):
            pivot = 1 << (vector.bit_length() - 1)
            pivots |= pivot
            within |= parity(functional & vector) << i
            if rest & pivot:
                rest, move = rest ^ vector, move | 1 << i
        kind = ODD * (power % 2) | LANES * bool(x & lanes) | PAIRS * (pairs and move > 0)
        pivot = max(move.bit_length() - 1, 0)
        self.steps.append(
            (kind, move, pivot, within, functional & ~pivots, x & lanes, z & lanes, power // 2, index, column)
        )
        self.factors.append(factor)


def _filled(span: Span, dimensions: int, bits: int) -> tuple[int, ...]:
    """A basis of a span that is widened by single bits, the lowest first, up to so many dimensions; ascending."""
    for bit in range(bits):
        if len(span.basis) >= dimensions:
            break
        span = span.joined(1 << bit)
    return tuple(sorted(span.basis))
