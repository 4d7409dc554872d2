"""The published way to evolve tasks, as a baseline: one after the other, operator by operator, on the density matrix.

Written from the description of the public code, none of which is here: a Lindblad right-hand side of small complex
matrices, Euler or RK4 steps, and after each of them the trace tested and divided by on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ketscale.engines.dynamics.generators import Scheme, substeps
from ketscale.engines.dynamics.propagators import Propagator, check_step
from ketscale.engines.dynamics.system import Operators, System
from ketscale.engines.dynamics.tasks import Tasks, as_complex, check_tasks, default_parameters
from ketscale.engines.evolved import Evolved
from ketscale.errors import UserError
from ketscale.spans import span

SMALLEST_TRACE = 1e-10

Slope = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class PublishedLoop(Propagator):
    """A loop over tasks, segments and steps of length `dt`, differentiated by backpropagation.

    It was published in single precision (complex64); here the precision is the controls'. Values are not checked.

    An initial operator keeps its trace, whatever it is; the published one is 1.

    cache: whether what is created for a task is kept for its next evaluation, as published. The key is the task's numbers
        and the system. Tasks whose rates, parameters or initial states have gradients are created again in each evaluation.

    Raises:
        UserError: there is no step, or the scheme is exact.
    """

    scheme: Scheme
    dt: float | None = None
    cache: bool = False
    strict: bool = field(default=False, init=False, repr=False)
    _cache: dict[Any, _Created] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.scheme == "exact":
            raise UserError("scheme: the published loop has rk4 and euler only")
        check_step(self.scheme, self.dt)

    def state(self, system: System, tasks: Tasks) -> torch.Tensor:
        """See `Propagator.state`."""
        check_tasks(system, tasks, strict=False)
        if isinstance(tasks.duration, torch.Tensor) or tasks.varied or system.differentiated:
            raise UserError(
                "the published loop needs a numeric duration, constant rates and fixed operators; use another propagator"
            )
        if len(tasks.controls) == 0:
            dtype = tasks.controls.dtype.to_complex()
            return tasks.controls.sum().to(dtype).expand(0, system.dimension, system.dimension)
        created = self._created(system, tasks)
        return torch.stack([self._one(tasks, task, each) for task, each in enumerate(created)])

    def evolution(self, system: System, tasks: Tasks) -> Evolved:
        """See `Batched.evolution`."""
        assert self.dt is not None  # checked at the start
        states, steps = system.dimension, _steps(tasks.segment, self.dt)
        return Evolved(kernel="dense", method=self.scheme, code="loop", states=states, steps=steps)

    def _created(self, system: System, tasks: Tasks) -> list[_Created]:
        numbers = range(len(tasks.controls))
        inputs = (tasks.rates, tasks.parameters, tasks.initial)
        with span("dynamics.creation"):
            if not self.cache or any(part is not None and part.requires_grad for part in inputs):
                return [_Created.of(system, tasks, task) for task in numbers]
            keys = [_key(system, tasks, task) for task in numbers]
            for task, key in enumerate(keys):
                if key not in self._cache:
                    self._cache[key] = _Created.of(system, tasks, task)
            return [self._cache[key] for key in keys]

    def _one(self, tasks: Tasks, task: int, created: _Created) -> torch.Tensor:
        assert self.dt is not None  # checked at the start
        rho, steps = created.initial, _steps(tasks.segment, self.dt)
        start = torch.trace(rho).real
        for amplitudes in tasks.controls[task]:
            slope = created.slope(amplitudes)
            for _ in range(steps):
                rho = self._step(slope, rho, tasks.segment / steps)
                trace = torch.trace(rho).real
                if torch.isnan(trace):
                    return rho
                if abs(trace.item()) > SMALLEST_TRACE:
                    rho = rho / (trace / start)
        return rho

    def _step(self, slope: Slope, rho: torch.Tensor, h: float) -> torch.Tensor:
        k1 = slope(rho)
        if self.scheme == "euler":
            return rho + h * k1
        k2 = slope(rho + h / 2 * k1)
        k3 = slope(rho + h / 2 * k2)
        k4 = slope(rho + h * k3)
        return rho + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def _steps(segment: float, dt: float) -> int:
    """The number of equal steps of a segment: as many of length `dt` as fit, as the published code counts them.

    Raises:
        UserError: dt is longer than the segment, or more than `MOST_STEPS` fit.
    """
    substeps(segment, dt)
    # The quotient of 0.3 and 0.1 is a hair below 3.
    steps = math.floor(segment / dt * (1 + 1e-12))
    if steps < 1:
        raise UserError(f"dt: {dt} is longer than a segment of {segment:.6g}; use at most that")
    return steps


def _key(system: System, tasks: Tasks, task: int) -> tuple[Any, ...]:
    """The system, the precision and device, and a task's numbers."""
    parts = [None if part is None else part.tolist() for part in _own(tasks, task)]
    return system, tasks.controls.dtype, tasks.controls.device, str(parts)


def _own(tasks: Tasks, task: int) -> list[torch.Tensor | None]:
    """A task's rates, parameters and initial state, of which some hold for all tasks."""
    rows = ((tasks.rates, 1), (tasks.parameters, 1), (tasks.initial, 2))
    return [part[task] if part is not None and part.ndim > dimensions else part for part, dimensions in rows]


class _Created(NamedTuple):
    """What is created for a task."""

    initial: torch.Tensor
    drift: torch.Tensor
    controls: list[torch.Tensor]
    jumps: list[torch.Tensor]

    @classmethod
    def of(cls, system: System, tasks: Tasks, task: int) -> _Created:
        rates, parameters, initial = _own(tasks, task)

        def tensors(operators: Operators) -> list[torch.Tensor]:
            return [as_complex(operator, tasks.controls) for operator in operators.values()]

        drift = as_complex(torch.zeros(system.dimension, system.dimension), tasks.controls)
        if initial is None:
            initial = drift.clone()
            initial[0, 0] = 1
        else:
            initial = initial.clone()  # what is kept must not change with the caller's tensor
        if parameters is None:
            parameters = default_parameters(system, tasks.controls)
        for value, operator in zip(parameters, tensors(system.drift), strict=True):
            drift = drift + value * operator
        jumps = []
        if rates is not None:
            jumps = [torch.sqrt(rate) * each for rate, each in zip(rates, tensors(system.jumps), strict=True)]
        return cls(initial, drift, tensors(system.controls), jumps)

    def slope(self, amplitudes: torch.Tensor) -> Slope:
        """The Lindblad right-hand side under these controls."""
        hamiltonian = self.drift
        for amplitude, operator in zip(amplitudes, self.controls, strict=True):
            hamiltonian = hamiltonian + amplitude * operator

        def slope(rho: torch.Tensor) -> torch.Tensor:
            slope = -1j * (hamiltonian @ rho - rho @ hamiltonian)
            for jump in self.jumps:
                adjoint = jump.mH
                square = adjoint @ jump
                slope = slope + jump @ rho @ adjoint - 0.5 * (square @ rho + rho @ square)
            return slope

        return slope
