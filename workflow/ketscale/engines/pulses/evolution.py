"""Columns carried through the steps of a method, and the reversible adjoint: memory does not grow with steps.

The steps are unitary, so the backward pass recomputes the states from the final one by inverse steps, and carries the
cotangent along. Both passes take the steps in chunks. What does not depend on the columns (`Method.made`: gates or
Hamiltonians) is made once in a chunk, for all columns, by differentiable operations, so that the cotangents that
`Method.backward` finds for it become those of amplitudes, duration and lattice by autograd: the gradient of the
discrete steps, not of the continuous equation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import torch

from ketscale.engines.pulses.lattice import Lattice
from ketscale.errors import UserError
from ketscale.measure.spans import span


class Method(Protocol):
    """Unitary steps, a chunk of them at a time. A state holds columns in a layout of the method's own."""

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
        self, lattice: Lattice, steps: int, made: torch.Tensor, state: torch.Tensor, cotangent: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The state before the steps, its cotangent and that of `made`, from the state after them and its cotangent."""
        ...


def evolve(
    method: Method,
    lattice: Lattice,
    amplitudes: torch.Tensor,
    duration: torch.Tensor,
    columns: torch.Tensor,
) -> torch.Tensor:
    """Final columns; see `integrators.Integrator.evolve`."""
    tensors = (lattice.energies, lattice.couplings, lattice.drives)
    final: torch.Tensor = _Evolve.apply(method, lattice, columns, amplitudes, duration, *tensors)
    return final


def with_tensors(lattice: Lattice, tensors: tuple[torch.Tensor, ...]) -> Lattice:
    """The lattice with other energies, couplings and drives."""
    return replace(lattice, energies=tensors[0], couplings=tensors[1], drives=tensors[2])


class _Evolve(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, method: Method, lattice: Lattice, columns: torch.Tensor, *inputs: torch.Tensor
    ) -> torch.Tensor:
        amplitudes, duration, *tensors = (tensor.detach() for tensor in inputs)
        still = with_tensors(lattice, tuple(tensors))
        steps, chunk = len(amplitudes), method.chunk(lattice, len(columns))
        state = method.enter(lattice, columns.detach())
        for part in amplitudes.split(chunk):
            with span("pulses.gates"):
                made = method.made(still, part, duration / steps)
            with span("pulses.forward"):
                state = method.forward(still, len(part), made, state)
        ctx.method, ctx.lattice, ctx.chunk, ctx.columns = method, still, chunk, len(columns)
        ctx.save_for_backward(state, *inputs)
        return method.leave(lattice, state, len(columns))

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise UserError("pulses: integrators have first derivatives only; leave out create_graph=True")
        method, lattice = ctx.method, ctx.lattice
        state, *inputs = ctx.saved_tensors
        wanted = ctx.needs_input_grad[3:]
        # A method may overwrite what it is given, and the saved state serves a second backward pass too.
        state = state.clone()
        cotangent = method.enter(lattice, cotangent)
        amplitudes, *others = (
            tensor.detach().requires_grad_(want) for tensor, want in zip(inputs, wanted, strict=True)
        )
        to_amplitudes = torch.zeros_like(amplitudes)
        totals = [torch.zeros_like(tensor) if tensor.requires_grad else None for tensor in others]
        for first in reversed(range(0, len(amplitudes), ctx.chunk)):
            part = amplitudes[first : first + ctx.chunk].detach().requires_grad_(wanted[0])
            with torch.enable_grad(), span("pulses.gates"):
                still = with_tensors(lattice, tuple(others[1:]))
                made = method.made(still, part, others[0] / len(amplitudes))
            with span("pulses.backward"):
                state, cotangent, to_made = method.backward(
                    lattice, len(part), made.detach(), state, cotangent
                )
            with span("pulses.gates"):
                _accumulate(made, to_made, part, others, to_amplitudes[first : first + len(part)], totals)
        return None, None, method.leave(lattice, cotangent, ctx.columns), to_amplitudes, *totals


def _accumulate(
    made: torch.Tensor,
    to_made: torch.Tensor,
    part: torch.Tensor,
    others: list[torch.Tensor],
    to_part: torch.Tensor,
    totals: list[torch.Tensor | None],
) -> None:
    """Write the gradient by a chunk's amplitudes, and add those by the other inputs to their totals."""
    if not made.requires_grad:
        return
    leaves = [tensor for tensor in (part, *others) if tensor.requires_grad]
    found = iter(torch.autograd.grad(made, leaves, to_made, allow_unused=True))
    if part.requires_grad:
        gradient = next(found)
        if gradient is not None:
            to_part.copy_(gradient)
    for total in totals:
        if total is not None:
            gradient = next(found)
            if gradient is not None:
                total += gradient
