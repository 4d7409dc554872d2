"""The workloads of pulses: a device, a chain or a lattice, and the gate that pulses have to make of it; and integrators.

Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from ketscale.config import Settings, Simulator, Workload
from ketscale.engines.dynamics.methods import Route
from ketscale.engines.gates import GateName, qubits_of
from ketscale.engines.pulses.published import (
    CHAIN,
    CHAIN_COUPLINGS,
    CHARGING,
    CROSS_RESONANCE,
    FLUXONIUM,
    JOSEPHSON,
    LATTICE_COUPLINGS,
    LATTICE_SEED,
    ONE_QUBIT,
    ROW,
    SEED,
    SPREAD,
    TRANSMON_COUPLING,
)
from ketscale.engines.pulses.schemes import DEVICES
from ketscale.engines.quantities import Step, Time

if TYPE_CHECKING:
    from ketscale.engines.pulses import Device

    Integrator = str
else:
    Integrator = Literal[DEVICES]


# More levels do not fit the basis in which circuits are diagonalised; see `engines.pulses.circuits`.
MOST_LEVELS = 10


class PulseWorkload(Workload, frozen=True, kw_only=True):
    """A gate on a device. A sample is a computational basis state: a column of the gate's unitary."""

    former: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"bounds_weight": 1.0, "initial": 0, "amplitude_bound": None, "frequency_bounds": None}
    )

    # fmt: off
    gate: Annotated[GateName, Meta(description="Its name. A gate on one qubit acts on each at once, one on two qubits "
        "on each of `pairs`; all drives play at once")] = "x"
    pairs: Annotated[tuple[tuple[int, int], ...], Meta(description="Of a gate on two qubits: the first (of cnot "
        "the control) and the second of each, from 0, coupled neighbours. If pairs share a qubit, their gates are "
        "multiplied, the first acting first")] = ((0, 1),)
    target: Annotated[Literal["unitary", "state"], Meta(description="unitary: all columns, up to a common phase; "
        "state: the one that begins with all qubits in 0")] = "unitary"
    frame: Annotated[Literal["dressed", "laboratory"], Meta(description="dressed: the rotating eigenstates of the "
        "undriven device; laboratory: bare product states, as in the published benchmark")] = "dressed"
    virtual_z: Annotated[bool, Meta(description="Z rotations of each qubit after the pulse, which cost no time, "
        "are the best ones")] = True
    length: Annotated[Time, Meta(description="Length of the pulses at the start, ns; published, and if left out: "
        "50, for a gate on two qubits 100")] | None = None
    length_bounds: Annotated[tuple[Time, Time], Meta(description="The shortest and the longest pulse, ns, beyond which a "
        "penalty is added to the loss")] | None = None
    # fmt: on

    def device(self, qubits: int) -> Device:
        """The device."""
        raise NotImplementedError

    @property
    def start_length(self) -> float:
        """The length of the pulses at the start, ns."""
        return self.length or (CROSS_RESONANCE if self.on_pairs else ONE_QUBIT)

    @property
    def on_pairs(self) -> bool:
        """Whether the gate acts on pairs of qubits."""
        return qubits_of(self.gate) == 2

    def samples(self, qubits: int) -> int:
        """The number of columns."""
        return 2**qubits if self.target == "unitary" else 1

    def faults(self) -> Iterator[str]:
        """Bounds ascend and admit the start, and settings of another choice are absent."""
        bounds = self.length_bounds
        if bounds is not None and not bounds[0] <= self.start_length <= bounds[1]:
            yield f"length_bounds: pulses begin with {self.start_length:g} ns, out of bounds; change them or length"
        if self.on_pairs and not self.pairs:
            yield "pairs: a gate on two qubits needs at least one; give both, such as [0, 1]"
        if not self.on_pairs and self.pairs != ((0, 1),):
            yield "pairs: only gates on two qubits have pairs; leave it out"

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """The levels fit the device, in a precision that its carriers need, and every step uses all columns."""
        run, protocol, levels = settings.run, settings.protocol, settings.sizes["levels"]
        columns = self.samples(settings.sizes["qubits"])
        if protocol.precision != "fp64":
            yield f"precision: {protocol.precision} is too coarse for {run.workload}; give {run.protocol} fp64"
        if levels < 2:
            yield f"levels: {levels} make no qubit; use 2 or more"
        if levels > MOST_LEVELS:
            yield f"levels: {levels} of a circuit are not computed accurately; use at most {MOST_LEVELS}"
        if run.batch != columns:
            yield f"every step uses all columns of {run.workload}; use batch {columns}, not {run.batch}"
        dt = getattr(settings.simulator, "dt", 0.0)
        if dt > self.start_length:
            yield f"simulator {run.simulator} has dt: {dt:g}, longer than pulses of {self.start_length:g} ns"


