"""The integrators, one line each, and their coefficients. Imports nothing heavy, since configs are checked with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ketscale.words import suggestion

# --- Magnus ---


class MagnusScheme(NamedTuple):
    """nodes: when a step of unit length is sampled. weights: of the samples in each exponential, in their order."""

    nodes: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...]


_ROOT = math.sqrt(3) / 6
# Order 4: Blanes and Moan, Appl. Numer. Math. 56, 1519 (2006).
FOURTH = MagnusScheme(
    (0.5 - _ROOT, 0.5 + _ROOT), ((0.25 + _ROOT, 0.25 - _ROOT), (0.25 - _ROOT, 0.25 + _ROOT))
)
# Order 6 with 5 exponentials, as of Alvermann and Fehske, J. Comput. Phys. 230, 5930 (2011): the solution of their order
# conditions with the smallest coefficients that was found.
SIXTH = MagnusScheme(
    (0.5 - math.sqrt(0.15), 0.5, 0.5 + math.sqrt(0.15)),
    (
        (0.28415243835510584, -0.03361644240042754, 0.006090323325439107),
        (0.03737906166176373, 0.36287137429645994, -0.03327137925562427),
        (-0.016572666308906584, -0.21406541934762047, -0.016572666308906584),
        (-0.03327137925562427, 0.36287137429645994, 0.03737906166176373),
        (0.006090323325439107, -0.03361644240042754, 0.28415243835510584),
    ),
)


# --- splittings ---


@dataclass(frozen=True, eq=False)
class Scheme:
    """The coefficients of a step of unit length. Each is a key of caches by itself: its numbers take long to compare.

    nodes: when it samples the amplitudes. parts: of each exponential of the sites' Hamiltonians, the weight of each
    sample (parts, stages), whose sum is the duration of the undriven part. local: the parts of each A in the order of their
    action, s + 1 of them. kicks: the duration b of each B.
    """

    nodes: tuple[float, ...]
    parts: tuple[tuple[float, ...], ...]
    local: tuple[tuple[int, ...], ...]
    kicks: tuple[float, ...]


def midpoint(fractions: tuple[float, ...] = (1.0,)) -> Scheme:
    """Exponential midpoint in symmetric steps of these fractions, each with the amplitudes of its own middle."""
    starts = [sum(fractions[:k]) for k in range(len(fractions))]
    nodes = tuple(start + fraction / 2 for start, fraction in zip(starts, fractions, strict=True))
    count = len(fractions)
    parts = tuple(
        tuple(fraction / 2 if k == j else 0.0 for j in range(count)) for k, fraction in enumerate(fractions)
    )
    local = ((0,), *pairwise(range(count)), (count - 1,))
    return Scheme(nodes, parts, local, fractions)


# Suzuki's fractal of order 4 (Phys. Lett. A 146, 319, 1990).
_SUZUKI = 1 / (4 - 4 ** (1 / 3))
SUZUKI = (_SUZUKI, _SUZUKI, 1 - 4 * _SUZUKI, _SUZUKI, _SUZUKI)


def interaction(drifts: tuple[float, ...], kicks: tuple[float, ...], substeps: int) -> Scheme:
    """A splitting whose A is the exact evolution of the driven sites, so that its error is one of the couplings alone.

    drifts, kicks: durations of A and B in their order. substeps: Magnus steps of order 4 that a site takes in a whole
    step; they cost nothing that grows with the columns.
    """
    nodes: list[float] = []
    parts: list[dict[int, float]] = []
    local: list[tuple[int, ...]] = []
    start = 0.0
    for drift in drifts:
        count = max(1, math.ceil(abs(drift) * substeps))
        length = drift / count
        for number in range(count):
            samples = (len(nodes), len(nodes) + 1)
            nodes += [start + length * (number + node) for node in FOURTH.nodes]
            parts += [
                {sample: length * weight for sample, weight in zip(samples, row, strict=True)}
                for row in FOURTH.weights
            ]
        local.append(tuple(range(len(parts) - 2 * count, len(parts))))
        start += drift
    rows = tuple(tuple(part.get(sample, 0.0) for sample in range(len(nodes))) for part in parts)
    return Scheme(tuple(nodes), rows, tuple(local), kicks)


def _mirrored(half: tuple[float, ...], even: bool) -> tuple[float, ...]:
    """The symmetric coefficients that begin with `half`; their sum is 1, which makes the ones in the middle."""
    rest = 1 - 2 * sum(half)
    middle = (rest / 2, rest / 2) if even else (rest,)
    return (*half, *middle, *reversed(half))


# Order 4 with 6 stages: S6 of Blanes and Moan, J. Comput. Appl. Math. 142, 313 (2002), table 2.
BLANES_MOAN = (
    _mirrored((0.0792036964311957, 0.353172906049774, -0.0420650803577195), even=False),
    _mirrored((0.209515106613362, -0.143851773179818), even=True),
)


# trotter2: exponential midpoint with the couplings split from the driven circuits, of order 2, as published but for the drives,
# which SuperGrad (arXiv:2406.18155) splits from the circuits too. suzuki4: of order 4, in time too.
# interaction: the driven sites are evolved nearly exactly, so that the error is that of the couplings; interaction4 is of
# order 4 where its layers of couplings commute, otherwise of order 2 with a small error.
# whole-space: commutator-free, with the exact propagator of the whole system: slower, and an independent reference.
SIMULATORS: dict[str, Scheme | MagnusScheme] = {
    "trotter2": midpoint(),
    "suzuki4": midpoint(SUZUKI),
    "interaction4": interaction(*BLANES_MOAN, 4),
    "whole-space": SIXTH,
}

DEVICES = tuple(SIMULATORS)

# Names of earlier versions, and what has a smaller error in less time.
REPLACED = {"trotter1": "trotter2", "interaction2": "interaction4", "magnus6": "whole-space"}


def advice(name: str, names: Sequence[str]) -> str:
    """What to take instead of an unknown name."""
    return f"; use {REPLACED[name]}" if name in REPLACED else suggestion(name, names)
