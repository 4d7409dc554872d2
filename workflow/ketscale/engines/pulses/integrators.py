"""Evolution in steps: the integrator of a name, and what evolves tasks by one, also under pulses with carriers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from numpy.typing import ArrayLike

from ketscale.engines.dynamics.generators import substeps
from ketscale.engines.dynamics.methods import Route
from ketscale.engines.dynamics.propagators import Batched, as_observables, check_route, check_step, compiles
from ketscale.engines.dynamics.system import System
from ketscale.engines.dynamics.tasks import Tasks, check_tasks, check_values
from ketscale.engines.evolved import CodeKind, Evolved, Kernel
from ketscale.engines.pulses import plain
from ketscale.engines.pulses.chain import Chain
from ketscale.engines.pulses.drives import Pulses
from ketscale.engines.pulses.evolution import evolve_columns
from ketscale.engines.pulses.schemes import SIMULATORS, MagnusScheme, Scheme
from ketscale.engines.pulses.splitting import Gates
from ketscale.errors import UserError
from ketscale.private_torch import is_mapped, transforms_active
from ketscale.shapes import Complex128, Float, Float64


def step_count(pulses: Pulses, dt: float) -> int:
    """The fewest steps of pulses that are no longer than dt, as many in each of their segments.

    Raises:
        UserError: dt makes too many, or torch.func.vmap maps the length.
    """
    if is_mapped(pulses.duration):
        raise UserError("dt: pulses of several lengths, as of torch.func.vmap, have no one number of steps")
    duration, parts = pulses.duration.item(), pulses.envelope.divisions
    substeps(duration, dt)  # raises if all segments together have too many
    return parts * substeps(duration / parts, dt)


@dataclass(frozen=True)
class Integrator:
    """Evolves columns under a system's Hamiltonian from time 0 to a duration, in equal steps.

    method: its name in `schemes.SIMULATORS`. steps: how many. route: compiled: with machine code for this processor, for CPU
        tensors only; torch: with torch's operators; auto: compiled for CPU tensors, else torch.
    """

    method: str
    steps: int
    route: Route = "auto"

    @property
    def scheme(self) -> Scheme | MagnusScheme:
        """Its coefficients."""
        return SIMULATORS[self.method]

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
        in these in Hermitian directions. First ones of a splitting have a memory that does not grow with steps; further ones,
        and forward mode, keep every state.

        Raises:
            UserError: a splitting cannot read the system (`Chain.of`).
        """
        duration = torch.as_tensor(duration, dtype=torch.float64, device=amplitudes.device)
        compiled = compiles(self.route, columns.device)
        if isinstance(self.scheme, MagnusScheme):
            controls, durations = exponentials(self.scheme, amplitudes, duration)
            tasks = Tasks(controls[None], durations[None], None, parameters, columns)
            # Not strict: durations may be negative, and what has diverged is not a number.
            exactly = Batched(route="compiled" if compiled else "torch", strict=False)
            return exactly.columns(system, tasks)[0]
        chain = Chain.of(system, amplitudes.device, parameters)
        gates = Gates.of(self.scheme, (chain.levels, chain.sites, chain.pairs))
        machine: ModuleType = plain
        if compiled:
            from ketscale.engines.pulses import cpu

            machine = cpu
        return evolve_columns(gates, machine, chain, amplitudes, duration, columns)


