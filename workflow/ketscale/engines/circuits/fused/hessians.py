"""Derivatives of circuits beyond the first ones, in torch, to any order and in reverse and forward mode.

Kernels know a circuit's result F and its gradient. An angle x that turns one rotation, by a x, has the derivative

    dF/dx = a/2 (F(x + pi/(2 a)) - F(x - pi/(2 a)))

if F is expectation values (Schuld et al., arXiv:1811.11184), and so has every derivative of F (Mari et al.,
arXiv:2008.06517). Further derivatives by inputs and weights of which each is such an angle are first ones at shifted
points, in one call of the kernels. All others are those of torch's operators (`stepwise`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.autograd_function import applied
from ketscale.engines.circuits.checks import one_gradient
from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused.program import Rotation, reduce
from ketscale.engines.circuits.transforms import pulled
from ketscale.engines.derivatives import Rows

Argument = Literal["input", "weight", "initial", "mix"]

# More angles than this are not shifted: the states would take too much memory.
MOST_SHIFTED = 128

# The columns that are shifted, and the factors of their angles.
Shifts = tuple[tuple[int, float], ...]


def differentiated(**tensors: torch.Tensor | None) -> tuple[Argument, ...]:
    """The tensors by which a call must be differentiable, in their order."""
    if not torch.is_grad_enabled():
        return ()
    names = (name for name, tensor in tensors.items() if tensor is not None and tensor.requires_grad)
    return cast(tuple[Argument, ...], tuple(names))


@lru_cache(maxsize=1024)
def shifts_of(
    circuit: Circuit, paulis: tuple[str, ...] | None, kind: str, columns: range | None = None
) -> Shifts | None:
    """The shifts of all inputs, or weights, or of some; None if the rule does not hold for one, or they are many."""
    angles = [step.angle for step in reduce(circuit, paulis).rotations if isinstance(step, Rotation)]
    angles = [a for a in angles if a.kind == kind and (columns is None or a.index in columns)]
    most = min(MOST_SHIFTED, len({angle.index for angle in angles}))
    if paulis is None or not angles or len(angles) > most:
        return None
    return tuple((angle.index - (columns.start if columns else 0), angle.factor) for angle in angles)


def shifts(circuit: Circuit, paulis: tuple[str, ...] | None) -> dict[int, Shifts]:
    """See `Result`."""
    both = (shifts_of(circuit, paulis, kind) for kind in ("input", "weight"))
    return {number: each for number, each in enumerate(both) if each is not None}


def shift_tables(shifts: Shifts, columns: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """All shifts (shifts, columns) of an operand, and of each the column and the coefficient of what is there."""
    each = [(column, sign * factor) for column, factor in shifts for sign in (1, -1)]
    numbers, factors = np.array([column for column, _ in each]), np.array([factor for _, factor in each])
    moves = np.zeros((len(each), columns))
    moves[range(len(each)), numbers] = math.pi / 2 / factors
    return moves, numbers, factors / 2


@lru_cache(maxsize=256)
def _tables(shifts: Shifts, columns: int, like: tuple[torch.dtype, torch.device]) -> list[torch.Tensor]:
    """See `shift_tables`."""
    tables = map(torch.from_numpy, shift_tables(shifts, columns))
    return [each.to(like[1], like[0] if each.is_floating_point() else None) for each in tables]


class _Shifted:
    """A point at all shifts of its inputs or weights, each of which is a group, or several if there were some."""

    def __init__(self, point: Sequence[torch.Tensor], number: int, shifts: Shifts) -> None:
        shifted = point[number]
        self.grouped = point[0].ndim == 3
        like = (shifted.dtype, shifted.device)
        self.moves, self.columns, self.coefficients = _tables(shifts, shifted.shape[-1], like)
        moves = self.moves.view(-1, *[1] * (shifted.ndim - 1), shifted.shape[-1])
        self.point = [self.spread(tensor + moves if tensor is shifted else tensor[None]) for tensor in point]

    def spread(self, tensor: torch.Tensor) -> torch.Tensor:
        """(1, ...), or what differs between shifts, (shifts, ...), as groups."""
        every = tensor.expand(len(self.moves), *tensor.shape[1:])
        return every.flatten(0, 1) if self.grouped else every

    def along(self, values: torch.Tensor, moves: torch.Tensor) -> torch.Tensor:
        """The derivative along moves of the operand, from values at all shifts: F's, or gradients by the operand."""
        scales = (moves.index_select(-1, self.columns) * self.coefficients).movedim(-1, 0)
        if self.grouped:
            values = values.unflatten(0, scales.shape[:2])
        return (values * scales.view(*scales.shape, *[1] * (values.ndim - scales.ndim))).sum(0)


