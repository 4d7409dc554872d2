"""Evolution under pulses: in steps of at most a given length, by an integrator of a given name; and its error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch

from ketscale.engines import registered
from ketscale.engines.dynamics.methods import MOST_STEPS, Route
from ketscale.engines.dynamics.system import System
from ketscale.engines.evolved import Evolved
from ketscale.engines.pulses.drives import Pulses
from ketscale.engines.pulses.evolution import SteppingMethod
from ketscale.engines.pulses.schemes import REPLACED, SIMULATORS
from ketscale.errors import UserError
from ketscale.private_torch import is_mapped
from ketscale.shapes import Complex128, Float, Float64
from ketscale.words import suggestion

# A pulse that is longer than its steps by so little, relative to them, needs no further one.
ROUNDING = 1e-9


def evolve(
    system: System | Sequence[System],
    pulses: Pulses,
    columns: Complex128[torch.Tensor, "*#batch columns states"],
    *,
    dt: float,
    method: str = "interaction4",
    route: Route = "auto",
) -> Complex128[torch.Tensor, "*all columns states"]:
    """Columns after the pulses, from those at time 0; the errors of the integrator are `error_estimate`.

    system, columns: as for `Integrator.evolve`, batches too. dt: the longest step, ns; steps are equal and as many in
    each segment of the pulses. method, route: as for `integrator`; interaction4 is of order 4 where layers of couplings
    commute (two sites), otherwise of order 2.

    Raises:
        UserError: there would be too many steps, or as for `integrator` and `Integrator.evolve`.
    """
    steps = integrator(method, step_count(pulses, dt), route)
    duration = pulses.duration
    return steps.evolve(system, pulses.sample(steps.times(duration)), duration, columns)


@torch.no_grad()
def error_estimate(
    system: System | Sequence[System],
    pulses: Pulses,
    columns: Complex128[torch.Tensor, "*#batch columns states"],
    *,
    dt: float,
    method: str = "interaction4",
    route: Route = "auto",
) -> Float64[torch.Tensor, "*all columns"]:
    """How far each column of `evolve` with these arguments is from that of twice the steps: the norm of the difference.

    That is the error times 1 - 2^-p for an integrator of order p: 15/16 of it for order 4, 3/4 for order 2, half of it for order 1. An
    infidelity's error is at most twice as large. Rounding, some 1e-16 for each radian, is not in it. Without gradients.

    Raises:
        UserError: as for `evolve`.
    """
    count = step_count(pulses, dt)

    def final(steps: Integrator) -> torch.Tensor:
        return steps.evolve(system, pulses.sample(steps.times(pulses.duration)), pulses.duration, columns)

    coarse, fine = (final(integrator(method, number, route)) for number in (count, 2 * count))
    return torch.linalg.vector_norm(coarse - fine, dim=-1)


def step_count(pulses: Pulses, dt: float) -> int:
    """The fewest steps of pulses that are no longer than dt, as many in each of their segments.

    Raises:
        UserError: dt is not positive or makes too many, or torch.func.vmap maps the length.
    """
    duration, parts = pulses.duration, pulses.divisions
    if not dt > 0:
        raise UserError(f"dt: must be positive, not {dt}")
    if is_mapped(duration):
        raise UserError(
            "dt: pulses of several lengths have no one number of steps; use integrator(name, steps)"
        )
    wanted = duration.item() / (dt * parts) * (1 - ROUNDING)
    if not wanted * parts <= MOST_STEPS:
        raise UserError(
            f"dt: {dt:g} makes more than {MOST_STEPS:,} steps of {duration.item():g} ns; use a longer one"
        )
    return parts * max(1, math.ceil(wanted))


@dataclass(frozen=True)
class Integrator:
    """Evolves columns under a system's Hamiltonian from time 0 to `duration`, in equal steps."""

    stepper: SteppingMethod
    steps: int

    def times(self, duration: Float[torch.Tensor, ""] | float) -> Float64[torch.Tensor, "steps stages"]:
        """When the drives are sampled, (steps, stages) within [0, duration], in the system's unit of time."""
        duration = torch.as_tensor(duration, dtype=torch.float64)
        nodes = torch.tensor(self.stepper.nodes, dtype=torch.float64, device=duration.device)
        numbers = torch.arange(self.steps, dtype=torch.float64, device=duration.device)
        return (numbers[:, None] + nodes) * (duration / self.steps)

    def evolve(
        self,
        system: System | Sequence[System],
        amplitudes: Float64[torch.Tensor, "*#batch steps stages drives"],
        duration: Float[torch.Tensor, "*#batch"] | float,
        columns: Complex128[torch.Tensor, "*#batch columns states"],
        parameters: Float64[torch.Tensor, "*#batch terms"] | None = None,
    ) -> Complex128[torch.Tensor, "*all columns states"]:
        """Final columns (columns, d), from initial ones.

        amplitudes: real (steps, stages, controls) at `times`. columns: complex (columns, d). parameters: of the system's
        drift, (terms,); None: its own. Any of the five may be a batch: systems in a list, the others with a further axis in
        front; so is the result, and each member takes as long as by itself. torch.func transforms it. Derivatives of any
        order exist with respect to all tensors, duration and operators included, in these in Hermitian directions. First
        ones have a memory that does not grow with steps; further ones, and forward mode, keep every state.

        Raises:
            UserError: the shapes do not fit the system, the integrator or one another, the numbers are not in fp64, the tensors
                are on several devices, or a splitting cannot read the system (`Chain.of`).
        """
        duration = torch.as_tensor(duration, dtype=torch.float64, device=amplitudes.device)
        if parameters is not None and (
            parameters.dtype != torch.float64
            or parameters.device != amplitudes.device
            or parameters.shape[-1:]
            != (len(system.drift if isinstance(system, System) else system[0].drift),)
        ):
            raise UserError(
                "parameters: must be float64 on the amplitudes' device, a number for each term of the drift, not "
                f"{parameters.dtype} {tuple(parameters.shape)} on {parameters.device}"
            )
        given = (amplitudes, duration, columns, parameters)
        axes = (3, 0, 2, 1)  # of each in no batch
        batched = [each is not None and each.ndim > ndim for each, ndim in zip(given, axes, strict=True)]
        sizes = {len(each) for each, has in zip(given, batched, strict=True) if has and each is not None}
        if not isinstance(system, System):
            sizes.add(len(system))
        elif not sizes:
            return self._evolve(self._read(system, amplitudes, parameters), amplitudes, duration, columns)
        if len(sizes) > 1:
            raise UserError(
                f"pulses: batches must be of one size, not of {', '.join(map(str, sorted(sizes)))}"
            )
        (size,) = sizes
        rows: list[Any] = [each if has else [each] * size for each, has in zip(given, batched, strict=True)]
        if isinstance(system, System) and not batched[3]:
            # What members share is read once.
            read = [self._read(system, amplitudes, parameters)] * size
        else:
            systems = [system] * size if isinstance(system, System) else system
            read = [self._read(each, amplitudes, own) for each, own in zip(systems, rows[3], strict=True)]
        members = zip(read, *rows[:3], strict=True)
        return torch.stack([self._evolve(*member) for member in members])

    def _read(
        self, system: System, amplitudes: torch.Tensor, parameters: torch.Tensor | None
    ) -> tuple[System, Any]:
        """A system, and what the stepper reads of it."""
        return system, self.stepper.read(system, amplitudes.device, parameters)

    def _evolve(
        self,
        read: tuple[System, Any],
        amplitudes: torch.Tensor,
        duration: torch.Tensor,
        columns: torch.Tensor,
    ) -> torch.Tensor:
        system, given = read
        shape = (self.steps, len(self.stepper.nodes), len(system.controls))
        if tuple(amplitudes.shape) != shape:
            raise UserError(
                f"amplitudes: must be (steps, stages, controls) = {shape}, not {tuple(amplitudes.shape)}"
            )
        if columns.ndim != 2 or columns.shape[1] != system.dimension:
            raise UserError(
                f"columns: must be (columns, {system.dimension}) for this system, not {tuple(columns.shape)}"
            )
        if columns.dtype != torch.complex128 or amplitudes.dtype != torch.float64:
            raise UserError("pulses: integrators compute in fp64: columns are complex128, amplitudes float64")
        if amplitudes.device != columns.device:
            raise UserError(
                f"pulses: amplitudes and columns must be on one device, not on {amplitudes.device} and {columns.device}"
            )
        return self.stepper.evolve(given, amplitudes, duration, columns)