def exponentials(
    scheme: MagnusScheme, amplitudes: torch.Tensor, duration: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The controls (exponentials, drives) of commutator-free Magnus steps of the whole system, and their durations.

    Each is exp(-i h sum_m w_m H(t_m)) with t_m the nodes of a Gauss quadrature: a segment of the duration h sum_m w_m.
    """
    weights = amplitudes.new_tensor(scheme.weights)
    shares = weights.sum(1)
    controls = torch.einsum("em,smk->sek", weights / shares[:, None], amplitudes)
    return controls.flatten(0, 1), (duration / len(amplitudes) * shares).repeat(len(amplitudes))


@dataclass(frozen=True)
class Stepped:
    """Evolves the kets of closed tasks, one task after the other, in steps of at most `dt` by an integrator.

    method: the integrator's name. route: see `Integrator`. pulses: with carriers, which play instead of the tasks' controls,
        whose values then do not matter, and whose segments are the parts between whose ends a trajectory has states. Under
        them `whole-space` evolves open tasks too.

    Raises:
        UserError: there is no step, or no such route.
    """

    method: str
    dt: float | None = None
    route: Route = "auto"
    pulses: Pulses | None = None

    def __post_init__(self) -> None:
        check_step(self.method, self.dt)
        check_route(self.route)

    def columns(self, system: System, tasks: Tasks, trajectory: bool = False) -> torch.Tensor:
        """See `Batched.columns`; under pulses what has diverged is not a number.

        Raises:
            UserError: see `Chain.of`; or the numbers are not in fp64, or so large that states are not finite.
        """
        check_tasks(system, tasks, strict=True, columns=True)
        check_values(tasks)
        controls, parameters, initial = tasks.controls, tasks.parameters, tasks.initial
        if controls.dtype != torch.float64:
            raise UserError(f"method: {self.method} computes in torch.float64, and not in {controls.dtype}")
        steps, lengths = self._steps(tasks, trajectory)
        count, parts = lengths.shape
        if initial is None:
            initial = torch.eye(system.dimension, dtype=torch.complex128, device=controls.device)
        initial = initial.expand(count, -1, -1)
        if not count:
            return initial[:, None].expand(-1, 1 + parts, -1, -1) if trajectory else initial
        results = []
        several = parameters if parameters is not None and parameters.ndim > 1 else [parameters]
        for member in range(count):
            own = several[member % len(several)]
            states = [initial[member]]
            for sampled, length in self._parts(steps, controls[member], lengths[member]):
                states.append(steps.evolve(system, sampled, length, states[-1], own))
            results.append(torch.stack(states) if trajectory else states[-1])
        final = torch.stack(results)
        looked_at = self.pulses is None and not transforms_active()
        if looked_at and not math.isfinite(torch.view_as_real(final.detach()).sum()):
            raise UserError(
                f"controls or parameters: too large for {self.method} in a segment of {tasks.segment:.4g}; use smaller ones, or a "
                "rotating frame"
            )
        return final

    def state(self, system: System, tasks: Tasks, trajectory: bool = False) -> torch.Tensor:
        """See `Batched.state`."""
        segments, stride = self._segments(system, tasks)
        states = Batched(route=self.route, strict=False).state(system, segments, trajectory)
        return states[:, ::stride] if trajectory else states

    def expval(
        self, system: System, tasks: Tasks, observables: ArrayLike, trajectory: bool = False
    ) -> torch.Tensor:
        """See `Batched.expval`."""
        matrices = as_observables(observables, system, tasks.controls)
        return torch.einsum("...ij,oji->...o", self.state(system, tasks, trajectory), matrices).real

    def _steps(self, tasks: Tasks, separate: bool) -> tuple[Integrator, torch.Tensor]:
        """The integrator of a part, and the lengths (tasks, parts): of segments if `separate` or unequal, else of all."""
        assert self.dt is not None
        controls, per = tasks.controls, substeps(tasks.segment, self.dt)
        count, segments, _ = controls.shape
        length = torch.as_tensor(tasks.duration, dtype=controls.dtype, device=controls.device)
        if tasks.by_segment:
            if self.pulses is not None and not transforms_active():
                divisions, ends = self.pulses.envelope.divisions, length.detach().cumsum(-1)
                ends = ends * (divisions / ends[..., -1:])
                if (((ends - ends.round()).abs() < 1e-9).sum(-1) < divisions).any():
                    raise UserError(
                        "lengths: each segment of the pulses must end where a part ends; leave them out, or divide segments"
                    )
            return Integrator(self.method, per, self.route), length.expand(count, segments)
        parts = segments if separate else 1
        lengths = (length / parts).expand(count)[:, None].expand(count, parts)
        return Integrator(self.method, per * segments // parts, self.route), lengths

    def _parts(
        self, steps: Integrator, controls: torch.Tensor, lengths: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The amplitudes (steps, stages, controls) of each part of a task, and the part's length."""
        begin: Any = 0.0
        for part, length in zip(controls.chunk(len(lengths)), lengths, strict=True):
            if self.pulses is None:
                sampled = part.repeat_interleave(steps.steps // len(part), 0)[:, None]
                yield sampled.expand(-1, len(steps.scheme.nodes), -1), length
            else:
                yield self.pulses.sample(begin + steps.times(length)), length
            begin = begin + length

    def _segments(self, system: System, tasks: Tasks) -> tuple[Tasks, int]:
        """Tasks whose controls are those of all exponentials, and how many of these a part has."""
        # What is given is checked here: some exponentials go back in time, which a strict propagator rejects.
        check_tasks(system, tasks, strict=True)
        check_values(tasks)
        steps, lengths = self._steps(tasks, separate=True)
        assert isinstance(steps.scheme, MagnusScheme)
        pairs = [
            [exponentials(steps.scheme, *part) for part in self._parts(steps, controls, own)]
            for controls, own in zip(tasks.controls, lengths, strict=True)
        ]
        controls, durations = (
            torch.stack([torch.cat([part[which] for part in parts]) for parts in pairs]) for which in (0, 1)
        )
        rates, stride = tasks.rates, controls.shape[1] // lengths.shape[1]
        if rates is not None and rates.ndim > 2:
            rates = rates.repeat_interleave(stride, 1)
        return tasks._replace(controls=controls, duration=durations, rates=rates), stride


def evolution(system: System, method: str, route: Route, steps: int | None, device: torch.device) -> Evolved:
    """What evolves columns of a system on a device in so many steps; see `Integrator`."""
    dense = isinstance(SIMULATORS[method], MagnusScheme)
    kernel: Kernel = "dense" if dense else "chain"
    code: CodeKind = "torch" if not compiles(route, device) else "table" if dense else "compiled"
    return Evolved(kernel=kernel, method=method, code=code, states=system.dimension, steps=steps)
