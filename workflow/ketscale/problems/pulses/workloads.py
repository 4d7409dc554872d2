"""The kinds of workloads of pulses: chains and a lattice. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator
from math import pi
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from ketscale.config import Seed, Settings
from ketscale.engines.pulses.published import (
    CHAIN,
    CHAIN_COUPLINGS,
    CHARGING,
    FLUXONIUM,
    JOSEPHSON,
    LATTICE_COUPLINGS,
    LATTICE_SEED,
    ROW,
    SEED,
    SPREAD,
    TRANSMON_COUPLING,
)
from ketscale.engines.quantities import Coupling, Energy
from ketscale.problems.pulses.workload import PulseWorkload

if TYPE_CHECKING:
    from ketscale.engines.pulses import Device

Energies = Annotated[tuple[Energy, ...], Meta(min_length=1)]
Spread = Annotated[
    float, Meta(ge=0, lt=0.3, description="Relative standard deviation of each circuit's energies")
]

Capacitive = Annotated[Coupling, Meta(description="J_C of neighbours, GHz")]
Inductive = Annotated[Coupling, Meta(description="J_L of neighbours, GHz")]
SpreadSeed = Annotated[Seed, Meta(description="Seed of the spread")]
Side = Annotated[int, Meta(ge=1, le=len(ROW))]


class FluxoniumWorkload(PulseWorkload, frozen=True, kw_only=True):
    """Fluxoniums, driven by their phase; the published circuits."""

    charging: Annotated[Energy, Meta(description="E_C, GHz")] = FLUXONIUM[0]
    josephson: Annotated[Energy, Meta(description="E_J, GHz")] = FLUXONIUM[1]
    inductive: Energies
    flux: Annotated[
        float, Meta(ge=-1, le=1, description="External flux, in flux quanta, of which 1 changes nothing")
    ] = 0.5
    capacitive_coupling: float
    inductive_coupling: float
    spread: Spread = SPREAD

    @property
    def parameters(self) -> dict[str, Any]:
        """What devices of fluxoniums are made of besides their layout: arguments of the engine's functions."""
        return {
            "width": self.spread,
            "seed": self.seed,
            "charging": self.charging,
            "josephson": self.josephson,
            "inductive": self.inductive,
            "flux": 2 * pi * self.flux,
            "capacitive_coupling": self.capacitive_coupling,
            "inductive_coupling": self.inductive_coupling,
        }


class FluxoniumChain(FluxoniumWorkload, frozen=True, kw_only=True):
    """The published open chain of fluxoniums."""

    inductive: Annotated[Energies, Meta(description="E_L, GHz, in turn along the chain")] = CHAIN
    capacitive_coupling: Capacitive = CHAIN_COUPLINGS[0]
    inductive_coupling: Inductive = CHAIN_COUPLINGS[1]
    seed: SpreadSeed = SEED

    def device(self, qubits: int) -> Device:
        """See `PulseWorkload.device`."""
        from ketscale.engines.pulses import fluxonium_chain

        return fluxonium_chain(qubits, **self.parameters)


class FluxoniumLattice(FluxoniumWorkload, frozen=True, kw_only=True):
    """A block of the published 5 x 5 lattice of fluxoniums, which is periodic."""

    block: Annotated[
        tuple[Side, Side], Meta(description="Its rows and columns, whose product is the qubits")
    ] = (3, 2)
    first_column: Annotated[
        int, Meta(ge=0, lt=len(ROW), description="The lattice's column, from 0, in which the block begins")
    ] = 2
    inductive: Annotated[
        Energies,
        Meta(description="E_L of the lattice's first row, GHz; each further row is shifted by three columns"),
    ] = ROW
    capacitive_coupling: Capacitive = LATTICE_COUPLINGS[0]
    inductive_coupling: Inductive = LATTICE_COUPLINGS[1]
    seed: SpreadSeed = LATTICE_SEED

    def faults(self) -> Iterator[str]:
        """The first row is whole."""
        yield from super().faults()
        if len(self.inductive) != len(ROW):
            yield f"inductive: give {len(ROW)} energies, those of the lattice's first row"

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """The block has its own number of qubits."""
        sites = self.block[0] * self.block[1]
        if settings.sizes["qubits"] != sites:
            yield f"workload {settings.run.workload} is a block of {sites} qubits; set qubits: {sites}, or change block"
            return
        yield from super().conflicts(settings)

    def device(self, qubits: int) -> Device:
        """See `PulseWorkload.device`."""
        from ketscale.engines.pulses import fluxonium_lattice

        return fluxonium_lattice(*self.block, self.first_column, **self.parameters)


class TransmonChain(PulseWorkload, frozen=True, kw_only=True):
    """An open chain of transmons, driven by their charge."""

    charging: Annotated[Energies, Meta(description="E_C, GHz, in turn along the chain")] = CHARGING
    josephson: Annotated[Energies, Meta(description="E_J, GHz, in turn along the chain")] = JOSEPHSON
    offset: Annotated[
        float, Meta(ge=-1, le=1, description="n_g, in Cooper pairs, of which 1 changes nothing")
    ] = 0.0
    capacitive_coupling: Capacitive = TRANSMON_COUPLING
    spread: Spread = SPREAD
    seed: SpreadSeed = SEED

    def device(self, qubits: int) -> Device:
        """See `PulseWorkload.device`."""
        from ketscale.engines.pulses import transmon_chain

        return transmon_chain(
            qubits,
            self.spread,
            self.seed,
            charging=self.charging,
            josephson=self.josephson,
            offset=self.offset,
            capacitive_coupling=self.capacitive_coupling,
        )


WORKLOADS: dict[str, type[PulseWorkload]] = {
    "fluxonium-chain": FluxoniumChain,
    "fluxonium-lattice": FluxoniumLattice,
    "transmon-chain": TransmonChain,
}
