"""Splittings: the gates of steps that alternate between the sites' own evolution and the couplings.

    step = A_0, B_1, A_1, ..., B_s, A_s        (in the order of their action)

An A is a product of exponentials of the sites' Hamiltonians with samples of the amplitudes; it is one matrix a site,
however many exponentials it has. A B is exp(-i b h couplings), split over layers of disjoint pairs, through which it goes
forth and back. The A that ends a step and the one that begins the next are one, and each A is merged with the first layer of
the B on both of its sides. So a chain has one layer of gates that change from step to step and one that does not, for each B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch

from ketscale.engines.pulses import plain
from ketscale.engines.pulses.chain import Chain
from ketscale.engines.pulses.plain import GateSequence, Place, layers
from ketscale.engines.pulses.schemes import Scheme

# Levels, sites and pairs of a chain.
Structure = tuple[int, int, tuple[Place, ...]]

# What exponentiates many small Hermitian matrices; see `plain.unitary`.
Exponential = Callable[[torch.Tensor], torch.Tensor]

# Complex numbers of a chunk's gates, and of their gradients, of which each tile of columns has its own.
CHUNK, CHUNK_OF_TILES = 2**18, 2**21
# A tile has at least so many columns.
TILE = 8


@dataclass(frozen=True, eq=False)
class Gates:
    """The places of a scheme's gates in their buffer, for chains of one structure.

    merged: pairs of the first layer. free: sites that have no such pair. inner: the other layers, forth and back.
    """

    scheme: Scheme
    structure: Structure
    merged: list[int]
    free: list[int]
    inner: list[list[int]]

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, scheme: Scheme, structure: Structure) -> Gates:
        """The gates of chains of this structure."""
        _, sites, pairs = structure
        first, *others = layers(pairs) or [[]]
        covered = {site for number in first for site in pairs[number]}
        free = [site for site in range(sites) if site not in covered]
        return cls(scheme, structure, first, free, [*others, *reversed(others[:-1])])

    @cached_property
    def rest(self) -> list[int]:
        """All pairs that are not `merged`."""
        return list(dict.fromkeys(number for layer in self.inner for number in layer))

    @cached_property
    def distinct(self) -> list[float]:
        """The different durations of B's."""
        return sorted(set(self.scheme.kicks))

    @cached_property
    def which(self) -> list[int]:
        """The number of each B among the `distinct` ones."""
        return [self.distinct.index(kick) for kick in self.scheme.kicks]

    @property
    def size(self) -> int:
        """Complex numbers of the gates of one A."""
        d = self.structure[0]
        return len(self.merged) * d**4 + len(self.free) * d**2

    def own(self, steps: int) -> int:
        """Complex numbers of the gates of the A's of so many steps, which are first in the buffer and change with the amplitudes."""
        return (steps * len(self.scheme.kicks) + 1) * self.size

    def buffer(
        self, chain: Chain, amplitudes: torch.Tensor, step: torch.Tensor, unitary: Exponential
    ) -> torch.Tensor:
        """The matrices of steps with these amplitudes (steps, stages, drives), flat.

        First those of each A with its halves of layers (`merged`, then `free`), then for each duration of a B those of
        `rest`. Columns share them; they are differentiable.

        step: the time that a step takes, without dimensions. unitary: what exponentiates the sites' Hamiltonians.
        """
        own = evolutions(self.scheme, chain, amplitudes, step, unitary)
        pairs = tuple(self.structure[2][number] for number in self.merged)
        kicks = self._kicks(chain.couplings, step)
        gates = merged(own, pairs, kicks[self.which, : len(pairs)])
        if self.free:
            gates = torch.cat([gates.flatten(1), own[:, self.free].flatten(1)], 1)
        return torch.cat([gates.flatten(), kicks[:, len(pairs) :].flatten()])

    def unitaries(self, chain: Chain, amplitudes: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """Matrices (k, d**n, d**n) that act one after the other as the steps do, by operators that torch.func transforms.

        They are the first A, and then each step without it.
        """
        buffer = self.buffer(chain, amplitudes, step, plain.unitary)
        count = len(amplitudes)
        first, steps, rest = buffer.tensor_split([self.size, self.own(count)])
        start, one = sequence(self, 1).divided(len(self.merged) + len(self.free))
        identity = torch.eye(chain.dimension, dtype=buffer.dtype, device=buffer.device)
        after = torch.vmap(lambda own: plain.forward(one, torch.cat([first, own, rest]), identity))
        others = after(steps.view(count, -1))
        return torch.cat([plain.forward(start, first, identity)[None], others])

    def chunk(self, columns: int) -> int:
        """How many steps to take at once."""
        size = max(1, self.size * len(self.scheme.kicks))
        tiles = -(-columns // TILE)
        return max(1, min(CHUNK, CHUNK_OF_TILES // max(1, tiles)) // size)

    def _kicks(self, couplings: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """The gates of all pairs, `merged` and then `rest`, in each of the `distinct` B's: (kicks, pairs, d*d, d*d)."""
        pairs = [*self.merged, *self.rest]
        # A B may meet a layer twice, of which each gate then has a half.
        counts = [2 if pair in self.merged else sum(pair in layer for layer in self.inner) for pair in pairs]
        durations = [[kick / times for times in counts] for kick in self.distinct]
        weights = step * torch.tensor(durations, dtype=step.dtype, device=step.device)
        return plain.unitary(weights[..., None, None] * couplings[pairs])


def evolutions(
    scheme: Scheme,
    chain: Chain,
    amplitudes: torch.Tensor,
    step: torch.Tensor,
    unitary: Exponential,
) -> torch.Tensor:
    """Each A of the steps by site, (steps * s + 1, n, d, d). unitary: what exponentiates."""
    d = chain.levels
    weights = step * amplitudes.new_tensor(scheme.parts)
    durations = step * amplitudes.new_tensor([sum(part) for part in scheme.parts])
    # As one product of matrices: (steps, parts, 1 + drives) of how much of each term, and the terms.
    amounts = torch.cat([durations.expand(len(amplitudes), 1, -1), amplitudes.mT @ weights.T], 1).mT
    terms = torch.view_as_real(_terms(chain))
    hamiltonians = torch.tensordot(amounts, terms, 1)
    # Not indexed: the gradient of an index is as large as the whole, for each part.
    parts = unitary(torch.view_as_complex(hamiltonians)).unbind(1)
    local = [_product(parts[number] for number in numbers) for numbers in scheme.local]
    others = len(amplitudes) - 1
    start, starts = local[0].split((1, others))
    ends, end = local[-1].split((others, 1))
    between = torch.cat([start, starts @ ends])
    within = torch.stack([between, *local[1:-1]], 1).reshape(-1, chain.sites, d, d)
    return torch.cat([within, end])


def merged(own: torch.Tensor, pairs: tuple[Place, ...], couplings: torch.Tensor) -> torch.Tensor:
    """Each A's gates on pairs, with the start of the B after it and the end of the one before it.

    own: evolutions A of the sites (steps * s + 1, n, d, d). couplings: of each of the s B's of a step, what it begins and
    ends with, (s, pairs, d*d, d*d). Returns (steps * s + 1, pairs, d*d, d*d).
    """
    sites = [torch.tensor([pair[k] for pair in pairs], dtype=torch.int64, device=own.device) for k in (0, 1)]
    products = torch.einsum("kpab,kpcd->kpacbd", *(own.index_select(1, each) for each in sites))
    # Split instead of sliced: the gradient of a slice is as large as the whole.
    count = len(own) - 1
    before, last = products.reshape(len(own), *couplings.shape[1:]).split([count, 1])
    by_step = (count // len(couplings), *couplings.shape)
    # One product for all steps that share a coupling, as a large matrix.
    before_part = torch.einsum("kpab,tkpbc->tkpac", couplings, before.reshape(by_step))
    first, after = torch.cat([before_part.reshape(before.shape), last]).split([1, count])
    after_part = torch.einsum("tkpab,kpbc->tkpac", after.reshape(by_step), couplings)
    return torch.cat([first, after_part.reshape(after.shape)])


@lru_cache(maxsize=64)
def sequence(gates: Gates, steps: int) -> GateSequence:
    """The gates of so many steps; see `Gates.buffer` for the order of matrices."""
    levels, sites, pairs = gates.structure
    kicks, square = len(gates.scheme.kicks), levels**4
    places = (*pairs, *((site,) for site in range(sites)))
    constant = gates.own(steps)
    items: list[tuple[int, int]] = []
    for number in range(steps * kicks + 1):
        if number:
            start = constant + gates.which[(number - 1) % kicks] * len(gates.rest) * square
            for layer in gates.inner:
                items += [(pair, start + gates.rest.index(pair) * square) for pair in layer]
        start = number * gates.size
        items += [(pair, start + place * square) for place, pair in enumerate(gates.merged)]
        start += len(gates.merged) * square
        items += [(len(pairs) + site, start + k * levels**2) for k, site in enumerate(gates.free)]
    # Read by the host, wherever the gates are.
    numbers = np.array(items, dtype=np.int64).reshape(-1, 2)
    return GateSequence(levels, sites, places, torch.from_numpy(numbers))


def _terms(chain: Chain) -> torch.Tensor:
    """What each site's Hamiltonian is a sum of: its undriven part, and each drive; complex (1 + drives, n, d, d)."""
    sites = torch.tensor(chain.drive_sites, dtype=torch.int64, device=chain.undriven.device)
    own = torch.nn.functional.one_hot(sites, chain.sites).to(chain.drives.dtype)
    return torch.cat([chain.undriven[None], own[:, :, None, None] * chain.drives[:, None]])


def _product(matrices: Iterable[torch.Tensor]) -> torch.Tensor:
    """The product of matrices that act one after the other."""
    first, *others = matrices
    for each in others:
        first = each @ first
    return first
