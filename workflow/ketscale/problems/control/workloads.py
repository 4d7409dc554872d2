"""The kinds of workloads of control: each of three systems, with a spectrum or relaxation times. Imports nothing heavy."""

from __future__ import annotations

from math import pi
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from ketscale.engines.quantities import Detuning, Lifetime
from ketscale.problems.control.noises import Alpha, Cutoff, Jumps, NoiseSpectrum, Relaxation, Strength
from ketscale.problems.control.workload import Amplitude, ControlWorkload, Duration, Limit

if TYPE_CHECKING:
    from ketscale.dynamics import System

# The published ranges, section 4 of the ledger of systems, in which 1 is a pulse's duration.
ALPHA, STRENGTH, CUTOFF = (0.5, 2.0), (1e-3, 1e-2), (100.0, 1000.0)

# Ranges around T1 and T2 of Sheldon et al.'s transmons (see `systems`), ns: 38 and 41 us, 50 and 61 us.
T1, T2 = (30e3, 50e3), (40e3, 60e3)

Detunings = tuple[Detuning, Detuning]
Lifetimes = tuple[Lifetime, Lifetime]
RelaxationTime = Annotated[Lifetimes, Meta(description="Range of T1 of each qubit, ns")]
CoherenceTime = Annotated[Lifetimes, Meta(description="Range of T2 of each qubit, ns, at most 2 T1")]


class Qubit(ControlWorkload, frozen=True, kw_only=True):
    """The published qubit; dimensionless, with a pulse of duration 1."""

    unit: ClassVar[float] = 1.0

    detuning: Annotated[Detunings, Meta(description="Range of the factor of Z in H; published: 0.1")] = (
        0.1,
        0.1,
    )
    duration: Duration = 1.0
    amplitude: Amplitude = 2.0
    limit: Limit = 10.0
    target: Annotated[Literal["x", "hadamard"], Meta(description="x: X|0>; hadamard: H|0>")] = "x"

    def system(self) -> System:
        """See `systems.qubit`."""
        from ketscale.dynamics import qubit

        return qubit(0.0, self.jumps)


class Transmon(ControlWorkload, frozen=True, kw_only=True):
    """A transmon, whose levels above the qubit a pulse must not fill; rad/ns and ns.

    The anharmonicity (-330 MHz) is that of Sheldon et al. (see `systems`).
    """

    unit: ClassVar[float] = 20.0

    anharmonicity: Annotated[
        Detuning,
        Meta(description="Frequency of the second transition minus that of the first, the qubit's, rad/ns"),
    ] = -2 * pi * 0.33
    levels: Annotated[int, Meta(ge=3, le=8, description="Levels that are simulated")] = 3
    detuning: Annotated[
        Detunings, Meta(description="Range of the qubit's frequency minus the drive's, rad/ns")
    ] = (0.0, 0.0)
    duration: Duration = 20.0
    amplitude: Amplitude = 0.2
    limit: Limit = 2 * pi * 0.1
    target: Annotated[
        Literal["x", "hadamard"], Meta(description="x: |1>; hadamard: (|0> + |1>) / sqrt(2)")
    ] = "x"

    def system(self) -> System:
        """See `systems.transmon`."""
        from ketscale.dynamics import transmon

        return transmon(0.0, self.anharmonicity, self.levels, self.jumps)


