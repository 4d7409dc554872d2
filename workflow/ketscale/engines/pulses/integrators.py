"""Evolution under pulses: in steps of at most a given length, by an integrator of a given name; and its error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import torch

from ketscale.engines import registered
from ketscale.engines.dynamics.methods import MOST_STEPS, Route
from ketscale.engines.evolved import Evolved
from ketscale.engines.pulses.drives import Pulses
from ketscale.engines.pulses.evolution import SteppingMethod
from ketscale.engines.pulses.lattice import Lattice
from ketscale.engines.pulses.schemes import REPLACED, SIMULATORS
from ketscale.errors import UserError
from ketscale.private_torch import is_mapped
from ketscale.shapes import Complex128, Float, Float64
from ketscale.words import suggestion

# A pulse that is longer than its steps by so little, relative to them, needs no further one.
ROUNDING = 1e-9


def evolve(
    lattice: Lattice | Sequence[Lattice],
    pulses: Pulses,
    columns: Complex128[torch.Tensor, "*#batch columns states"],
    *,
    dt: float,
    method: str = "interaction4",
    route: Route = "auto",
) -> Complex128[torch.Tensor, "*all columns states"]:
    """Columns after the pulses, from those at time 0; the errors of the integrator are `error_estimate`.

    lattice, columns: as for `Integrator.evolve`, batches too. dt: the longest step, ns; steps are equal and as many in
    each segment of the pulses. method, route: as for `integrator`; interaction4 is of order 4 where layers of couplings
    commute (two sites), otherwise of order 2.

    Raises:
        UserError: there would be too many steps, or as for `integrator` and `Integrator.evolve`.
    """
    steps = integrator(method, step_count(pulses, dt), route)
    duration = pulses.duration
    return steps.evolve(lattice, pulses.sample(steps.times(duration)), duration, columns)


@torch.no_grad()
def error_estimate(
    lattice: Lattice | Sequence[Lattice],
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
        return steps.evolve(lattice, pulses.sample(steps.times(pulses.duration)), pulses.duration, columns)

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
    """Evolves columns under a lattice's Hamiltonian from time 0 to `duration`, in equal steps."""

    stepper: SteppingMethod
    steps: int

    def times(self, duration: Float[torch.Tensor, ""] | float) -> Float64[torch.Tensor, "steps stages"]:
        """When the drives are sampled, (steps, stages) within [0, duration], in the lattice's unit of time."""
        duration = torch.as_tensor(duration, dtype=torch.float64)
        nodes = torch.tensor(self.stepper.nodes, dtype=torch.float64, device=duration.device)
        numbers = torch.arange(self.steps, dtype=torch.float64, device=duration.device)
        return (numbers[:, None] + nodes) * (duration / self.steps)

    def evolve(
        self,
        lattice: Lattice | Sequence[Lattice],
        amplitudes: Float64[torch.Tensor, "*#batch steps stages drives"],
        duration: Float[torch.Tensor, "*#batch"] | float,
        columns: Complex128[torch.Tensor, "*#batch columns states"],
    ) -> Complex128[torch.Tensor, "*all columns states"]:
        """Final columns (columns, d**n), from initial ones.

        amplitudes: real (steps, stages, drives), the f_k, then the g_l of driven couplings, at `times`. columns: complex
        (columns, d**n). Any of the four may be a batch: lattices in a list, the others with a further axis in front; so is
        the result, and each member takes as long as by itself. torch.func transforms it. Derivatives of any
        order exist with respect to all tensors, duration and those of the lattice included; in couplings and drives they are those in Hermitian directions. First ones have a memory
        that does not grow with steps; further ones, and forward mode, keep every state.

        Raises:
            UserError: the shapes do not fit the lattice, the integrator or one another, the numbers are not in fp64, or the
                tensors are on several devices.
        """
        duration = torch.as_tensor(duration, dtype=torch.float64, device=amplitudes.device)
        tensors = [(amplitudes, 3), (duration, 0), (columns, 2)]  # with their dimensions in no batch
        sizes = {len(tensor) for tensor, ndim in tensors if tensor.ndim > ndim}
        if not isinstance(lattice, Lattice):
            sizes.add(len(lattice))
        elif not sizes:
            return self._evolve(lattice, amplitudes, duration, columns)
        if len(sizes) > 1:
            raise UserError(
                f"pulses: batches must be of one size, not of {', '.join(map(str, sorted(sizes)))}"
            )
        (size,) = sizes
        lattices = [lattice] * size if isinstance(lattice, Lattice) else lattice
        own = (each if each.ndim > ndim else each.expand(size, *each.shape) for each, ndim in tensors)
        return torch.stack([self._evolve(*member) for member in zip(lattices, *own, strict=True)])

    def _evolve(
        self, lattice: Lattice, amplitudes: torch.Tensor, duration: torch.Tensor, columns: torch.Tensor
    ) -> torch.Tensor:
        shape = (self.steps, len(self.stepper.nodes), lattice.controls)
        if tuple(amplitudes.shape) != shape:
            raise UserError(
                f"amplitudes: must be (steps, stages, drives) = {shape}, not {tuple(amplitudes.shape)}"
            )
        if columns.ndim != 2 or columns.shape[1] != lattice.dimension:
            raise UserError(
                f"columns: must be (columns, {lattice.dimension}) for this lattice, not {tuple(columns.shape)}"
            )
        if columns.dtype != torch.complex128 or amplitudes.dtype != torch.float64:
            raise UserError("pulses: integrators compute in fp64: columns are complex128, amplitudes float64")
        devices = {str(tensor.device) for tensor in (lattice.energies, amplitudes, columns)}
        if len(devices) > 1:
            raise UserError(
                f"pulses: lattice, amplitudes and columns must be on one device, not on {', '.join(sorted(devices))}"
            )
        return self.stepper.evolve(lattice, amplitudes, duration, columns)


def evolution(lattice: Lattice, method: str, route: Route, steps: int | None) -> Evolved:
    """What evolves columns of a lattice in so many steps; see `integrator`."""
    by = integrator(method, steps or 1, route).stepper
    code, states = by.code(lattice), lattice.dimension
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
