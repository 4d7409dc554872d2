"""Orders a program into passes over the state, block by block.

Rotations that commute may change places. A pass loads blocks of 2**k vectors that are closed under the
flips of all its rotations (the span of their X masks has dimension k), applies them and stores the block. Rotations about words of Z alone flip nothing: those with shared angles are gathered,
across wires and layers, into one table of phases, which is one complex product for each amplitude. Nothing changes
places with a move, which is a pass of its own.

Source of blocking by gates: Häner and Steiger, SC17 (arXiv:1704.01127); of commuting rotations about
Pauli words: Litinski, Quantum 3, 128 (2019).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from ketscale.engines.circuits.fused.program import Move, Program, Rotation


@dataclass(frozen=True)
class Phases:
    """The product of rotations about words of Z with shared angles: one diagonal for all samples."""

    rotations: tuple[Rotation, ...]


# What a block of vectors goes through.
Step = Rotation | Phases


@dataclass(frozen=True)
class Pass:
    """Steps in order, and a reduced basis (`Span.basis`) of the flips that the block is closed under; or a move."""

    steps: tuple[Step, ...]
    basis: tuple[int, ...]
    move: Move | None = None


class Span:
    """A subspace of bit masks over GF(2), its basis in reduced echelon form with the highest bits as pivots."""

    def __init__(self, basis: Sequence[int] = ()) -> None:
        self.basis: tuple[int, ...] = tuple(basis)

    def reduced(self, mask: int) -> int:
        """The part of `mask` outside the span; 0 for a member."""
        for vector in self.basis:
            mask = min(mask, mask ^ vector)
        return mask

    def joined(self, mask: int) -> Span:
        """The span that contains `mask` too."""
        rest = self.reduced(mask)
        if not rest:
            return self
        pivot = 1 << (rest.bit_length() - 1)
        return Span(sorted((*(v ^ rest if v & pivot else v for v in self.basis), rest), reverse=True))


@dataclass(frozen=True)
class Schedule:
    """A program's rotations in the order of execution.

    product: the first rotations, each on a bit of its own that is still |0>; they make a product state.
    passes: the rest.
    """

    product: tuple[Rotation, ...]
    passes: tuple[Pass, ...]


def schedule(program: Program, width: int, lane_bits: int, from_zero: bool) -> Schedule:
    """Order a program's rotations in passes of at most `width` dimensions.

    lane_bits: the number of lowest bits that are in a vector's lanes; flips of these need no other vector.
    from_zero: the initial state is |0...0>, so the first rotations may make a product state.
    """
    product: list[Rotation] = []
    passes: list[Pass] = []
    lanes = (1 << lane_bits) - 1
    for move, steps in between_moves(program):
        if move is not None:
            passes.append(Pass((), (), move))
        rest = list(steps)
        if from_zero and move is None:
            product = _take_product(rest, program.keeps_phase)
        # Neighbours that exchange no lanes are done together without such exchanges.
        layers = [sorted(layer, key=lambda step: bool(_x(step) & lanes)) for layer in _layers(rest)]
        passes += _packed(layers, width, lane_bits)
    return Schedule(tuple(product), tuple(passes))


def between_moves(program: Program) -> Iterator[tuple[Move | None, list[Rotation]]]:
    """Each move and the steps after it; first the steps before all moves."""
    move: Move | None = None
    steps: list[Rotation] = []
    for step in program.rotations:
        if isinstance(step, Move):
            yield move, steps
            move, steps = step, []
        else:
            steps.append(step)
    yield move, steps


def reversed_passes(forward: Schedule, width: int, lane_bits: int) -> tuple[Pass, ...]:
    """The passes of a schedule in reverse."""
    passes: list[Pass] = []
    for has_move, several in groupby(reversed(forward.passes), lambda pass_: pass_.move is not None):
        if has_move:
            passes += [Pass((), (), pass_.move and pass_.move.inverse) for pass_ in several]
        else:
            layers = [[step] for pass_ in several for step in reversed(pass_.steps)]
            passes += _packed(layers, width, lane_bits)
    return tuple(passes)


def measurement_passes(
    flips: Iterable[int], width: int, lane_bits: int
) -> list[tuple[tuple[int, ...], list[int]]]:
    """Blocks for measuring words of these X masks: for each pass its basis and its masks."""
    passes: list[tuple[Span, list[int]]] = []
    for mask in flips:
        for at, (span, masks) in enumerate(passes):
            wider = span.joined(mask >> lane_bits)
            if len(wider.basis) <= width:
                passes[at] = (wider, [*masks, mask])
                break
        else:
            passes.append((Span().joined(mask >> lane_bits), [mask]))
    return [(span.basis, masks) for span, masks in passes]


def _is_phase(step: Rotation) -> bool:
    """Whether the step only multiplies amplitudes by phases that all samples share."""
    return not step.x and step.angle.shared


def _conflicts(steps: Sequence[Rotation]) -> NDArray[np.bool_]:
    """(i, j): step j is before step i and does not commute with it."""
    masks = np.array([(step.x, step.z) for step in steps], dtype=np.int64).reshape(-1, 2)
    bits = range(int(masks.max(initial=1)).bit_length())
    x, z = ((masks[:, k, None] >> np.array(bits) & 1).astype(np.float32) for k in (0, 1))
    crossed = x @ z.T
    matrix: NDArray[np.bool_] = np.tril((crossed + crossed.T) % 2 == 1, -1)
    return matrix


def _take_product(rest: list[Rotation], keep_phase: bool) -> list[Rotation]:
    """Remove and return the rotations that act first, each on one bit of its own, in the order of the bits.

    Rotations about words of Z only give |0...0> a phase. With `keep_phase` they become rotations about the identity;
    otherwise they are dropped.
    """
    conflicts = _conflicts(rest)
    product: dict[int, Rotation] = {}
    others: list[Rotation] = []
    stay = np.zeros(len(rest), dtype=np.bool_)
    for number, step in enumerate(rest):
        if not (conflicts[number] & stay).any():
            if not step.x and not any(step.z & bit for bit in product):
                others += [Rotation(0, 0, step.angle)] if keep_phase else []
                continue
            if step.x.bit_count() == 1 and not step.z & ~step.x and step.x not in product:
                product[step.x] = step
                continue
        stay[number] = True
        others.append(step)
    rest[:] = others
    return [product[bit] for bit in sorted(product)]


def _layers(steps: Sequence[Rotation]) -> list[list[Step]]:
    """Sets of steps that commute with each other; phases wait until no flip is free, then go as one step."""
    conflicts = _conflicts(steps)
    blockers = conflicts.sum(1)
    flips = np.array([not _is_phase(step) for step in steps], dtype=np.bool_)
    waiting = np.ones(len(steps), dtype=np.bool_)
    layers: list[list[Step]] = []
    while waiting.any():
        free = waiting & (blockers == 0)
        layer_mask = free & flips if (free & flips).any() else free
        layer = [steps[number] for number in np.flatnonzero(layer_mask).tolist()]
        phases = len(layer) > 1 and not (layer_mask & flips).any()
        layers.append([Phases(tuple(layer))] if phases else list(layer))
        blockers -= conflicts[:, layer_mask].sum(1)
        waiting &= ~layer_mask
    return layers


def _packed(layers: Sequence[Sequence[Step]], width: int, lane_bits: int) -> tuple[Pass, ...]:
    """Passes of at most `width` dimensions: the steps of a layer in any order, layer after layer."""
    passes: list[Pass] = []
    steps: list[Step] = []
    span = Span()
    for layer in layers:
        rest = list(layer)
        while rest:
            at = next(
                (i for i, s in enumerate(rest) if len(span.joined(_flip(s, lane_bits)).basis) <= width), None
            )
            inside = next((i for i, s in enumerate(rest) if not span.reduced(_flip(s, lane_bits))), at)
            if inside is None:
                passes.append(Pass(tuple(steps), span.basis))
                steps, span = [], Span()
                continue
            step = rest.pop(inside)
            span = span.joined(_flip(step, lane_bits))
            steps.append(step)
    return (*passes, Pass(tuple(steps), span.basis)) if steps else tuple(passes)


def _flip(step: Step, lane_bits: int) -> int:
    return _x(step) >> lane_bits


def _x(step: Step) -> int:
    return 0 if isinstance(step, Phases) else step.x
