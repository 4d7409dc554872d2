"""Columns carried through the steps of a splitting, and the reversible adjoint: memory does not grow with steps.

States are columns (d, k), as everywhere in dynamics; only here and in the kernels, whose lanes they are, are they rows (k, d).

The steps are unitary, so the backward pass recomputes the states from the final one by inverse steps, and carries the
cotangent along. Both passes take the steps in chunks. What does not depend on the columns (`Gates.buffer`) is made once in a
chunk, for all columns, by differentiable operations, so that the cotangents that the backward pass finds for it become those
of amplitudes, duration and chain by autograd: the gradient of the discrete steps, not of the continuous equation.

Second derivatives and forward mode go through the matrices of the same steps by torch's operators
(`Gates.unitaries`), which are kept. Under torch.func.vmap there is a call for each copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import NamedTuple

import torch

from ketscale.autograd_function import applied
from ketscale.engines.derivatives import ByOperators, paired
from ketscale.engines.dynamics.plain import product
from ketscale.engines.pulses.chain import Chain
from ketscale.engines.pulses.splitting import Gates, sequence
from ketscale.errors import UserError
from ketscale.private_torch import transforms_active
from ketscale.spans import span

# Product states of a chain whose steps are matrices for second derivatives: 200 steps of that size take some GiB.
MOST_PLAIN = 256


def evolve_columns(
    gates: Gates,
    machine: ModuleType,
    chain: Chain,
    amplitudes: torch.Tensor,
    duration: torch.Tensor,
    columns: torch.Tensor,
) -> torch.Tensor:
    """Final columns (d, k); see `integrators.Integrator.evolve`.

    machine: what applies gates to columns, and exponentiates the sites' Hamiltonians: `plain`, or `cpu`.
    """
    tensors = (columns.mT, amplitudes, duration, *chain.tensors)
    recorded = torch.is_grad_enabled() or transforms_active()
    needs = tuple(recorded and tensor.requires_grad for tensor in tensors)
    (final,) = applied(_Final(gates, machine, chain, needs), *tensors)
    return final.mT


class _Chunk(NamedTuple):
    """What a chunk of steps needs, and the tensors that it was made from."""

    leaves: list[torch.Tensor]  # the chunk's amplitudes, the duration and the tensors of the chain
    unitaries: torch.Tensor


# What a backward pass begins with: the final state, and the last chunk.
_Saved = tuple[torch.Tensor, _Chunk]


class _Final(ByOperators):
    """The final states as rows, by those, amplitudes, duration and the chain's tensors. needs: those with gradients."""

    def __init__(self, gates: Gates, machine: ModuleType, chain: Chain, needs: tuple[bool, ...]) -> None:
        self.gates, self.machine, self.chain, self.needs = gates, machine, chain, needs
        self.saved: _Saved | None = None

    def _chunk(self, inputs: Sequence[torch.Tensor], first: int, size: int, needs: Sequence[bool]) -> _Chunk:
        """The chunk that begins with step `first`, differentiable in those of all tensors but the columns that need it."""
        steps = len(inputs[0])
        part = [inputs[0][first : first + size], *inputs[1:]]
        leaves = [tensor.detach().requires_grad_(own) for tensor, own in zip(part, needs, strict=True)]
        chain = self.chain.with_tensors(*leaves[2:])
        with torch.set_grad_enabled(any(needs)), span("pulses.gates"):
            return _Chunk(
                leaves, self.gates.buffer(chain, leaves[0], leaves[1] / steps, self.machine.unitary)
            )

    def forward(self, tensors: Sequence[torch.Tensor]) -> _Saved:
        """The final state."""
        columns, *inputs = tensors
        state = self.machine.enter(columns.detach(), sequence(self.gates, 1))
        steps, size = len(inputs[0]), self.gates.chunk(len(columns))
        for first in range(0, steps, size):
            # The gates of the last chunk are the first that the backward pass needs, and are not made twice.
            last = first + size >= steps
            chunk = self._chunk(inputs, first, size, [last and each for each in self.needs[1:]])
            with span("pulses.forward"):
                gates = sequence(self.gates, len(chunk.leaves[0]))
                state = self.machine.forward(gates, chunk.unitaries.detach().flatten(), state)
        return state, chunk

    def gradients(
        self, cotangent: torch.Tensor, tensors: Sequence[torch.Tensor], saved: _Saved
    ) -> Iterator[torch.Tensor]:
        """The gradients that are needed."""
        (columns, *inputs), machine = tensors, self.machine
        size = self.gates.chunk(len(columns))
        # What is kept serves further backward passes too.
        state, cotangent = saved[0].clone(), machine.enter(cotangent, sequence(self.gates, 1))
        totals = [
            torch.zeros_like(tensor) if need else None
            for tensor, need in zip(inputs, self.needs[1:], strict=True)
        ]
        for first in reversed(range(0, len(inputs[0]), size)):
            last = first + size >= len(inputs[0])
            chunk = saved[1] if last else self._chunk(inputs, first, size, self.needs[1:])
            with span("pulses.backward"):
                count, unitaries = len(chunk.leaves[0]), chunk.unitaries.detach().flatten()
                # What does not change with the amplitudes has a gradient only where something else needs it.
                constant = not any(leaf.requires_grad for leaf in chunk.leaves[1:])
                need = self.gates.own(count) if constant else len(unitaries)
                steps = sequence(self.gates, count)
                state, cotangent, to_gates = machine.backward(steps, unitaries, state, cotangent, need)
            parts = [None if totals[0] is None else totals[0][first : first + size], *totals[1:]]
            pairs = [(part, leaf) for part, leaf in zip(parts, chunk.leaves, strict=True) if part is not None]
            if pairs:
                with span("pulses.gates"):
                    value = paired(chunk.unitaries, to_gates.view_as(chunk.unitaries))
                    # The graph is kept for a second backward pass, as the last chunk is.
                    gradients = torch.autograd.grad(
                        value, [leaf for _, leaf in pairs], retain_graph=True, materialize_grads=True
                    )
                for (part, _), gradient in zip(pairs, gradients, strict=True):
                    part += gradient
        if self.needs[0]:
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
        return (columns @ product(self.gates.unitaries(chain, amplitudes, duration / len(amplitudes))).mT,)

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        saved = self.forward(tensors)
        self.saved = saved if any(self.needs) else None
        return (self.machine.leave(saved[0], len(tensors[0])),)

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], needs: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        final = _Final(self.gates, self.machine, self.chain, tuple(needs))
        serves = all(own or not need for own, need in zip(self.needs, needs, strict=True))
        gradients = iter(applied(_Gradient(final, self.saved if serves else None), *cotangents, *tensors))
        return [next(gradients) if need else None for need in needs]


class _Gradient(ByOperators):
    """The gradients by the tensors of `_Final` in `needs`, by its cotangent and its tensors. saved: by its call."""

    def __init__(self, final: _Final, saved: _Saved | None) -> None:
        self.final, self.saved = final, saved

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cotangent, *point = tensors
        return tuple(self.final.gradients(cotangent, point, self.saved or self.final.forward(point)))

    def plainly(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cotangent, *point = tensors
        gradients = torch.func.vjp(self.final.plainly, *point)[1]((cotangent,))
        return tuple(each for each, need in zip(gradients, self.final.needs, strict=True) if need)