class CoupledQubits(ControlWorkload, frozen=True, kw_only=True):
    """Two transmons, as qubits, with a fixed exchange coupling; rad/ns and ns.

    Coupling (3.8 MHz), the qubits' difference (200 MHz) and a gate of 160 ns are those of Sheldon et al. (see `systems`).
    The drive is resonant with qubit 2.
    """

    qubits: ClassVar[int] = 2
    unit: ClassVar[float] = 160.0

    coupling: Annotated[Detuning, Meta(description="Exchange coupling J of J (XX + YY) / 2, rad/ns")] = (
        2 * pi * 0.0038
    )
    difference: Annotated[
        Detuning, Meta(description="Frequency of qubit 1 minus that of qubit 2, which the drive has, rad/ns")
    ] = 2 * pi * 0.2
    detuning: Annotated[
        Detunings, Meta(description="Range by which each qubit's frequency is off its usual value, rad/ns")
    ] = (0.0, 0.0)
    duration: Duration = 160.0
    amplitude: Amplitude = 0.2
    limit: Limit = 2 * pi * 0.1
    target: Annotated[
        Literal["bell", "x"], Meta(description="bell: (|00> + |11>) / sqrt(2); x: |10>, X on qubit 1")
    ] = "bell"

    def system(self) -> System:
        """See `systems.coupled_qubits`."""
        from ketscale.dynamics import coupled_qubits

        return coupled_qubits(self.difference, 0.0, self.coupling, self.jumps)


class QubitSpectrum(NoiseSpectrum, Qubit, frozen=True, kw_only=True):
    """The published tasks: a qubit in an environment with spectrum A / (omega^alpha + omega_c^alpha); dimensionless.

    Its three jumps X, Y and Z have equal rates, which turn every pulse's fidelity F0 without noise into
    1/2 + (F0 - 1/2) exp(-4 rate duration). So whatever their noise, tasks with one detuning have one best pulse.
    """

    alpha: Alpha = ALPHA
    strength: Strength = STRENGTH
    cutoff: Cutoff = CUTOFF
    jumps: Jumps = ("x", "y", "z")


class QubitRelaxation(Relaxation, Qubit, frozen=True, kw_only=True):
    """A qubit that relaxes and dephases; times in units of a pulse's duration of 1, rates chosen to be felt."""

    t1: Annotated[Lifetimes, Meta(description="Range of T1")] = (20.0, 100.0)
    t2: Annotated[Lifetimes, Meta(description="Range of T2, at most 2 T1")] = (10.0, 40.0)


class TransmonSpectrum(NoiseSpectrum, Transmon, frozen=True, kw_only=True):
    """A transmon whose frequency fluctuates with a spectrum, which is given in units of 20 ns, its pulse's usual duration.

    The ranges are the published ones. They give rates of up to 2e-5 / ns; that of Sheldon et al.'s transmon is 7e-6 / ns.
    """

    alpha: Alpha = ALPHA
    strength: Strength = STRENGTH
    cutoff: Cutoff = CUTOFF
    jumps: Jumps = ("dephasing",)


class TransmonRelaxation(Relaxation, Transmon, frozen=True, kw_only=True):
    """A transmon that relaxes and dephases, with T1 and T2 around those of Sheldon et al., 38 and 50 us."""

    t1: RelaxationTime = T1
    t2: CoherenceTime = T2


class CoupledQubitsSpectrum(NoiseSpectrum, CoupledQubits, frozen=True, kw_only=True):
    """Two coupled qubits, each with an environment of its own, whose spectrum is given in units of 160 ns.

    The ranges are the published ones; each qubit's frequency fluctuates, as that of a transmon does most.
    """

    alpha: Alpha = ALPHA
    strength: Strength = STRENGTH
    cutoff: Cutoff = CUTOFF
    jumps: Jumps = ("dephasing",)


class CoupledQubitsRelaxation(Relaxation, CoupledQubits, frozen=True, kw_only=True):
    """Two coupled qubits that relax and dephase, with T1 and T2 around those of Sheldon et al."""

    t1: RelaxationTime = T1
    t2: CoherenceTime = T2


WORKLOADS: dict[str, type[ControlWorkload]] = {
    "qubit-spectrum": QubitSpectrum,
    "qubit-relaxation": QubitRelaxation,
    "transmon-spectrum": TransmonSpectrum,
    "transmon-relaxation": TransmonRelaxation,
    "coupled-qubits-spectrum": CoupledQubitsSpectrum,
    "coupled-qubits-relaxation": CoupledQubitsRelaxation,
}
