"""Steps of a splitting: its gates are made for a chunk of steps at once, and act on all columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import ModuleType

import torch

from ketscale.engines.pulses import plain
from ketscale.engines.pulses.lattice import Lattice
from ketscale.engines.pulses.schemes import Scheme
from ketscale.engines.pulses.settings import Route
from ketscale.engines.pulses.splitting import Gates, Making, evolutions, merged, sequence
from ketscale.errors import UserError

TORCH = Making(evolutions, merged)

# Complex numbers of a chunk's gates, and of their gradients, of which each tile of columns has its own.
CHUNK, CHUNK_OF_TILES = 2**18, 2**21

# A tile has at least so many columns.
TILE = 8


@dataclass(frozen=True)
class SplitSteps:
    """See `evolution.SteppingMethod` and `integrators.integrator`."""

    scheme: Scheme
    route: Route = "auto"

    @property
    def nodes(self) -> tuple[float, ...]:
        """See `evolution.SteppingMethod`."""
        return self.scheme.nodes

    def chunk(self, lattice: Lattice, columns: int) -> int:
        """See `evolution.SteppingMethod`."""
        size = max(1, self._gates(lattice).size * len(self.scheme.kicks))
        tiles = -(-columns // TILE)
        return max(1, min(CHUNK, CHUNK_OF_TILES // max(1, tiles)) // size)

    def made(self, lattice: Lattice, amplitudes: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """The buffer of all gates."""
        return self._gates(lattice).buffer(lattice, amplitudes, step, self._route(lattice)[1])

    def unitaries(self, lattice: Lattice, amplitudes: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """See `evolution.SteppingMethod`: the first A, and then each step without it."""
        gates = self._gates(lattice)
        made = gates.buffer(lattice, amplitudes, step, TORCH)
        count, driven = len(amplitudes), gates.structure[3]
        first, steps, rest = made.tensor_split([gates.size, gates.own(count)])
        start, one = sequence(gates, 1).divided(len(gates.merged) + len(gates.free))
        identity = torch.eye(lattice.dimension, dtype=made.dtype, device=made.device)
        after = torch.vmap(
            lambda own, kicks: plain.forward(one, torch.cat([first, own, kicks]), identity),
            (0, 0 if driven else None),
        )
        others = after(steps.view(count, -1), rest.view(count, -1) if driven else rest)
        return torch.cat([plain.forward(start, first, identity)[None], others])

    def enter(self, lattice: Lattice, columns: torch.Tensor) -> torch.Tensor:
        """See `evolution.SteppingMethod`."""
        state: torch.Tensor = self._route(lattice)[0].enter(columns, sequence(self._gates(lattice), 1))
        return state

    def leave(self, lattice: Lattice, state: torch.Tensor, columns: int) -> torch.Tensor:
        """See `evolution.SteppingMethod`."""
        final: torch.Tensor = self._route(lattice)[0].leave(state, columns)
        return final

    def forward(self, lattice: Lattice, steps: int, made: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """See `evolution.SteppingMethod`."""
        gates = sequence(self._gates(lattice), steps)
        after: torch.Tensor = self._route(lattice)[0].forward(gates, made, state)
        return after

    def backward(
        self,
        lattice: Lattice,
        steps: int,
        made: torch.Tensor,
        state: torch.Tensor,
        cotangent: torch.Tensor,
        fixed: bool,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See `evolution.SteppingMethod`."""
        gates = self._gates(lattice)
        wanted = len(made) if fixed else gates.changing(steps)
        before: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = self._route(lattice)[0].backward(
            sequence(gates, steps), made, state, cotangent, wanted
        )
        return before

    def _gates(self, lattice: Lattice) -> Gates:
        return Gates.of(
            self.scheme, (lattice.levels, lattice.sites, lattice.pairs, bool(lattice.driven_pairs))
        )

    def _route(self, lattice: Lattice) -> tuple[ModuleType, Making]:
        """What applies gates to columns, and what makes them."""
        device = lattice.energies.device
        if self.route == "torch" or (self.route == "auto" and device.type != "cpu"):
            return plain, TORCH
        if device.type != "cpu":
            raise UserError(
                f"route: compiled computes on the CPU only, and the lattice is on {device}; use route torch"
            )
        from ketscale.engines.pulses import cpu, exponential_cpu, merging_cpu, two_level_cpu

        two = lattice.levels == 2
        own = two_level_cpu.evolutions if two else partial(evolutions, unitary=exponential_cpu.unitary)
        return cpu, Making(own, merging_cpu.merged)
