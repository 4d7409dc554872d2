"""Splittings: the gates of steps that alternate between the sites' own evolution and the couplings.

    step = A_0, B_1, A_1, ..., B_s, A_s        (in the order of their action)

An A is a product of exponentials of the sites' Hamiltonians with samples of the amplitudes; it is one matrix a site,
however many exponentials it has. A B is exp(-i b h couplings), split over layers of disjoint pairs. The A that ends a
step and the one that begins the next are one, and each A is merged with the first layer of the B on both of its sides.
So a chain has one layer of gates that change from step to step and one that does not, for each B.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import torch

from ketscale.engines.pulses import exponential
from ketscale.engines.pulses.lattice import Lattice
from ketscale.engines.pulses.magnus import FOURTH
from ketscale.engines.pulses.placement import Place, Sequence, layers

Exponential = Callable[[torch.Tensor], torch.Tensor]
Structure = tuple[int, int, tuple[Place, ...]]  # levels, sites and pairs of a lattice


@dataclass(frozen=True)
class Scheme:
    """The coefficients of a step of unit length.

    nodes: when it samples the amplitudes. parts: of each exponential of the sites' Hamiltonians, the weight of each
    sample (parts, stages); their sum is its duration. local: the parts of each A in the order of their action, s + 1 of
    them. kicks: the duration b of each B. symmetric: whether a B goes through its layers forth and back.
    """

    nodes: tuple[float, ...]
    parts: tuple[tuple[float, ...], ...]
    local: tuple[tuple[int, ...], ...]
    kicks: tuple[float, ...]
    symmetric: bool = True


@dataclass(frozen=True, eq=False)
class Gates:
    """Where the gates of a scheme are in their buffer, for lattices of one structure.

    merged: pairs of the first layer. free: sites that have no such pair. rest: all other pairs.
    """

    scheme: Scheme
    structure: Structure
    merged: list[int]
    free: list[int]
    rest: list[int]
    inner: list[list[int]]  # the layers of `rest`, in the order in which a B goes through them

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, scheme: Scheme, structure: Structure) -> Gates:
        """The gates of lattices of this structure."""
        _, sites, pairs = structure
        first, *others = layers(pairs) or [[]]
        covered = {site for number in first for site in pairs[number]}
        free = [site for site in range(sites) if site not in covered]
        rest = [number for layer in others for number in layer]
        inner = [*others, *reversed(others[:-1])] if scheme.symmetric else others
        return cls(scheme, structure, first, free, rest, inner)

    @property
    def distinct(self) -> list[float]:
        """The different durations of B."""
        return sorted(set(self.scheme.kicks))

    @property
    def size(self) -> int:
        """Complex numbers of the gates of one A."""
        d = self.structure[0]
        return len(self.merged) * d**4 + len(self.free) * d**2

    def fraction(self, number: int) -> float:
        """The part of a B's duration that each gate of a pair has: a half if the B meets the pair twice."""
        layers_of_b = [self.merged, *self.inner, *([self.merged] if self.scheme.symmetric else [])]
        return 1 / sum(number in layer for layer in layers_of_b)

    @lru_cache(maxsize=8)  # noqa: B019: it is a member of a small cache itself
    def sequence(self, steps: int) -> Sequence:
        """The gates of so many steps; see `buffer` for the order of matrices."""
        levels, sites, pairs = self.structure
        kicks, square = len(self.scheme.kicks), levels**4
        places = (*pairs, *((site,) for site in range(sites)))
        constant = (steps * kicks + 1) * self.size
        items: list[tuple[int, int]] = []
        for number in range(steps * kicks + 1):
            if number:
                kick = self.distinct.index(self.scheme.kicks[(number - 1) % kicks])
                start = constant + kick * len(self.rest) * square
                for layer in self.inner:
                    items += [(pair, start + self.rest.index(pair) * square) for pair in layer]
            start = number * self.size
            items += [(pair, start + place * square) for place, pair in enumerate(self.merged)]
            start += len(self.merged) * square
            items += [(len(pairs) + site, start + k * levels**2) for k, site in enumerate(self.free)]
        return Sequence(levels, sites, places, torch.tensor(items, dtype=torch.int64).reshape(-1, 2))

    def buffer(
        self, lattice: Lattice, amplitudes: torch.Tensor, step: torch.Tensor, unitary: Exponential
    ) -> torch.Tensor:
        """The matrices of steps with these amplitudes (steps, stages, drives), flat.

        unitary: exponentiates the sites' Hamiltonians, see `exponential.unitary`.

        First those of each A with its halves of layers (`merged`, then `free`), then for each duration of a B those of
        `rest`.
        """
        own = self._own(lattice, amplitudes, step, unitary)
        first = {kick: _pairs(self, lattice, step, self.merged, kick) for kick in self.distinct}
        pairs = [self.structure[2][number] for number in self.merged]
        on = [torch.tensor([pair[k] for pair in pairs], dtype=torch.int64, device=own.device) for k in (0, 1)]
        merged = _kron(own[:, on[0]], own[:, on[1]])
        merged = self._between(merged, first)
        changing = torch.cat([merged.flatten(1), own[:, self.free].flatten(1)], 1)
        constant = [_pairs(self, lattice, step, self.rest, kick).flatten() for kick in self.distinct]
        return torch.cat([changing.flatten(), *constant])

    def _own(
        self, lattice: Lattice, amplitudes: torch.Tensor, step: torch.Tensor, unitary: Exponential
    ) -> torch.Tensor:
        """Each A of the steps by site, (steps * s + 1, n, d, d)."""
        scheme, d = self.scheme, lattice.levels
        weights = amplitudes.new_tensor(scheme.parts)
        strengths = torch.einsum("ps,csk->cpk", weights, amplitudes).to(lattice.drives.dtype)
        undriven = torch.diag_embed(weights.sum(1)[:, None, None] * lattice.energies).to(lattice.drives.dtype)
        sites = torch.tensor(lattice.drive_sites, dtype=torch.int64, device=amplitudes.device)
        driven = torch.einsum("cpk,kab->cpkab", strengths, lattice.drives)
        hamiltonians = undriven.expand(len(amplitudes), -1, -1, -1, -1).index_add(2, sites, driven)
        parts = unitary(step * hamiltonians)
        local = [_product(parts[:, number] for number in numbers) for numbers in scheme.local]
        ends = torch.cat([local[0][:1], local[0][1:] @ local[-1][:-1], local[-1][-1:]])
        if len(local) == 2:
            return ends
        within = torch.stack([ends[:-1], *local[1:-1]], 1).reshape(-1, lattice.sites, d, d)
        return torch.cat([within, ends[-1:]])

    def _between(self, merged: torch.Tensor, first: dict[float, torch.Tensor]) -> torch.Tensor:
        """Each A's gates on pairs with the ends of the B before it and the start of the one after it."""
        kicks = self.scheme.kicks
        grouped = merged[:-1].reshape(len(merged[1:]) // len(kicks), len(kicks), *merged.shape[1:])
        begun = torch.stack([first[kick] for kick in kicks]) @ grouped
        begun = torch.cat([begun.reshape(merged[:-1].shape), merged[-1:]])
        if not self.scheme.symmetric:
            return begun
        ended = begun[1:].reshape(grouped.shape) @ torch.stack([first[kick] for kick in kicks])
        return torch.cat([begun[:1], ended.reshape(merged[1:].shape)])


def _pairs(
    gates: Gates, lattice: Lattice, step: torch.Tensor, numbers: list[int], kick: float
) -> torch.Tensor:
    """The gates of these pairs in a B of a duration, (pairs, d*d, d*d)."""
    durations = [kick * gates.fraction(number) for number in numbers]
    weights = step * torch.tensor(durations, dtype=step.dtype, device=step.device)
    return exponential.unitary(weights[:, None, None] * lattice.couplings[numbers])


def _product(matrices: Iterable[torch.Tensor]) -> torch.Tensor:
    """The product of matrices that act one after the other."""
    first, *others = matrices
    for each in others:
        first = each @ first
    return first


def _kron(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    size = a.shape[-1] * b.shape[-1]
    return torch.einsum("...ab,...cd->...acbd", a, b).reshape(*a.shape[:-2], size, size)


# --- schemes ---


def midpoint(fractions: tuple[float, ...] = (1.0,), frozen: bool = False) -> Scheme:
    """Exponential midpoint in symmetric steps of these fractions.

    frozen: all have the amplitudes of the middle of the whole step, so that the order in time is 2; otherwise each has
    those of its own middle, and the order is that of the composition.
    """
    starts = [sum(fractions[:k]) for k in range(len(fractions))]
    if frozen:
        nodes: tuple[float, ...] = (0.5,)
        halves = sorted({fraction / 2 for fraction in fractions})
        parts = tuple((half,) for half in halves)
        part = [halves.index(fraction / 2) for fraction in fractions]
    else:
        nodes = tuple(start + fraction / 2 for start, fraction in zip(starts, fractions, strict=True))
        count = len(fractions)
        parts = tuple(
            tuple(fraction / 2 if k == j else 0.0 for j in range(count)) for k, fraction in enumerate(fractions)
        )
        part = list(range(count))
    local = ((part[0],), *pairwise(part), (part[-1],))
    return Scheme(nodes, parts, local, fractions)


def sequential() -> Scheme:
    """Exponential midpoint, split into its terms one after the other: first order."""
    return Scheme((0.5,), ((1.0,), (0.0,)), ((0,), (1,)), (1.0,), symmetric=False)


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
