"""Columns carried through the steps of a stepper, and the reversible adjoint: memory does not grow with steps.

States are columns (d, k), as everywhere in dynamics; only here and in the kernels, whose lanes they are, are they rows (k, d).

The steps are unitary, so the backward pass recomputes the states from the final one by inverse steps, and carries the
cotangent along. Both passes take the steps in chunks. What does not depend on the columns (`SplitSteps.made`, the
gates) is made once in a chunk, for all columns, by differentiable operations, so that the cotangents that
the backward pass finds for it become those of amplitudes, duration and chain by autograd: the gradient of the
discrete steps, not of the continuous equation.

Second derivatives and forward mode go through the matrices of the same steps by torch's operators
(`SplitSteps.unitaries`), which are kept. Under torch.func.vmap there is a call for each copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from ketscale.autograd_function import applied
from ketscale.engines.derivatives import ByOperators, paired
from ketscale.engines.dynamics.methods import Route
from ketscale.engines.dynamics.propagators import Batched
from ketscale.engines.dynamics.system import System
from ketscale.engines.dynamics.tasks import Tasks
from ketscale.engines.evolved import CodeKind, Kernel
from ketscale.engines.pulses.chain import Chain
from ketscale.errors import UserError
from ketscale.private_torch import transforms_active
from ketscale.shapes import Complex128, Float, Float64
from ketscale.spans import span

# A `splitting.SplitSteps`, whose module imports this one.
SplitSteps = Any

# Product states of a chain whose steps are matrices for second derivatives: 200 steps of that size take some GiB.
MOST_PLAIN = 256


@dataclass(frozen=True)
class Integrator(ABC):
    """Evolves columns under a system's Hamiltonian from time 0 to a duration, in equal steps.

    scheme: its coefficients. steps: how many. route: see `integrators.integrator`. kernel: see `evolved.Evolved`.
    """

    kernel: ClassVar[Kernel]

    scheme: Any
    steps: int
    route: Route = "auto"

    def times(self, duration: Float[torch.Tensor, ""] | float) -> Float64[torch.Tensor, "steps stages"]:
        """When the drives are sampled, (steps, stages) within [0, duration], in the system's unit of time."""
        duration = torch.as_tensor(duration, dtype=torch.float64)
        nodes = torch.tensor(self.scheme.nodes, dtype=torch.float64, device=duration.device)
        numbers = torch.arange(self.steps, dtype=torch.float64, device=duration.device)
        return (numbers[:, None] + nodes) * (duration / self.steps)

    def evolve(
        self,
        system: System,
        amplitudes: Float64[torch.Tensor, "steps stages drives"],
        duration: Float[torch.Tensor, ""] | float,
        columns: Complex128[torch.Tensor, "states columns"],
        parameters: Float64[torch.Tensor, " terms"] | None = None,
    ) -> Complex128[torch.Tensor, "states columns"]:
        """Final columns (d, k), from initial ones.

        amplitudes: real (steps, stages, controls) at `times`. parameters: of the system's drift, (terms,); None: its own.
        torch.func transforms it. Derivatives of any order exist with respect to all tensors, duration and operators included,
        in these in Hermitian directions. First ones have a memory that does not grow with steps; further ones, and forward
        mode, keep every state.

        Raises:
            UserError: a splitting cannot read the system (`Chain.of`).
        """
        duration = torch.as_tensor(duration, dtype=torch.float64, device=amplitudes.device)
        return self.columns(system, amplitudes, duration, columns, parameters)

    @abstractmethod
    def columns(
        self,
        system: System,
        amplitudes: torch.Tensor,
        duration: torch.Tensor,
        columns: torch.Tensor,
        parameters: torch.Tensor | None,
    ) -> torch.Tensor:
        """See `evolve`."""

    @abstractmethod
    def code(self, device: torch.device) -> CodeKind:
        """See `evolved.Evolved`."""