def evolution(system: System, method: str, route: Route, steps: int | None, device: torch.device) -> Evolved:
    """What evolves columns of a system on a device in so many steps; see `integrator`."""
    by = integrator(method, steps or 1, route).stepper
    code, states = by.code(device), system.dimension
    return Evolved(kernel=by.kernel, method=method, code=code, states=states, steps=steps)


def integrator(name: str, steps: int, route: Route = "auto") -> Integrator:
    """The integrator of a name (`schemes.SIMULATORS`).

    steps: how many. route: compiled: with machine code for this processor, for CPU tensors only; torch: with torch's
    operators; auto: compiled for CPU tensors, else torch.

    Raises:
        UserError: there is no such name or route, or the steps are not positive.
    """
    if name in REPLACED:
        raise UserError(f"the integrator {name} has left this version; use {REPLACED[name]}")
    if name not in SIMULATORS:
        raise UserError(f"no integrator is called {name}{suggestion(name, list(SIMULATORS))}")
    if route not in get_args(Route):
        raise UserError(f"no route is called {route}; use one of {', '.join(get_args(Route))}")
    if steps < 1:
        raise UserError(f"steps: must be at least 1, not {steps}")
    method = SIMULATORS[name]
    stepper = registered.build(method.implementation, {"scheme": method.scheme, "route": route})
    return Integrator(stepper, steps)