@dataclass(frozen=True)
class Result:
    """A circuit's result F of a point: inputs, weights, and perhaps an initial state or a superposition.

    All have groups in front, or none has: inputs (groups, batch, columns), weights (groups, columns), initial states
    (groups, 2**n) or (groups, batch, 2**n).

    values: F by kernels, of which autograd knows the first derivatives. plain: F by torch's operators. shifts: those of the
    operands that are shifted, by number; 0 is the inputs, 1 the weights.
    """

    values: Callable[..., torch.Tensor]
    plain: Callable[..., torch.Tensor]
    shifts: Mapping[int, Shifts]

    def second(
        self,
        point: Sequence[torch.Tensor],
        cotangent: torch.Tensor,
        along: Sequence[torch.Tensor | None],
        needs: Sequence[bool],
    ) -> list[torch.Tensor | None]:
        """The gradients, by the point and the cotangent, of the cotangent times F's derivative along `along` (None is 0)."""
        terms = [
            self._shifted(point, cotangent, number, move, needs)
            for number, move in enumerate(along)
            if move is not None and number in self.shifts
        ]
        varied = [move is not None and number not in self.shifts for number, move in enumerate(along)]

        def gradients(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            *at, c = tensors
            gradients = pulled(lambda *x: (self.plain(*x),), at, (c,), varied)[1]
            return tuple(each for each in gradients if each is not None)

        if any(varied):
            moves = [move for move, there in zip(along, varied, strict=True) if there and move is not None]
            terms.append(pulled(gradients, (*point, cotangent), moves, needs)[1])
        return [_sum(each) for each in zip(*terms, strict=True)]

    def _shifted(
        self,
        point: Sequence[torch.Tensor],
        cotangent: torch.Tensor,
        number: int,
        move: torch.Tensor,
        needs: Sequence[bool],
    ) -> list[torch.Tensor | None]:
        """See `second`, along an operand that is shifted."""
        one = tuple(place == number for place in range(len(point)))
        if tuple(needs) == (*one, False):
            # By each column, not along: torch.func maps the move and not the point, which then needs no further call.
            shifted = _Shifted(point, number, self.shifts[number])
            (slopes,) = applied(Gradients(self, one), *shifted.point, shifted.spread(cotangent[None]))
            return [shifted.along(slopes, move) if there else None for there in (*one, False)]
        (value,), gradients = pulled(
            lambda *x: (self.along(x, number, move),), point, (cotangent,), needs[:-1], move
        )
        return [*gradients, value if needs[-1] else None]

    def along(self, point: Sequence[torch.Tensor], number: int, move: torch.Tensor) -> torch.Tensor:
        """F's derivative along a move of an operand that is shifted."""
        shifted = _Shifted(point, number, self.shifts[number])
        return shifted.along(Values(self).called(*shifted.point)[0], move)


def _sum(terms: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    there = [term for term in terms if term is not None]
    return sum(there[1:], there[0]) if there else None


class _OfResult(Rows):
    """A function of a point whose tensors, of one group, may come without groups in front."""

    result: Result

    def many(self, members: int, mapped: Sequence[bool], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.many`."""
        if tensors[0].ndim - mapped[0] > 2:
            return super().many(members, mapped, *tensors)
        every = (x if each else x.expand(members, *x.shape) for x, each in zip(tensors, mapped, strict=True))
        return self.called(*every)


class Values(_OfResult):
    """F, as a function of the tensors of a point."""

    recorded = True

    def __init__(self, result: Result) -> None:
        self.result = result

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        # Equal rows may be one row in memory, which forward mode does not take.
        return (self.result.values(*tensors).clone(memory_format=torch.contiguous_format),)

    def plainly(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `ByOperators.plainly`."""
        return (self.result.plain(*tensors),)

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], needs: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        """See `Differentiable.pull`."""
        one_gradient("simulator 'fused'", cotangents[0])
        gradients = iter(applied(Gradients(self.result, tuple(needs)), *tensors, *cotangents))
        return [next(gradients) if need else None for need in needs]

    def push(
        self, tensors: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.push`."""
        shifts = self.result.shifts
        terms = [
            self.result.along(tensors, number, move)
            for number, move in enumerate(tangents)
            if move is not None and number in shifts
        ]
        rest = [None if number in shifts else move for number, move in enumerate(tangents)]
        if any(move is not None for move in rest):
            terms += super().push(tensors, rest)
        return (sum(terms[1:], terms[0]),)


@dataclass(eq=False)
class Gradients(_OfResult):
    """The gradients of F by the `wanted` tensors of a point, as a function of all of them and of F's cotangent.

    saved: their values, if somebody has computed them.
    """

    result: Result
    needs: tuple[bool, ...]
    saved: tuple[torch.Tensor, ...] | None = None

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        *point, cotangent = tensors
        if self.saved is not None:
            return self.saved
        gradients = pulled(lambda *x: (self.result.values(*x),), point, (cotangent,), self.needs)[1]
        return tuple(each for each in gradients if each is not None)

    def many(self, members: int, mapped: Sequence[bool], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.many`."""
        return super(Gradients, replace(self, saved=None)).many(members, mapped, *tensors)

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], needs: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        """See `Differentiable.pull`."""
        for cotangent in cotangents:
            one_gradient("simulator 'fused'", cotangent)
        tangents = iter(cotangents)
        along = [next(tangents) if there else None for there in self.needs]
        return self.result.second(tensors[:-1], tensors[-1], along, needs)

    def push(
        self, tensors: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.push`: second derivatives are symmetric."""
        *along, change = tangents
        pushed = []
        if any(move is not None for move in along):
            second = self.result.second(tensors[:-1], tensors[-1], along, (*self.needs, False))
            pushed.append([each for each in second if each is not None])
        if change is not None:
            pushed.append([*applied(replace(self, saved=None), *tensors[:-1], change)])
        return tuple(sum(each[1:], each[0]) for each in zip(*pushed, strict=True))


def recorded_gradients(
    result: Result,
    by: Sequence[bool],
    tensors: Sequence[torch.Tensor | None],
    cotangent: torch.Tensor,
    saved: Sequence[torch.Tensor | None] | None,
) -> list[torch.Tensor | None]:
    """The gradients by the wanted tensors, in a graph of their own; None for the others. saved: their values.

    Those by each operand that is shifted are a function of their own: where one is differentiated, the others are not.
    """
    point = {place: each for place, each in enumerate(tensors) if each is not None}
    places = [place for place in point if by[place]]
    parts = [[place] for place in places if place in result.shifts]
    parts.append([place for place in places if place not in result.shifts])
    gradients: dict[int, torch.Tensor] = {}
    for part in filter(None, parts):
        some = tuple(each for each in map(saved.__getitem__, part) if each is not None) if saved else None
        function = Gradients(result, tuple(place in part for place in point), some)
        gradients |= zip(part, applied(function, *point.values(), cotangent), strict=True)
    return [gradients.get(place) for place in range(len(tensors))]