# Settings that earlier versions had of all fluxoniums, and of all published devices.
_FLUXONIUMS = {"charging": FLUXONIUM[0], "josephson": FLUXONIUM[1], "flux": 0.5, "spread": SPREAD}
Side = Annotated[int, Meta(ge=1, le=len(ROW))]


class FluxoniumChain(PulseWorkload, frozen=True, kw_only=True):
    """The published open chain of fluxoniums, driven by their phase."""

    former: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            **PulseWorkload.former,
            **_FLUXONIUMS,
            "inductive": [*CHAIN],
            "capacitive_coupling": CHAIN_COUPLINGS[0],
            "inductive_coupling": CHAIN_COUPLINGS[1],
            "seed": SEED,
        }
    )

    def device(self, qubits: int) -> Device:
        """See `PulseWorkload.device`."""
        from ketscale.engines.pulses import fluxonium_chain

        return fluxonium_chain(qubits)


class FluxoniumLattice(PulseWorkload, frozen=True, kw_only=True):
    """A block of the published 5 x 5 lattice of fluxoniums, which is periodic; they are driven by their phase."""

    former: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            **PulseWorkload.former,
            **_FLUXONIUMS,
            "first_column": 2,
            "inductive": [*ROW],
            "capacitive_coupling": LATTICE_COUPLINGS[0],
            "inductive_coupling": LATTICE_COUPLINGS[1],
            "seed": LATTICE_SEED,
        }
    )

    # fmt: off
    block: Annotated[tuple[Side, Side], Meta(description="Its rows and columns, whose product is the qubits")] = (3, 2)
    # fmt: on

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

        return fluxonium_lattice(*self.block)


class TransmonChain(PulseWorkload, frozen=True, kw_only=True):
    """An open chain of the published transmons, driven by their charge."""

    former: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            **PulseWorkload.former,
            "charging": [*CHARGING],
            "josephson": [*JOSEPHSON],
            "offset": 0.0,
            "capacitive_coupling": TRANSMON_COUPLING,
            "spread": SPREAD,
            "seed": SEED,
        }
    )

    def device(self, qubits: int) -> Device:
        """See `PulseWorkload.device`."""
        from ketscale.engines.pulses import transmon_chain

        return transmon_chain(qubits)


class PulseSimulator(Simulator, frozen=True, kw_only=True):
    """How columns are evolved under pulses, and differentiated."""

    devices: ClassVar[tuple[str, ...]] = DEVICES

    # fmt: off
    device: Annotated[Integrator, Meta(description="trotter2: exponential midpoint with couplings split from driven sites, "
        "in order 2; suzuki4: in order 4; interaction4: driven sites nearly exactly, so that the error is that of the "
        "couplings (of order 4 where layers of couplings commute, otherwise of order 2); whole-space: commutator-free of "
        "order 6, with the exact propagator of the whole system")]
    dt: Annotated[Step, Meta(description="Largest step, ns; all steps of a pulse are equal")]
    route: Annotated[Route, Meta(description="compiled: machine code, on the CPU; torch: torch's operators; auto: "
        "compiled on the CPU, else torch")] = "auto"
    tolerance: Annotated[float, Meta(gt=0, description="The largest relative difference of its losses from exact "
        "ones, as measured; parity allows it")]
    # fmt: on

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Compiled code computes on the CPU only."""
        run = settings.run
        if self.route == "compiled" and settings.on_gpu:
            yield f"simulator {run.simulator} has route: compiled, for CPUs alone; use auto or torch"
