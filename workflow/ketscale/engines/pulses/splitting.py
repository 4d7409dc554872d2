"""Splittings: the gates of steps that alternate between the sites' own evolution and the couplings.

    step = A_0, B_1, A_1, ..., B_s, A_s        (in the order of their action)

An A is a product of exponentials of the sites' Hamiltonians with samples of the amplitudes; it is one matrix a site,
however many exponentials it has. A B is exp(-i b h couplings), split over layers of disjoint pairs. The A that ends a
step and the one that begins the next are one, and each A is merged with the first layer of the B on both of its sides.
So a chain has one layer of gates that change from step to step and one that does not, for each B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import ModuleType

import numpy as np
import torch

from ketscale.engines.dynamics.system import System
from ketscale.engines.evolved import CodeKind
from ketscale.engines.pulses import plain
from ketscale.engines.pulses.chain import Chain
from ketscale.engines.pulses.evolution import Integrator, evolve_columns
from ketscale.engines.pulses.plain import GateSequence, Meets, Place, layers
from ketscale.engines.pulses.schemes import Scheme, Sweep
from ketscale.errors import UserError

# Levels, sites and pairs of a chain.
Structure = tuple[int, int, tuple[Place, ...]]

# What exponentiates many small Hermitian matrices; see `plain.unitary`.
Exponential = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, eq=False)
class Gates:
    """The places of a scheme's gates in their buffer, for chains of one structure.

    merged: pairs of the first layer. free: sites that have no such pair. rest: all other pairs.
    """

    scheme: Scheme
    structure: Structure
    merged: list[int]
    free: list[int]
    rest: list[int]
    inner: dict[Sweep, list[list[int]]]  # the layers of `rest`, in the order in which a B goes through them

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, scheme: Scheme, structure: Structure) -> Gates:
        """The gates of chains of this structure."""
        _, sites, pairs = structure
        first, *others = (layers(pairs) if scheme.layered else [[k] for k in range(len(pairs))]) or [[]]
        covered = {site for number in first for site in pairs[number]}
        free = [site for site in range(sites) if site not in covered]
        rest = [number for layer in others for number in layer]
        inner: dict[Sweep, list[list[int]]] = {
            "both": [*others, *reversed(others[:-1])],
            "forth": others,
            "back": others[::-1],
        }
        return cls(scheme, structure, first, free, rest, inner)

    @cached_property
    def distinct(self) -> list[tuple[float, bool]]:
        """The different B's by their gates: duration, and whether they go forth and back."""
        return sorted({_kind(stroke) for stroke in self.scheme.strokes})

    @cached_property
    def which(self) -> list[int]:
        """The number of each B among the `distinct` ones."""
        return [self.distinct.index(_kind(stroke)) for stroke in self.scheme.strokes]

    @property
    def size(self) -> int:
        """Complex numbers of the gates of one A."""
        d = self.structure[0]
        return len(self.merged) * d**4 + len(self.free) * d**2

    def own(self, steps: int) -> int:
        """Complex numbers of the gates of the A's of so many steps, which are first in the buffer and change with the amplitudes."""
        return (steps * len(self.scheme.kicks) + 1) * self.size

    @property
    def rest_size(self) -> int:
        """Complex numbers of the gates of `rest` in a B."""
        levels: int = self.structure[0]
        return len(self.rest) * levels**4

    def fraction(self, number: int) -> float:
        """The part of its duration that each gate of a pair has in a B that goes forth and back and may meet it twice."""
        layers_of_b = [self.merged, *self.inner["both"], self.merged]
        return 1 / sum(number in layer for layer in layers_of_b)

    @cached_property
    def meets(self) -> Meets:
        """Whether each B begins with the merged layer, and whether it ends with it."""
        return tuple((sweep != "back", sweep != "forth") for _, sweep in self.scheme.strokes)

    def buffer(
        self, chain: Chain, amplitudes: torch.Tensor, step: torch.Tensor, unitary: Exponential
    ) -> torch.Tensor:
        """The matrices of steps with these amplitudes (steps, stages, drives), flat.

        unitary: what exponentiates the sites' Hamiltonians.

        First those of each A with its halves of layers (`merged`, then `free`), then for each duration of a B those of
        `rest`.
        """
        own = evolutions(self.scheme, chain, amplitudes, step, unitary)
        pairs = tuple(self.structure[2][number] for number in self.merged)
        kicks = self._kicks(chain.couplings, step)
        gates = merged(own, pairs, kicks[self.which, : len(pairs)], self.meets)
        if self.free:
            gates = torch.cat([gates.flatten(1), own[:, self.free].flatten(1)], 1)
        return torch.cat([gates.flatten(), kicks[:, len(pairs) :].flatten()])

    def _kicks(self, couplings: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """The gates of all pairs, `merged` and then `rest`, in each of the `distinct` B's: (kicks, pairs, d*d, d*d)."""
        pairs = [*self.merged, *self.rest]
        durations = [
            [kick * self.fraction(pair) if both else kick for pair in pairs] for kick, both in self.distinct
        ]
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
    durations = (step * amplitudes.new_tensor(scheme.durations)).expand(len(amplitudes), 1, -1)
    # As one product of matrices: (steps, parts, 1 + drives) of how much of each term, and the terms.
    amounts = torch.cat([durations, amplitudes.mT @ weights.T], 1).mT
    terms = torch.view_as_real(_terms(chain))
    hamiltonians = torch.tensordot(amounts, terms, 1)
    # Not indexed: the gradient of an index is as large as the whole, for each part.
    parts = unitary(torch.view_as_complex(hamiltonians)).unbind(1)
    local = [_product(parts[number] for number in numbers) for numbers in scheme.local]
    (start, starts), (ends, end) = (
        each.split(sizes)
        for each, sizes in (
            (local[0], (1, len(amplitudes) - 1)),
            (local[-1], (len(amplitudes) - 1, 1)),
        )
    )
    between = torch.cat([start, starts @ ends])
    within = torch.stack([between, *local[1:-1]], 1).reshape(-1, chain.sites, d, d)
    return torch.cat([within, end])


def merged(
    own: torch.Tensor, pairs: tuple[Place, ...], couplings: torch.Tensor, meets: Meets
) -> torch.Tensor:
    """Each A's gates on pairs, with the start of the B after it and the end of the one before it, if these are of the pairs.

    own: evolutions A of the sites (steps * s + 1, n, d, d). couplings: of each of the s B's of a step, what it begins or
    ends with, (s, pairs, d*d, d*d). meets: see `Gates`. Returns (steps * s + 1, pairs, d*d, d*d).
    """
    sites = [torch.tensor([pair[k] for pair in pairs], dtype=torch.int64, device=own.device) for k in (0, 1)]
    products = torch.einsum("kpab,kpcd->kpacbd", *(own.index_select(1, each) for each in sites))
    # Split instead of sliced: the gradient of a slice is as large as the whole.
    count = len(own) - 1
    before, last = products.reshape(len(own), *couplings.shape[1:]).split([count, 1])
    by_step = (count // len(meets), *couplings.shape)
    identity = torch.eye(couplings.shape[-1], dtype=couplings.dtype, device=couplings.device)
    starts, ends = (
        torch.where(torch.tensor(which, device=couplings.device)[:, None, None, None], couplings, identity)
        for which in zip(*meets, strict=True)
    )
    # One product for all steps that share a coupling, as a large matrix.
    started = torch.einsum("kpab,tkpbc->tkpac", starts, before.reshape(by_step))
    first, after = torch.cat([started.reshape(before.shape), last]).split([1, count])
    ended = torch.einsum("tkpab,kpbc->tkpac", after.reshape(by_step), ends)
    return torch.cat([first, ended.reshape(after.shape)])


def _kind(stroke: tuple[float, Sweep]) -> tuple[float, bool]:
    return stroke[0], stroke[1] == "both"


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
            before = (number - 1) % kicks
            start = constant + gates.which[before] * gates.rest_size
            for layer in gates.inner[gates.scheme.strokes[before][1]]:
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


# Complex numbers of a chunk's gates, and of their gradients, of which each tile of columns has its own.
CHUNK, CHUNK_OF_TILES = 2**18, 2**21

# A tile has at least so many columns.
TILE = 8


class SplitSteps(Integrator):
    """Unitary steps, a chunk of them at a time, as gates on columns; see `integrators.integrator`."""

    kernel = "chain"

    def columns(
        self,
        system: System,
        amplitudes: torch.Tensor,
        duration: torch.Tensor,
        columns: torch.Tensor,
        parameters: torch.Tensor | None,
    ) -> torch.Tensor:
        """See `evolution.Integrator.evolve`."""
        chain = Chain.of(system, amplitudes.device, parameters)
        return evolve_columns(self, chain, amplitudes, duration, columns)

    def code(self, device: torch.device) -> CodeKind:
        """See `evolution.Integrator.code`."""
        return "torch" if self._route(device)[0] is plain else "compiled"

    def chunk(self, chain: Chain, columns: int) -> int:
        """How many steps to take at once."""
        size = max(1, self._gates(chain).size * len(self.scheme.kicks))
        tiles = -(-columns // TILE)
        return max(1, min(CHUNK, CHUNK_OF_TILES // max(1, tiles)) // size)

    def made(self, chain: Chain, amplitudes: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """The matrices of all gates of steps with these amplitudes (steps, stages, drives), in the order of `gates`.

        Columns share them; they are differentiable. step: the time that a step takes, without dimensions.
        """
        return self._gates(chain).buffer(chain, amplitudes, step, self._route(chain.undriven.device)[1])

    def unitaries(self, chain: Chain, amplitudes: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """Matrices (k, d**n, d**n) that act one after the other as the steps do, by operators that torch.func transforms.

        They are the first A, and then each step without it.
        """
        gates = self._gates(chain)
        made = gates.buffer(chain, amplitudes, step, plain.unitary)
        count = len(amplitudes)
        first, steps, rest = made.tensor_split([gates.size, gates.own(count)])
        start, one = sequence(gates, 1).divided(len(gates.merged) + len(gates.free))
        identity = torch.eye(chain.dimension, dtype=made.dtype, device=made.device)
        after = torch.vmap(lambda own: plain.forward(one, torch.cat([first, own, rest]), identity))
        others = after(steps.view(count, -1))
        return torch.cat([plain.forward(start, first, identity)[None], others])

    def gates(self, chain: Chain, steps: int) -> tuple[GateSequence, int]:
        """The gates of so many steps, and how many numbers of their matrices, the first, change with the amplitudes."""
        gates = self._gates(chain)
        return sequence(gates, steps), gates.own(steps)

    def machine(self, chain: Chain) -> ModuleType:
        """What applies gates to columns: `plain`, or `cpu`, with the same functions."""
        return self._route(chain.undriven.device)[0]

    def _gates(self, chain: Chain) -> Gates:
        return Gates.of(self.scheme, (chain.levels, chain.sites, chain.pairs))

    def _route(self, device: torch.device) -> tuple[ModuleType, Exponential]:
        """What applies gates to columns, and what exponentiates the sites' Hamiltonians."""
        if self.route == "torch" or (self.route == "auto" and device.type != "cpu"):
            return plain, plain.unitary
        if device.type != "cpu":
            raise UserError(
                f"route: compiled computes on the CPU only, and the columns are on {device}; use route torch"
            )
        from ketscale.engines.pulses import cpu, exponential_cpu

        return cpu, exponential_cpu.unitary
