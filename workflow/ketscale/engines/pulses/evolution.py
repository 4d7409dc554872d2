"""Columns carried through the steps of a stepper, and the reversible adjoint: memory does not grow with steps.

The steps are unitary, so the backward pass recomputes the states from the final one by inverse steps, and carries the
cotangent along. Both passes take the steps in chunks. What does not depend on the columns (`SteppingMethod.made`: gates or
Hamiltonians) is made once in a chunk, for all columns, by differentiable operations, so that the cotangents that
`SteppingMethod.backward` finds for it become those of amplitudes, duration and lattice by autograd: the gradient of the
discrete steps, not of the continuous equation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import torch

from ketscale.engines.derivatives import first_derivatives_only, paired
from ketscale.engines.pulses.lattice import Lattice
from ketscale.measure.spans import span


class SteppingMethod(Protocol):
    """Unitary steps, a chunk of them at a time. A state holds columns in a layout of the stepper's own."""

    @property
    def nodes(self) -> tuple[float, ...]:
        """When a step samples the amplitudes, as fractions of the step."""
        ...

    def made(self, lattice: Lattice, amplitudes: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """All that steps with these amplitudes (steps, stages, drives) need and that columns share; differentiable.

        step: the time that a step takes, without dimensions.
        """
        ...

    def chunk(self, lattice: Lattice, columns: int) -> int:
        """How many steps to take at once."""
        ...

    def enter(self, lattice: Lattice, columns: torch.Tensor) -> torch.Tensor:
        """The state that holds columns (columns, d**n); it owns its memory."""
        ...

    def leave(self, lattice: Lattice, state: torch.Tensor, columns: int) -> torch.Tensor:
        """The inverse of `enter`."""
        ...

    def forward(self, lattice: Lattice, steps: int, made: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """The state after steps that `made` was made for; the given one may be overwritten."""
        ...

    def backward(
        self,
        lattice: Lattice,
        steps: int,
        made: torch.Tensor,
        state: torch.Tensor,
        cotangent: torch.Tensor,
        fixed: bool,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The state before the steps, its cotangent and that of `made`, from the state after them and its cotangent.

        fixed: whether the cotangent of what does not change with the amplitudes is needed; it may be 0 otherwise.
        """
        ...


def evolve(
    stepper: SteppingMethod,
    lattice: Lattice,
    amplitudes: torch.Tensor,
    duration: torch.Tensor,
    columns: torch.Tensor,
) -> torch.Tensor:
    """Final columns; see `integrators.Integrator.evolve`."""
    tensors = (lattice.energies, lattice.couplings, lattice.drives)
    inputs = [columns, amplitudes, duration, *tensors]
    if not torch.is_grad_enabled():
        inputs = [tensor.detach() for tensor in inputs]
    final: torch.Tensor = _ReversibleEvolution.apply(stepper, lattice, *inputs)
    return final


def with_tensors(lattice: Lattice, tensors: tuple[torch.Tensor, ...]) -> Lattice:
    """The lattice with other energies, couplings and drives."""
    return replace(lattice, energies=tensors[0], couplings=tensors[1], drives=tensors[2])


class _Made(NamedTuple):
    """What a chunk of steps needs, and the tensors that it was made from."""

    leaves: list[torch.Tensor]  # the chunk's amplitudes, the duration and the tensors of the lattice
    lattice: Lattice
    made: torch.Tensor

    @classmethod
    def of(cls, ctx: Any, inputs: Sequence[torch.Tensor], first: int, differentiable: bool) -> _Made:
        """What the chunk needs that begins with step `first`; differentiable in what needs gradients, or in nothing."""
        steps = len(inputs[0])
        given = [inputs[0][first : first + ctx.chunk], *inputs[1:]]
        leaves = [
            tensor.detach().requires_grad_(differentiable and wanted)
            for tensor, wanted in zip(given, ctx.needs_input_grad[3:], strict=True)
        ]
        lattice = with_tensors(ctx.lattice, tuple(leaves[2:]))
        with torch.set_grad_enabled(differentiable), span("pulses.gates"):
            return cls(leaves, lattice, ctx.stepper.made(lattice, leaves[0], leaves[1] / steps))

    @property
    def steps(self) -> int:
        """How many steps these are."""
        return len(self.leaves[0])

    @property
    def fixed(self) -> bool:
        """Whether gradients by more than the amplitudes are needed."""
        return any(leaf.requires_grad for leaf in self.leaves[1:])

    def gradients(self, to_made: torch.Tensor) -> list[torch.Tensor | None]:
        """By each leaf; None for those that do not matter."""
        found: list[torch.Tensor | None] = [None] * len(self.leaves)
        wanted = [number for number, leaf in enumerate(self.leaves) if leaf.requires_grad]
        if self.made.requires_grad:
            leaves = [self.leaves[number] for number in wanted]
            # Kept for a second backward pass, as the last chunk is.
            gradients = torch.autograd.grad(
                paired(self.made, to_made), leaves, retain_graph=True, allow_unused=True
            )
            for number, gradient in zip(wanted, gradients, strict=True):
                found[number] = gradient
        return found


class _ReversibleEvolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, stepper: SteppingMethod, lattice: Lattice, columns: torch.Tensor, *inputs: torch.Tensor
    ) -> torch.Tensor:
        still = with_tensors(lattice, tuple(tensor.detach() for tensor in inputs[2:]))
        ctx.stepper, ctx.lattice, ctx.columns = stepper, still, len(columns)
        ctx.chunk = stepper.chunk(lattice, len(columns))
        state = stepper.enter(lattice, columns.detach())
        steps = len(inputs[0])
        for first in range(0, steps, ctx.chunk):
            # The gates of the last chunk are the first that the backward pass needs, and are not made twice.
            last = first + ctx.chunk >= steps
            chunk = _Made.of(ctx, inputs, first, last and any(ctx.needs_input_grad))
            with span("pulses.forward"):
                state = stepper.forward(chunk.lattice, chunk.steps, chunk.made.detach(), state)
        ctx.last = chunk
        ctx.save_for_backward(state, *inputs)
        return stepper.leave(lattice, state, len(columns))

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        first_derivatives_only("an evolution under pulses")
        stepper = ctx.stepper
        state, *inputs = ctx.saved_tensors
        # A stepper may overwrite what it is given, and the saved state serves a second backward pass too.
        state = state.clone()
        cotangent = stepper.enter(ctx.lattice, cotangent)
        totals = [
            torch.zeros_like(tensor) if wanted else None
            for tensor, wanted in zip(inputs, ctx.needs_input_grad[3:], strict=True)
        ]
        for first in reversed(range(0, len(inputs[0]), ctx.chunk)):
            last = first + ctx.chunk >= len(inputs[0])
            chunk = ctx.last if last else _Made.of(ctx, inputs, first, True)
            with span("pulses.backward"):
                state, cotangent, to_made = stepper.backward(
                    chunk.lattice, chunk.steps, chunk.made.detach(), state, cotangent, chunk.fixed
                )
            with span("pulses.gates"):
                found = chunk.gradients(to_made)
            parts = [None if totals[0] is None else totals[0][first : first + ctx.chunk], *totals[1:]]
            for total, gradient in zip(parts, found, strict=True):
                if total is not None and gradient is not None:
                    total += gradient
        return None, None, stepper.leave(ctx.lattice, cotangent, ctx.columns), *totals
