"""The workloads of pulses: a device, a chain or a lattice, and the gate that pulses have to make of it. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator
from math import pi
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from ketscale.config import Seed, Settings, Workload
from ketscale.config.simulators.pulses import PulseSimulator
from ketscale.engines.dynamics.methods import MOST_STEPS
from ketscale.engines.gates import Gate, State, faults_of_numbers, qubits_of
from ketscale.engines.pulses.published import (
    CHAIN,
    CHAIN_COUPLINGS,
    CHARGING,
    CROSS_RESONANCE,
    FLUXONIUM,
    JOSEPHSON,
    LATTICE_COUPLINGS,
    LATTICE_SEED,
    MOST_DRESSED,
    ONE_QUBIT,
    ROW,
    SEED,
    SPREAD,
    TRANSMON_COUPLING,
)
from ketscale.engines.quantities import AngularFrequency, Bandwidth, Coupling, Energy, Slope, Time

if TYPE_CHECKING:
    from ketscale.engines.pulses import Device


# Columns and their cotangents are in memory twice; more is a mistake in the sizes.
MOST_AMPLITUDES = 2**30
# More levels do not fit the basis in which circuits are diagonalised; see `engines.pulses.circuits`.
MOST_LEVELS = 10


class PulseWorkload(Workload, frozen=True, kw_only=True):
    """A gate on a device. A sample is a computational basis state: a column of the gate's unitary."""

    later: ClassVar[frozenset[str]] = frozenset({"slope_bound", "bandwidth_bound", "bounds"})

    # Subclasses have them with defaults of their own.
    seed: Seed
    spread: float

    # fmt: off
    gate: Annotated[Gate, Meta(description="A name, or the rows of a unitary, such as [[0, -1j], [1j, 0]]. A gate "
        "on one qubit acts on each at once, one on two qubits on each of `pairs`, a larger one on all; all drives "
        "play at once")] = "x"
    pairs: Annotated[tuple[tuple[int, int], ...], Meta(description="Of a gate on two qubits: the first (of cnot "
        "the control) and the second of each, from 0, coupled neighbours. If pairs share a qubit, their gates are "
        "multiplied, the first acting first")] = ((0, 1),)
    target: Annotated[Literal["unitary", "state"] | State, Meta(description="unitary: all columns, up to a common "
        "phase; state: the one that begins in `initial`; or the amplitudes of a state to bring `initial` to, such "
        "as [0.6, 0.8j], for which pulses begin as those of `gate`")] = "unitary"
    initial: Annotated[int, Meta(ge=0, description="With a state: the number of a basis state, whose bits are the "
        "qubits, the first the highest")] = 0
    frame: Annotated[Literal["dressed", "laboratory"], Meta(description="dressed: the rotating eigenstates of the "
        "undriven device; laboratory: bare product states, as in the published benchmark")] = "dressed"
    virtual_z: Annotated[bool, Meta(description="Z rotations of each qubit after the pulse, which cost no time, "
        "are the best ones")] = True
    length: Annotated[Time, Meta(description="Length of the pulses at the start, ns; published, and if left out: "
        "50, for a gate on two qubits or more 100")] | None = None
    amplitude_bound: Annotated[AngularFrequency | Annotated[tuple[AngularFrequency, ...],
        Meta(min_length=1)] | None, Meta(description="The hardware's largest modulus of an envelope, rad/ns; or "
        "one for each drive, with pairs those of their first qubits first")] = None
    frequency_bounds: Annotated[tuple[AngularFrequency, AngularFrequency], Meta(description="The hardware's lowest "
        "and highest frequency of a carrier, rad/ns")] | None = None
    length_bounds: Annotated[tuple[Time, Time], Meta(description="The hardware's shortest and longest pulse, ns")] | None = None
    slope_bound: Annotated[Slope, Meta(description="With bounds: hard, the hardware's largest slope of an "
        "envelope, rad/ns per ns")] | None = None
    bandwidth_bound: Annotated[Bandwidth, Meta(description="With bounds: hard, the bandwidth of the hardware's "
        "filter of envelopes, -3 dB, GHz")] | None = None
    bounds: Annotated[Literal["penalty", "hard"], Meta(description="penalty: what is out of bounds adds to the "
        "loss, as published; hard: pulses are mapped and filtered so that no parameters are out of bounds")] = "penalty"
    bounds_weight: Annotated[float, Meta(gt=0, le=1e9, description="Factor of the loss's penalty: the sum "
        "of squares of what is out of bounds, relative to the bound")] = 1.0
    # fmt: on

    def device(self, qubits: int) -> Device:
        """The device, with its spread.

        Raises:
            UserError: its parameters make none.
        """
        raise NotImplementedError

    @property
    def start_length(self) -> float:
        """The length of the pulses at the start, ns."""
        return self.length or (ONE_QUBIT if qubits_of(self.gate) == 1 else CROSS_RESONANCE)

    @property
    def on_pairs(self) -> bool:
        """Whether the gate acts on pairs of qubits."""
        return qubits_of(self.gate) == 2

    @property
    def hardware(self) -> dict[str, Any]:
        """The hardware's bounds by name: arguments of `engines.pulses.Bounds`; none: it has no bounds."""
        given = {
            "amplitude": self.amplitude_bound,
            "frequency": self.frequency_bounds,
            "length": self.length_bounds,
            "slope": self.slope_bound,
            "bandwidth": self.bandwidth_bound,
        }
        return {name: bound for name, bound in given.items() if bound is not None}

    def samples(self, qubits: int) -> int:
        """The number of columns."""
        return 2**qubits if self.target == "unitary" else 1

    def faults(self) -> Iterator[str]:
        """Bounds ascend and admit the start, and settings that belong to another choice are left out."""
        for name in ("frequency_bounds", "length_bounds"):
            bounds = getattr(self, name)
            if bounds is not None and bounds[0] > bounds[1]:
                yield f"{name}: must be in ascending order, not {bounds[0]:g} to {bounds[1]:g}"
        bounds = self.length_bounds
        if bounds is not None and not bounds[0] <= self.start_length <= bounds[1]:
            yield f"length_bounds: pulses begin with {self.start_length:g} ns, out of bounds; change them or length"
        for name in ("slope_bound", "bandwidth_bound"):
            if self.bounds == "penalty" and getattr(self, name) is not None:
                yield f"{name}: only a filter keeps it; use bounds: hard, or leave it out"
        if self.slope_bound is not None and self.amplitude_bound is None:
            yield "slope_bound: is kept only together with a largest amplitude; give amplitude_bound"
        if self.bounds == "hard" and not self.hardware:
            yield "bounds: there are none to keep; leave it out, or give amplitude_bound, frequency_bounds, length_bounds or bandwidth_bound"
        if self.bounds_weight != 1 and (self.bounds == "hard" or not self.hardware):
            yield "bounds_weight: is the factor of a penalty, and there is none; leave it out, or give amplitude_bound, frequency_bounds or length_bounds"
        if not isinstance(self.gate, str):
            yield from faults_of_numbers("gate", self.gate)
        if isinstance(self.target, tuple):
            yield from faults_of_numbers("target", (self.target,))
        if self.on_pairs and not self.pairs:
            yield "pairs: a gate on two qubits needs at least one; give both, such as [0, 1]"
        if not self.on_pairs and self.pairs != ((0, 1),):
            yield "pairs: the gate is not on two qubits, and has none; leave it out"
        if self.target == "unitary" and self.initial:
            yield "initial: only one state begins somewhere; leave it out, or use target: state"

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """The sizes fit the device and the memory, every step takes all columns, and one column cannot be shared."""
        run, sizes, protocol = settings.run, settings.sizes, settings.protocol
        qubits, levels = sizes["qubits"], sizes["levels"]
        if protocol.precision != "fp64":
            yield (
                f"protocol {run.protocol} has precision: {protocol.precision}, too coarse for carriers and many steps of "
                f"{run.workload}; use fp64"
            )
        if protocol.clip_norm is not None and protocol.optimiser == "l-bfgs":
            yield f"protocol {run.protocol} has clip_norm, which l-bfgs does not use; leave it out"
        if levels < 2:
            yield f"levels: {levels} make no qubit; use 2 or more"
            return
        if levels > MOST_LEVELS:
            yield f"levels: {levels} of a circuit are not computed accurately; use at most {MOST_LEVELS}"
            return
        columns, dimension = self.samples(qubits), levels**qubits
        if columns * dimension > MOST_AMPLITUDES:
            yield f"{qubits} qubits of {levels} levels have {columns:,} columns of {dimension:,} amplitudes; use fewer"
        if 2**qubits > MOST_DRESSED:
            yield (
                f"workload {run.workload} begins with pulses for dressed states, of which {qubits} qubits have too many; use "
                f"at most {MOST_DRESSED.bit_length() - 1} qubits"
            )
        elif self.frame == "dressed" and dimension > MOST_DRESSED:
            yield (
                f"{qubits} qubits of {levels} levels are {dimension:,} product states, too many for the dressed states of "
                f"{run.workload} (at most {MOST_DRESSED:,}); use fewer, or frame: laboratory"
            )
        rows = 2 ** qubits_of(self.gate)
        if not self.on_pairs and rows not in (2, 2**qubits):
            yield f"gate: has {rows} rows in {run.workload}, and {qubits} qubits have {2**qubits} states"
        if isinstance(self.target, tuple) and len(self.target) != 2**qubits:
            yield f"target: has {len(self.target)} amplitudes in {run.workload}, and {qubits} qubits have {2**qubits}"
        if self.target != "unitary" and self.initial >= 2**qubits:
            yield f"workload {run.workload} begins in state {self.initial}, of which {qubits} qubits have {2**qubits}"
        if self.target != "unitary" and run.ranks > 1:
            yield (
                f"workload {run.workload} has one column (its target is a state), which {run.ranks} ranks cannot share: time steps "
                "follow one another; use one rank, or target: unitary"
            )
        if run.batch != columns:
            yield (
                f"every step takes all columns of {run.workload}; with {qubits} qubits use batch {columns}, not {run.batch}"
            )
        if self.on_pairs:
            for control, target in self.pairs:
                if control == target or not {control, target} <= set(range(qubits)):
                    yield f"pairs: {control}, {target} of {run.workload} are not two of {qubits} qubits"
        simulator = settings.simulator
        if isinstance(simulator, PulseSimulator):
            if simulator.dt > self.start_length:
                yield (
                    f"simulator {run.simulator} has dt: {simulator.dt:g}, longer than the pulses of {run.workload}, "
                    f"{self.start_length:g} ns; use at most that"
                )
            if simulator.dt < self.start_length / MOST_STEPS:
                yield (
                    f"simulator {run.simulator} has dt: {simulator.dt:g}, more than {MOST_STEPS:,} steps in the pulses of "
                    f"{run.workload}, {self.start_length:g} ns; use a longer one"
                )


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
    # fmt: off
    flux: Annotated[float, Meta(ge=-1, le=1, description="External flux, in flux quanta, of which 1 changes "
        "nothing")] = 0.5
    # fmt: on
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

    # fmt: off
    block: Annotated[tuple[Side, Side], Meta(description="Its rows and columns, whose product is the qubits")] = (3, 2)
    first_column: Annotated[int, Meta(ge=0, lt=len(ROW), description="The lattice's column, from 0, in which the "
        "block begins")] = 2
    inductive: Annotated[Energies, Meta(description="E_L of the lattice's first row, GHz; each further row is "
        "shifted by three columns")] = ROW
    # fmt: on
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
