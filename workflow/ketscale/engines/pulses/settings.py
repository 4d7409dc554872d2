"""The settings of an integrator, limits, and published numbers. Imports nothing heavy, since configs are checked with it at every start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from ketscale.config import Settings, Simulator
from ketscale.engines.dynamics.settings import Route
from ketscale.engines.pulses.schemes import DEVICES, REPLACED, SIMULATORS
from ketscale.engines.quantities import Step
from ketscale.grid import BACKENDS

# Parameters of the published devices and pulses (SuperGrad, arXiv:2406.18155), GHz and ns.

# Relative spread of the circuits' energies; the published width, but random numbers of our own.
SPREAD = 0.01
SEED = 42
LATTICE_SEED = 1

# E_C, E_J, and E_L along a chain of fluxoniums, and along the first row of the lattice. Each further row is shifted by
# three columns.
FLUXONIUM = (1.0, 4.0)
CHAIN = (0.9, 1.0, 1.1)
ROW = (1.1, 1.2, 1.0, 0.8, 0.9)

# J_C and J_L between neighbours.
CHAIN_COUPLINGS = (0.020, -0.002)
LATTICE_COUPLINGS = (0.0115, -0.002)

# E_C and E_J along a chain of transmons, and J_C.
CHARGING = (0.105, 0.120, 0.185)
JOSEPHSON = (33.063, 22.234, 30.694)
TRANSMON_COUPLING = 0.012

# Lengths of pulses: gates on each qubit by itself, and on pairs.
ONE_QUBIT = 50.0
CROSS_RESONANCE = 100.0


if TYPE_CHECKING:
    Device = str
else:
    Device = Literal[DEVICES]

# Product states of a device with dressed states, which need the undriven Hamiltonian as a matrix: 256 MiB at this size.
MOST_DRESSED = 4096


class PulseSimulator(Simulator, frozen=True, kw_only=True):
    """How columns are evolved under pulses, and differentiated."""

    devices: ClassVar[tuple[str, ...]] = DEVICES
    replaced: ClassVar[Mapping[str, str]] = REPLACED

    device: Annotated[
        Device,
        Meta(
            description="published: SuperGrad's, exponential midpoint with circuits, couplings and drives split from one "
            "another in order 1 or 2; trotter: with couplings alone split from driven sites, in order 1 or 2; suzuki4: in "
            "order 4; interaction: driven sites nearly exactly, so that the error is that of the couplings "
            "(interaction4 is of order 4 where layers of couplings commute, otherwise of order 2); "
            "magnus6: commutator-free, with exponentials of the whole Hamiltonian as matrices",
        ),
    ]
    dt: Annotated[
        Step,
        Meta(description="Largest step, ns; all steps of a pulse are equal"),
    ]
    route: Annotated[
        Route,
        Meta(
            description="What evaluates a splitting. compiled: machine code, on the CPU; torch: torch's operators; auto: compiled on "
            "the CPU, else torch"
        ),
    ] = "auto"
    tolerance: Annotated[
        float,
        Meta(
            gt=0,
            description="The largest relative difference of its losses from exact ones, as measured; parity allows it",
        ),
    ]

    def faults(self) -> Iterator[str]:
        """Only some are compiled."""
        if self.route == "compiled" and not SIMULATORS[self.device].compiled:
            yield f"route: {self.device} is not compiled; use auto or torch"

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Compiled code computes on the CPU only."""
        run = settings.run
        if self.route == "compiled" and run.backend in BACKENDS and BACKENDS[run.backend].device == "gpu":
            yield (
                f"simulator {run.simulator} has route: compiled, for the CPU only, but backend {run.layout} trains on a GPU; "
                "use route: auto or torch"
            )
