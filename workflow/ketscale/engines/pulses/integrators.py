"""Integrators by name: when they sample the drives, and the columns that they evolve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol, get_args, runtime_checkable

import torch

from ketscale.config import suggestion
from ketscale.engines.pulses import magnus, schemes
from ketscale.engines.pulses.evolution import Method, evolve
from ketscale.engines.pulses.lattice import Lattice
from ketscale.engines.pulses.settings import Route
from ketscale.engines.pulses.split_steps import Split
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
    """Equal steps of a method; see `Integrator`."""

    method: Method
    steps: int

    def times(self, duration: Float[torch.Tensor, ""] | float) -> Float64[torch.Tensor, "steps stages"]:
        """See `Integrator.times`."""
        duration = torch.as_tensor(duration, dtype=torch.float64)
        nodes = duration.new_tensor(self.method.nodes)
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
        shape = (self.steps, len(self.method.nodes), len(lattice.drives))
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
        return evolve(self.method, lattice, amplitudes, duration, columns)


def _splitting(scheme: Callable[[], schemes.Scheme]) -> Callable[[Route], Method]:
    made = cache(scheme)
    return lambda route: Split(made(), route)


def _magnus(coefficients: schemes.Coefficients, method: type[magnus.Dense]) -> Callable[[Route], Method]:
    def build(route: Route) -> Method:
        if route == "compiled":
            raise UserError("route: only splittings are compiled; use route auto or torch")
        return method(coefficients)

    return build


# published: SuperGrad's own, exponential midpoint with circuits, couplings and drives split from one another, of order 1 or 2.
# trotter: the same with only the couplings split from the driven circuits, of order 1, 2 or 4; in time it is of order 2.
# suzuki4: of order 4 in time too. interaction: the driven sites are evolved nearly exactly, so that the error is that of the couplings; of
# order 2 or 4. magnus: of order 4 or 6, with exponentials as matrices or by Chebyshev series.
METHODS: dict[str, Callable[[Route], Method]] = {
    "published1": _splitting(lambda: schemes.published(1)),
    "published2": _splitting(lambda: schemes.published(2)),
    "trotter1": _splitting(schemes.sequential),
    "trotter2": _splitting(schemes.midpoint),
    "trotter4": _splitting(lambda: schemes.midpoint(schemes.SUZUKI, frozen=True)),
    "suzuki4": _splitting(lambda: schemes.midpoint(schemes.SUZUKI)),
    "interaction2": _splitting(lambda: schemes.interaction((0.5, 0.5), (1.0,), substeps=4)),
    "interaction4": _splitting(lambda: schemes.interaction(*schemes.BLANES_MOAN, substeps=4)),
    "magnus4": _magnus(schemes.FOURTH, magnus.Dense),
    "magnus6": _magnus(schemes.SIXTH, magnus.Dense),
    "magnus4-chebyshev": _magnus(schemes.FOURTH, magnus.Chebyshev),
    "magnus6-chebyshev": _magnus(schemes.SIXTH, magnus.Chebyshev),
}


def integrator(name: str, steps: int, route: Route = "auto") -> Integrator:
    """The integrator of a name (`METHODS`).

    steps: how many. route: of splittings: compiled: with machine code for this processor, for CPU tensors only; torch:
    with torch's operators; auto: compiled for CPU tensors, else torch.

    Raises:
        UserError: there is no such name or route, the steps are not positive, or the method has no such route.
    """
    if name not in METHODS:
        raise UserError(f"no integrator is called {name}{suggestion(name, list(METHODS))}")
    if route not in get_args(Route):
        raise UserError(f"no route is called {route}; use one of {', '.join(get_args(Route))}")
    if steps < 1:
        raise UserError(f"steps: must be at least 1, not {steps}")
    return Steps(METHODS[name](route), steps)
