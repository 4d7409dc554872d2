"""The gate that a benchmark of pulses computes, in a form that every package can take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ketscale.bench.dynamics.pulses.selection import Cell
from ketscale.engines.pulses import Cosine, Device, Fluxoniums, Pulses, fluxonium_chain, rotations
from ketscale.engines.pulses.lattice import Lattice

Array = NDArray[np.float64]

# Returns the infidelity, and its gradient by `Parameters` in their order, flat: all, the pulses' alone, or none.
Call = Callable[[], tuple[float, Array | None]]


class Parameters(NamedTuple):
    """What the infidelity is differentiated by, with one number a site, and a pair for the couplings.

    Of the pulses: amplitude and frequency in rad/ns, phase in rad, length in ns. Of the device: energies and couplings
    in GHz, flux in rad.
    """

    amplitude: Any
    frequency: Any
    phase: Any
    length: Any
    charging: Any
    josephson: Any
    inductive: Any
    flux: Any
    capacitive_coupling: Any
    inductive_coupling: Any

    def device(self) -> Device:
        """The chain with these parameters."""
        circuits = Fluxoniums(self.charging, self.josephson, self.inductive, self.flux)
        pairs = tuple((site, site + 1) for site in range(len(self.charging) - 1))
        return Device(circuits, pairs, self.capacitive_coupling, self.inductive_coupling)

    def pulses(self) -> Pulses:
        """Cosine pulses with these parameters, one a site."""
        return Pulses(Cosine(self.amplitude), self.frequency, self.phase, self.length)


@dataclass(frozen=True, eq=False)
class Case:
    """Simultaneous X on an open chain: all 2**n computational columns, product basis, laboratory frame, no virtual Z.

    levels: of each circuit. parameters: fp64 tensors.
    """

    levels: int
    parameters: Parameters

    @property
    def qubits(self) -> int:
        """Number of circuits."""
        return len(self.parameters.amplitude)

    @property
    def duration(self) -> float:
        """Length of the longest pulse, ns."""
        return float(self.parameters.length.max())

    def lattice(self) -> Lattice:
        """What is evolved, for packages that take matrices."""
        return self.parameters.device().lattice(self.levels)


class Subject(Protocol):
    """A simulator under test. steps: how many it takes, None for adaptive ones."""

    steps: int | None

    def prepare(self, case: Case) -> Call:
        """The call that is timed; it begins with the parameters that it differentiates by."""
        ...


@lru_cache(maxsize=8)
def case_of(cell: Cell) -> Case:
    """The published chain with our spread, and the published start: resonant cosine pulses of 50 ns."""
    device = fluxonium_chain(cell.qubits)
    pulses, circuits = rotations(device), device.circuits
    assert isinstance(pulses.envelope, Cosine)
    assert isinstance(circuits, Fluxoniums)
    return Case(
        cell.levels,
        Parameters(
            pulses.envelope.amplitude,
            pulses.frequency,
            pulses.phase,
            pulses.length,
            circuits.charging,
            circuits.josephson,
            circuits.inductive,
            circuits.flux,
            device.capacitive,
            device.inductive,
        ),
    )
