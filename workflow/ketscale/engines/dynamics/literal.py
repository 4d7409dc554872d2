"""The published way to evolve tasks, as a baseline: one after the other, operator by operator, on the density matrix.

Written from the description of the public code, none of which is here: a Lindblad right-hand side of small complex
matrices, Euler or RK4 steps, and after each of them the trace tested and divided by on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from numpy.typing import ArrayLike

from ketscale.engines.dynamics.evolution import substeps
from ketscale.engines.dynamics.methods import Scheme
from ketscale.engines.dynamics.propagators import as_observables, check_step
from ketscale.engines.dynamics.system import Operators, System
from ketscale.engines.dynamics.tasks import Tasks, as_complex, check_tasks, usual_parameters
from ketscale.errors import UserError

SMALLEST_TRACE = 1e-10

Slope = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Literal:
    """A loop over tasks, segments and steps of length `dt`, differentiated by backpropagation.

    It was published in single precision (complex64); here the precision is the controls'.

    Raises:
        UserError: there is no step, or the scheme is exact.
    """

    scheme: Scheme
    dt: float | None = None

    def __post_init__(self) -> None:
        if self.scheme == "exact":
            raise UserError("scheme: the published loop has rk4 and euler only")
        check_step(self.scheme, self.dt)

    def state(self, system: System, tasks: Tasks) -> torch.Tensor:
        """See `Propagator.state`."""
        check_tasks(system, tasks)
        if len(tasks.controls) == 0:
            dtype = tasks.controls.dtype.to_complex()
            return tasks.controls.sum().to(dtype).expand(0, system.dimension, system.dimension)
        return torch.stack([self._one(system, tasks, task) for task in range(len(tasks.controls))])

    def expval(self, system: System, tasks: Tasks, observables: ArrayLike) -> torch.Tensor:
        """See `Propagator.expval`."""
        given = as_observables(system, tasks, observables)
        return torch.einsum("tij,oji->to", self.state(system, tasks), given).real

    def _one(self, system: System, tasks: Tasks, task: int) -> torch.Tensor:
        assert self.dt is not None  # checked at the start
        created = _Created.of(system, tasks, task)
        rho, steps = created.initial, substeps(tasks.segment, self.dt)
        for amplitudes in tasks.controls[task]:
            slope = created.slope(amplitudes)
            for _ in range(steps):
                rho = self._step(slope, rho, tasks.segment / steps)
                trace = torch.trace(rho).real
                if torch.isnan(trace):
                    return rho
                if abs(trace.item()) > SMALLEST_TRACE:
                    rho = rho / trace
        return rho

    def _step(self, slope: Slope, rho: torch.Tensor, h: float) -> torch.Tensor:
        k1 = slope(rho)
        if self.scheme == "euler":
            return rho + h * k1
        k2 = slope(rho + h / 2 * k1)
        k3 = slope(rho + h / 2 * k2)
        k4 = slope(rho + h * k3)
        return rho + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


class _Created(NamedTuple):
    """What is made once for a task."""

    initial: torch.Tensor
    drift: torch.Tensor
    controls: list[torch.Tensor]
    jumps: list[torch.Tensor]

    @classmethod
    def of(cls, system: System, tasks: Tasks, task: int) -> _Created:
        def own(given: torch.Tensor, dimensions: int) -> torch.Tensor:
            return given[task] if given.ndim > dimensions else given

        def tensors(operators: Operators) -> list[torch.Tensor]:
            return [as_complex(operator, tasks.controls) for operator in operators.values()]

        drift = as_complex(torch.zeros(system.dimension, system.dimension), tasks.controls)
        initial = drift.clone()
        initial[0, 0] = 1
        if tasks.initial is not None:
            initial = own(tasks.initial, 2)
        parameters = usual_parameters(system, tasks.controls)
        if tasks.parameters is not None:
            parameters = own(tasks.parameters, 1)
        for value, operator in zip(parameters, tensors(system.drift), strict=True):
            drift = drift + value * operator
        jumps = []
        if tasks.rates is not None:
            rates = own(tasks.rates, 1)
            jumps = [torch.sqrt(rate) * each for rate, each in zip(rates, tensors(system.jumps), strict=True)]
        return cls(initial, drift, tensors(system.controls), jumps)

    def slope(self, amplitudes: torch.Tensor) -> Slope:
        """The Lindblad right-hand side under these controls."""
        hamiltonian = self.drift
        for amplitude, operator in zip(amplitudes, self.controls, strict=True):
            hamiltonian = hamiltonian + amplitude * operator

        def slope(rho: torch.Tensor) -> torch.Tensor:
            found = -1j * (hamiltonian @ rho - rho @ hamiltonian)
            for jump in self.jumps:
                adjoint = jump.mH
                square = adjoint @ jump
                found = found + jump @ rho @ adjoint - 0.5 * (square @ rho + rho @ square)
            return found

        return slope