def evolve_columns(
    stepper: SplitSteps,
    chain: Chain,
    amplitudes: torch.Tensor,
    duration: torch.Tensor,
    columns: torch.Tensor,
) -> torch.Tensor:
    """Final columns (d, k); see `Integrator.evolve`."""
    tensors = (columns.mT, amplitudes, duration, *chain.tensors)
    recorded = torch.is_grad_enabled() or transforms_active()
    needed = tuple(recorded and tensor.requires_grad for tensor in tensors)
    (final,) = applied(_Final(stepper, chain, needed), *tensors)
    return final.mT


class _Chunk(NamedTuple):
    """What a chunk of steps needs, and the tensors that it was made from."""

    leaves: list[torch.Tensor]  # the chunk's amplitudes, the duration and the tensors of the chain
    made: torch.Tensor


# What a backward pass begins with: the final state, and the last chunk.
_Kept = tuple[torch.Tensor, _Chunk]


class _Final(ByOperators):
    """The final states as rows, by those, amplitudes, duration and the chain's tensors. needed: by which there are gradients."""

    def __init__(self, stepper: SplitSteps, chain: Chain, needed: tuple[bool, ...]) -> None:
        self.stepper, self.chain, self.needed = stepper, chain, needed
        self.kept: _Kept | None = None

    def _chunk(self, inputs: Sequence[torch.Tensor], first: int, size: int, needed: Sequence[bool]) -> _Chunk:
        """The chunk that begins with step `first`, differentiable in those of all tensors but the columns that need it."""
        steps = len(inputs[0])
        given = [inputs[0][first : first + size], *inputs[1:]]
        leaves = [
            tensor.detach().requires_grad_(wanted) for tensor, wanted in zip(given, needed, strict=True)
        ]
        chain = self.chain.with_tensors(*leaves[2:])
        with torch.set_grad_enabled(any(needed)), span("pulses.gates"):
            return _Chunk(leaves, self.stepper.made(chain, leaves[0], leaves[1] / steps))

    def forward(self, tensors: Sequence[torch.Tensor]) -> _Kept:
        """The final state."""
        (columns, *inputs), machine = tensors, self.stepper.machine(self.chain)
        state = machine.enter(columns.detach(), self.stepper.gates(self.chain, 1)[0])
        steps, size = len(inputs[0]), self.stepper.chunk(self.chain, len(columns))
        for first in range(0, steps, size):
            # The gates of the last chunk are the first that the backward pass needs, and are not made twice.
            last = first + size >= steps
            chunk = self._chunk(inputs, first, size, [last and each for each in self.needed[1:]])
            with span("pulses.forward"):
                gates, _ = self.stepper.gates(self.chain, len(chunk.leaves[0]))
                state = machine.forward(gates, chunk.made.detach().flatten(), state)
        return state, chunk

    def gradients(
        self, cotangent: torch.Tensor, tensors: Sequence[torch.Tensor], kept: _Kept
    ) -> Iterator[torch.Tensor]:
        """The gradients that are needed."""
        (columns, *inputs), machine = tensors, self.stepper.machine(self.chain)
        size = self.stepper.chunk(self.chain, len(columns))
        # What is kept serves further backward passes too.
        state, cotangent = kept[0].clone(), machine.enter(cotangent, self.stepper.gates(self.chain, 1)[0])
        totals = [
            torch.zeros_like(tensor) if wanted else None
            for tensor, wanted in zip(inputs, self.needed[1:], strict=True)
        ]
        for first in reversed(range(0, len(inputs[0]), size)):
            last = first + size >= len(inputs[0])
            chunk = kept[1] if last else self._chunk(inputs, first, size, self.needed[1:])
            with span("pulses.backward"):
                gates, changing = self.stepper.gates(self.chain, len(chunk.leaves[0]))
                made = chunk.made.detach().flatten()
                # What does not change with the amplitudes has a gradient only where something else needs it.
                wanted = len(made) if any(leaf.requires_grad for leaf in chunk.leaves[1:]) else changing
                state, cotangent, to_made = machine.backward(gates, made, state, cotangent, wanted)
            parts = [None if totals[0] is None else totals[0][first : first + size], *totals[1:]]
            pairs = [(part, leaf) for part, leaf in zip(parts, chunk.leaves, strict=True) if part is not None]
            if pairs:
                with span("pulses.gates"):
                    value = paired(chunk.made, to_made.view_as(chunk.made))
                    # The graph is kept for a second backward pass, as the last chunk is.
                    found = torch.autograd.grad(
                        value, [leaf for _, leaf in pairs], retain_graph=True, materialize_grads=True
                    )
                for (part, _), gradient in zip(pairs, found, strict=True):
                    part += gradient
        if self.needed[0]:
            yield machine.leave(cotangent, len(columns))
        yield from (total for total in totals if total is not None)

    def plainly(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Final columns by torch's operators, all steps at once; under torch.func.

        Raises:
            UserError: the matrices of the steps are too large.
        """
        columns, amplitudes, duration, *others = tensors
        chain = self.chain.with_tensors(*others)
        if chain.dimension > MOST_PLAIN:
            raise UserError(
                f"pulses: second derivatives and forward mode keep matrices of all product states, at most {MOST_PLAIN}, and "
                f"this chain has {chain.dimension}; use first derivatives"
            )
        made = self.stepper.unitaries(chain, amplitudes, duration / len(amplitudes))
        while len(made) > 1:
            pairs = made[1::2] @ made[: len(made) // 2 * 2 : 2]
            made = torch.cat([pairs, made[-1:]]) if len(made) % 2 else pairs
        return (columns @ made[0].mT,)

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kept = self.forward(tensors)
        self.kept = kept if any(self.needed) else None
        return (self.stepper.machine(self.chain).leave(kept[0], len(tensors[0])),)

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], needed: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        asked = _Final(self.stepper, self.chain, tuple(needed))
        serves = all(own or not wanted for own, wanted in zip(self.needed, needed, strict=True))
        found = iter(applied(_Gradient(asked, self.kept if serves else None), *cotangents, *tensors))
        return [next(found) if wanted else None for wanted in needed]


class _Gradient(ByOperators):
    """The gradients by the tensors of `_Final` that are needed, by its cotangent and its tensors. kept: by its call."""

    def __init__(self, final: _Final, kept: _Kept | None) -> None:
        self.final, self.kept = final, kept

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cotangent, *given = tensors
        return tuple(self.final.gradients(cotangent, given, self.kept or self.final.forward(given)))

    def plainly(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cotangent, *given = tensors
        found = torch.func.vjp(self.final.plainly, *given)[1]((cotangent,))
        return tuple(each for each, wanted in zip(found, self.final.needed, strict=True) if wanted)


class WholeSpace(Integrator):
    """Commutator-free Magnus steps, whose exponentials are the exact propagator's of the whole system.

    Each is exp(-i h sum_m w_m H(t_m)) with t_m the nodes of a Gauss quadrature: a segment of the duration h sum_m w_m.
    """

    kernel = "dense"

    def segments(self, amplitudes: torch.Tensor, duration: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The controls (segments, drives) of the exponentials of all steps, and their durations (segments,)."""
        weights = amplitudes.new_tensor(self.scheme.weights)
        shares = weights.sum(1)
        controls = torch.einsum("em,smk->sek", weights / shares[:, None], amplitudes)
        return controls.flatten(0, 1), (duration / len(amplitudes) * shares).repeat(len(amplitudes))

    def columns(
        self,
        system: System,
        amplitudes: torch.Tensor,
        duration: torch.Tensor,
        columns: torch.Tensor,
        parameters: torch.Tensor | None,
    ) -> torch.Tensor:
        """See `Integrator.evolve`."""
        controls, durations = self.segments(amplitudes, duration)
        tasks = Tasks(controls[None], durations[None], None, parameters, columns)
        # Not strict: durations may be negative, and what has diverged is not a number.
        exactly = Batched(route=self._route(columns.device), strict=False)
        return exactly.columns(system, tasks)[0]

    def code(self, device: torch.device) -> CodeKind:
        """See `Integrator.code`."""
        return "table" if self._route(device) == "compiled" else "torch"

    def _route(self, device: torch.device) -> Route:
        compiled = self.route == "compiled" or (self.route == "auto" and device.type == "cpu")
        return "compiled" if compiled else "torch"
