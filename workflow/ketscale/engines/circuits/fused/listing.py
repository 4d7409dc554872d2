"""A circuit as the table that the kernels of `universal` read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from ketscale.engines.circuits.fused.block import parity
from ketscale.engines.circuits.fused.plan import Wanted
from ketscale.engines.circuits.fused.program import Program, Rotation, Word
from ketscale.engines.circuits.fused.schedule import Span, measurement_passes
from ketscale.engines.circuits.fused.universal import LANES, ODD, PAIRS

# Dimensions of a block: of a state that is one, and of the blocks of larger states.
WHOLE, PART = 11, 8


@dataclass(frozen=True)
class Listing:
    """One program with one layout, precision and set of wanted gradients; see `plan.SweepPlan`."""

    program: Program
    input_columns: int
    weight_columns: int
    double: bool
    lanes: int
    lane_bits: int
    from_zero: bool
    wanted: tuple[Wanted, ...]

    # What calls need to know is that of a plan.
    mix_size = shared_stride = 0

    @property
    def samples(self) -> int:
        """Samples in a tile."""
        return self.lanes >> self.lane_bits

    @property
    def state_vectors(self) -> int:
        """Vectors of a tile's state."""
        return 2 << self._bits

    @property
    def _bits(self) -> int:
        return self.program.qubits - self.lane_bits

    @property
    def _dimensions(self) -> int:
        """The blocks' dimensions."""
        return self._bits if self._bits <= WHOLE else PART

    @property
    def steps(self) -> Sequence[Rotation]:
        """All rotations."""
        return self.rotations

    @cached_property
    def rotations(self) -> list[Rotation]:
        """The program's, which has no flips."""
        return [step for step in self.program.rotations if isinstance(step, Rotation)]

    @cached_property
    def _angles(self) -> dict[tuple[int, float], int]:
        """The distinct angles: a column and its factor."""
        return {angle: i for i, angle in enumerate(dict.fromkeys(map(self._angle, self.rotations)))}

    def _angle(self, rotation: Rotation) -> tuple[int, float]:
        angle = rotation.angle
        first = {"input": 0, "weight": self.input_columns, "constant": self.all_columns - 1}[angle.kind]
        return first + angle.index, angle.factor

    @property
    def all_columns(self) -> int:
        """Columns of inputs and weights, and one of constants."""
        return self.input_columns + self.weight_columns + 1

    @property
    def scratch_vectors(self) -> int:
        """Vectors of all buffers of a worker."""
        kept = 2 * self.state_vectors if self.wanted else 0
        words = len(self.program.words or ())
        return 2 * self.all_columns + 2 * len(self._angles) + words + kept + (4 << self._dimensions)

    def sizes(self) -> dict[str, int]:
        """The arguments that say how large things are, by name."""
        words, size = self.program.words, 1 << self.program.qubits
        return {
            "scratch_vectors": self.scratch_vectors,
            "input_columns": self.input_columns,
            "weight_columns": self.weight_columns,
            "all_columns": self.all_columns,
            "columns": 2 * size if words is None else len(words),
            "words": len(words or ()),
            "angles": len(self._angles),
            "amplitude_floats": 2 * size,
            "size": size,
            "lane_bits": self.lane_bits,
            "samples": self.samples,
            "vectors": 1 << self._bits,
            "kept_vectors": self.state_vectors if self.wanted else 0,
            "block_vectors": 1 << self._dimensions,
            "from_zero": int(self.from_zero),
            "reordered": int(self.program.order is not None),
            **{f"{name}_wanted": int(name in self.wanted) for name in ("input", "weight", "initial")},
        }

    def tables(self) -> tuple[dict[str, int], dict[str, torch.Tensor]]:
        """How many passes there are, and the tables, by the names of the arguments."""
        table = _Table(self.lane_bits, self._bits, self._dimensions)
        numbers = [self._angles[self._angle(r)] for r in self.rotations]
        columns = [self._angle(r)[0] for r in self.rotations]
        factors = [r.angle.factor for r in self.rotations]
        first = 0 if "initial" in self.wanted else self._first_wanted()
        passes = self._passes()
        for basis, members in passes:
            table.rotations(basis, [(self.rotations[i], numbers[i], columns[i], factors[i]) for i in members])
        forward = len(table.passes)
        table.words(self.program.words or ())
        words = len(table.passes) - forward
        for basis, members in reversed(passes):
            back = [i for i in reversed(members) if i >= first] if self.wanted else []
            if back:
                table.rotations(
                    basis, [(self.rotations[i], numbers[i], columns[i], factors[i]) for i in back]
                )
        counts = {
            "forward_passes": forward,
            "word_passes": words,
            "backward_passes": len(table.passes) - forward - words,
        }
        dtype = torch.float64 if self.double else torch.float32
        angles = list(self._angles)
        return counts, {
            "passes": torch.tensor(table.passes, dtype=torch.int64),
            "steps": torch.tensor(table.steps, dtype=torch.int64),
            "blocks": torch.tensor(table.blocks, dtype=torch.int64),
            "factors": torch.tensor(table.factors, dtype=torch.float64).to(dtype),
            "angle_columns": torch.tensor([column for column, _ in angles], dtype=torch.int64),
            "half_factors": torch.tensor([factor / 2 for _, factor in angles], dtype=torch.float64).to(dtype),
        }

    def _first_wanted(self) -> int:
        wanted = (i for i, r in enumerate(self.rotations) if r.angle.kind in self.wanted)
        return next(wanted, len(self.rotations))

    def _passes(self) -> list[tuple[tuple[int, ...], list[int]]]:
        """The basis of each pass and the numbers of its rotations, in the order of the program."""
        if not self.rotations:
            return []
        if self._bits <= WHOLE:
            return [(_filled(Span(), self._bits, self._bits), list(range(len(self.rotations))))]
        passes: list[tuple[Span, list[int]]] = [(Span(), [])]
        for number, rotation in enumerate(self.rotations):
            wider = passes[-1][0].joined(rotation.x >> self.lane_bits)
            if len(wider.basis) > PART:
                passes.append((Span().joined(rotation.x >> self.lane_bits), [number]))
            else:
                passes[-1] = (wider, [*passes[-1][1], number])
        return [(_filled(span, PART, self._bits), members) for span, members in passes]


class _Table:
    """Passes and steps as rows of numbers."""

    def __init__(self, lane_bits: int, bits: int, dimensions: int) -> None:
        self.passes: list[tuple[int, ...]] = []
        self.steps: list[tuple[int, ...]] = []
        self.factors: list[float] = []
        self.blocks: list[int] = []
        self._lane_bits, self._bits, self._dimensions = lane_bits, bits, dimensions
        self._bases: dict[tuple[int, ...], tuple[int, int]] = {}

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
                power = (word.ys + (2 if word.sign < 0 else 0)) % 4
                self._step(basis, word.x, word.z, power, number, 0, 0.0, pairs=False)

    def _pass(self, basis: tuple[int, ...], count: int) -> None:
        if basis not in self._bases:
            offsets = [0]
            for vector in basis:
                offsets += [offset ^ vector for offset in offsets]
            first = len(self.blocks)
            self.blocks += [*sorted(vector.bit_length() - 1 for vector in basis), *offsets]
            self._bases[basis] = first, first + len(basis)
        self.passes.append((len(self.steps), count, len(basis), *self._bases[basis]))

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
