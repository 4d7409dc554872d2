"""Integrators by name: when they sample the drives, and the columns that they evolve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, get_args, runtime_checkable

import torch

from ketscale.config import suggestion
from ketscale.engines import registered
from ketscale.engines.pulses.evolution import SteppingMethod, evolve
from ketscale.engines.pulses.lattice import Lattice
from ketscale.engines.pulses.registry import REPLACED, SIMULATORS
from ketscale.engines.pulses.settings import Route
from ketscale.errors import UserError
from ketscale.shapes import Complex128, Float, Float64


@runtime_checkable
class Integrator(Protocol):
    """Evolves columns under a lattice's Hamiltonian from time 0 to `duration`, in equal steps."""

    def times(self, duration: Float[torch.Tensor, ""] | float) -> Float64[torch.Tensor, "steps stages"]:
        """When the drives are sampled, (steps, stages) within [0, duration], in the lattice's unit of time."""
        ...

    def evolve(
        self,
        lattice: Lattice,
        amplitudes: Float64[torch.Tensor, "steps stages {len(lattice.drives)}"],
        duration: Float[torch.Tensor, ""] | float,
        columns: Complex128[torch.Tensor, "columns {lattice.dimension}"],
    ) -> Complex128[torch.Tensor, "columns {lattice.dimension}"]:
        """Final columns (columns, d**n), from initial ones.

        amplitudes: real (steps, stages, drives), the f_k at `times`. columns: complex (columns, d**n). First
        derivatives by all tensors, duration and those of the lattice included; in couplings and drives they are those in
        Hermitian directions.

        Raises:
            UserError: the shapes do not fit the lattice or the integrator, the numbers are not in fp64, or the tensors are
                on several devices.
        """
        ...


@dataclass(frozen=True)
class Steps:
    """Equal steps; see `Integrator`."""

    stepper: SteppingMethod
    steps: int

    def times(self, duration: Float[torch.Tensor, ""] | float) -> Float64[torch.Tensor, "steps stages"]:
        """See `Integrator.times`."""
        duration = torch.as_tensor(duration, dtype=torch.float64)
        nodes = duration.new_tensor(self.stepper.nodes)
        numbers = torch.arange(self.steps, dtype=torch.float64, device=duration.device)
        return (numbers[:, None] + nodes) * (duration / self.steps)

    def evolve(
        self,
        lattice: Lattice,
        amplitudes: Float64[torch.Tensor, "steps stages {len(lattice.drives)}"],
        duration: Float[torch.Tensor, ""] | float,
        columns: Complex128[torch.Tensor, "columns {lattice.dimension}"],
    ) -> Complex128[torch.Tensor, "columns {lattice.dimension}"]:
        """See `Integrator.evolve`."""
        shape = (self.steps, len(self.stepper.nodes), len(lattice.drives))
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
        duration = torch.as_tensor(duration, dtype=torch.float64, device=amplitudes.device)
        return evolve(self.stepper, lattice, amplitudes, duration, columns)


def integrator(name: str, steps: int, route: Route = "auto") -> Integrator:
    """The integrator of a name (`registry.SIMULATORS`).

    steps: how many. route: of splittings: compiled: with machine code for this processor, for CPU tensors only; torch:
    with torch's operators; auto: compiled for CPU tensors, else torch.

    Raises:
        UserError: there is no such name or route, the steps are not positive, or the integrator is not compiled.
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
    if route == "compiled" and not method.compiled:
        raise UserError(f"route: {name} is not compiled; use auto or torch")
    return Steps(registered.build(method.implementation, {"scheme": method.scheme, "route": route}), steps)
