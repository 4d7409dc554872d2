"""The workloads of control: distributions of tasks, of three systems with a spectrum or relaxation times. Imports nothing heavy.

A task is an environment: a value for each range that `VARIED` names, uniform in the range. The values are inputs of the
models, except those whose range has no width. The two descriptions of an environment for each qubit, a spectrum or
relaxation times, are mixins; a workload has the ranges as settings, with its own defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import pi
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

from msgspec import Meta
from msgspec.structs import fields

from ketscale.config import Positive, Seed, Settings, Workload
from ketscale.config.simulators.dynamics import DynamicsSimulator
from ketscale.engines import quantities
from ketscale.engines.dynamics.methods import MOST_STEPS
from ketscale.engines.gates import Gate, State, faults_of_numbers, qubits_of
from ketscale.engines.quantities import AngularFrequency, Detuning, Lifetime, Time

if TYPE_CHECKING:
    import torch

    from ketscale.dynamics import System


Alpha = Annotated[
    tuple[quantities.Exponent, quantities.Exponent],
    Meta(description="Range of the spectrum's exponent; 2 is a Lorentzian"),
]
Strength = Annotated[
    tuple[quantities.Strength, quantities.Strength], Meta(description="Range of the spectrum's amplitude A")
]
Cutoff = Annotated[tuple[quantities.Cutoff, quantities.Cutoff], Meta(description="Range of omega_c")]
Jumps = Annotated[
    tuple[Literal["x", "y", "z", "relaxation", "dephasing"], ...],
    Meta(
        min_length=1,
        description="Jump operators of each qubit, which all have the spectrum's rate. x, y, z: Pauli matrices (transmon: "
        "a + a^+, i (a^+ - a), 1 - 2n); relaxation: |0><1| (a); dephasing: Z / sqrt(2) (sqrt(2) n), whose rate is that "
        "at which coherence decays",
    ),
]


class NoiseSpectrum:
    """Environments with spectra A / (omega^alpha + omega_c^alpha), from which `noise_rates` computes a rate.

    These are dimensionless, since the units of A depend on alpha: `unit` is the time that they and the rate are in.
    """

    __slots__ = ()
    VARIED: ClassVar[tuple[str, ...]] = ("alpha", "strength", "cutoff", "detuning")

    unit: ClassVar[float]
    jumps: Sequence[str]

    def impossible(self) -> Iterator[str]:
        """No jump is named twice."""
        for name in dict.fromkeys(self.jumps):
            if self.jumps.count(name) > 1:
                yield f"jumps: {name} is named twice; once is enough"

    def rates(self, *noise: torch.Tensor) -> torch.Tensor:
        """See `ControlWorkload.rates`."""
        from ketscale.dynamics import noise_rates

        return (noise_rates(*noise) / self.unit)[..., None].expand(-1, -1, len(self.jumps))


class Relaxation:
    """Environments with relaxation times T1 and T2, whose jumps are relaxation and dephasing."""

    __slots__ = ()
    VARIED: ClassVar[tuple[str, ...]] = ("t1", "t2", "detuning")
    jumps: ClassVar[Sequence[str]] = ("relaxation", "dephasing")

    if TYPE_CHECKING:  # an annotation here would replace the workload's, with its bounds and meaning
        environment_spread: float
    t1: tuple[float, float]
    t2: tuple[float, float]

    def impossible(self) -> Iterator[str]:
        """T2 is at most 2 T1, in every environment."""
        most = 2 * self.t1[0] * (1 - self.environment_spread) / (1 + self.environment_spread)
        if self.t2[1] > most:
            yield (
                f"t2: reaches {self.t2[1]:g}, but T2 is at most 2 T1, here {most:g} with the shortest t1 (and its "
                "environment_spread); lower t2 or raise t1"
            )

    def rates(self, *noise: torch.Tensor) -> torch.Tensor:
        """See `ControlWorkload.rates` and `relaxation_rates`."""
        from ketscale.dynamics import relaxation_rates

        return relaxation_rates(*noise)


class Quantity(NamedTuple):
    """One number of a task, uniform between `low` and `high`."""

    name: str
    low: float
    high: float


class Rates(NamedTuple):
    """Environments as the engine takes them: rates (n, jumps) and parameters of the drift (n, terms)."""

    rates: torch.Tensor
    parameters: torch.Tensor


class ControlWorkload(Workload, frozen=True, kw_only=True):
    """Tasks of one system.

    VARIED: the ranges that a task's values are drawn from, by qubit, then by this order; the last is the detuning.
    qubits: the number of qubits of the system.
    """

    VARIED: ClassVar[tuple[str, ...]] = ()
    qubits: ClassVar[int] = 1
    later: ClassVar[frozenset[str]] = frozenset({"gate"})

    # Subclasses have them with defaults of their own.
    duration: float
    amplitude: float
    limit: float
    target: str | State

    # fmt: off
    gate: Annotated[Gate, Meta(description="Instead of the state `target`: the gate to make, a name, or the rows "
        "of a unitary, such as [[0, -1j], [1j, 0]]; one on one qubit acts on each at once. Tr(rho sigma) is then "
        "its mean over all pure states of the qubits")] | None = None

    fidelity: Annotated[Literal["overlap", "squared"], Meta(description="F in the loss 1 - F. overlap: Tr(rho sigma), the fidelity; "
        "squared: its square, as published")] = "overlap"
    environment_spread: Annotated[float, Meta(ge=0, lt=1, description="Largest relative difference of a task's two "
        "environments, in which it is adapted (support) and judged (query), from its values; with 0 the two are "
        "one")] = 0.0
    tasks: Annotated[int, Meta(ge=1, description="Training tasks, the same in every epoch; if left out, every step "
        "draws new ones")] | None = None
    epoch_steps: Annotated[Positive, Meta(description="Steps in an epoch if each step draws new tasks; the model "
        "is validated after each epoch")] = 50
    validation: Annotated[Positive, Meta(description="Tasks held out for validation")] = 100
    test: Annotated[Positive, Meta(description="Tasks held out for the test")] = 100
    seed: Annotated[Seed, Meta(description="Seed of the tasks for validation and test, and of fixed training "
        "tasks")] = 0
    # fmt: on

    @property
    def jumps(self) -> Sequence[str]:
        """Names of each qubit's jump operators, for systems that choose them by name: a setting, or those of T1 and T2."""
        raise NotImplementedError

    def system(self) -> System:
        """The system, with its operators. Detunings are added to its first parameters, one for each qubit."""
        raise NotImplementedError

    def rates(self, *noise: torch.Tensor) -> torch.Tensor:
        """The rates (n, qubits, jumps) of noise with these values (n, qubits), without the detuning."""
        raise NotImplementedError

    def impossible(self) -> Iterator[str]:
        """Faults of the noise beside those of all ranges, in the form of `faults`."""
        yield from ()

    def environment(self, values: torch.Tensor) -> Rates:
        """The environments of tasks with these values (n, quantities), in their precision."""
        *noise, detuning = values.unflatten(1, (self.qubits, -1)).unbind(2)
        parameters = values.new_tensor(_usual_parameters(self)).repeat(len(values), 1)
        parameters[:, : self.qubits] += detuning
        return Rates(self.rates(*noise).flatten(1), parameters)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The quantities of a task, in the order of its values."""
        return tuple(
            Quantity(name if self.qubits == 1 else f"{name}_{qubit}", *getattr(self, name))
            for qubit in range(1, self.qubits + 1)
            for name in self.VARIED
        )

    @property
    def varied(self) -> tuple[Quantity, ...]:
        """The quantities that differ from task to task, which are the models' inputs."""
        return tuple(quantity for quantity in self.quantities if quantity.high > quantity.low)

    @property
    def held_out(self) -> dict[str, int]:
        """Number of tasks by split."""
        return {"validation": self.validation, "test": self.test}

    def faults(self) -> Iterator[str]:
        """Ranges ascend, all their values are possible, and random starts are within the limit."""
        if self.amplitude > self.limit:
            yield f"amplitude: {self.amplitude:g} is over the limit of controls, {self.limit:g}; use at most that"
        if isinstance(self.target, tuple):
            yield from faults_of_numbers("target", (self.target,))
            if len(self.target) != 2**self.qubits:
                yield f"target: has {len(self.target)} amplitudes, and {self.qubits} qubit(s) have {2**self.qubits}"
        if self.gate is not None:
            yield from self._faults_of_gate(self.gate)
        for name in self.VARIED:
            low, high = getattr(self, name)
            if low > high:
                yield f"{name}: goes from {low:g} down to {high:g}; give the smaller number first"
        yield from self.impossible()

    def _faults_of_gate(self, gate: Gate) -> Iterator[str]:
        """It is one of the system's qubits, and takes the place of the state."""
        if not isinstance(gate, str):
            yield from faults_of_numbers("gate", gate)
        if qubits_of(gate) not in (1, self.qubits):
            yield f"gate: is on {qubits_of(gate)} qubits, and the system has {self.qubits}; choose another"
        (usual,) = (each.default for each in fields(self) if each.name == "target")
        if self.target != usual:
            yield "target: is the state that gate takes the place of; leave one of them out"

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """The system has its own number of qubits, and steps fit into segments."""
        run, sizes, simulator = settings.run, settings.sizes, settings.simulator
        if sizes["qubits"] != self.qubits:
            yield f"workload {run.workload} is a system of {self.qubits} qubit(s); set qubits: {self.qubits}"
        if settings.protocol.precision == "amp":
            yield f"protocol {run.protocol} has precision: amp, too coarse for the dynamics of {run.workload}; use fp32"
        if isinstance(simulator, DynamicsSimulator) and simulator.dt and sizes["segments"]:
            segment = self.duration / sizes["segments"]
            if simulator.batching == "loop" and simulator.dt > segment * (1 + 1e-12):
                yield (
                    f"simulator {run.simulator} has dt: {simulator.dt:g}, longer than a segment of {run.workload}, which "
                    f"takes {segment:g}; use at most that"
                )
            if simulator.dt < segment / MOST_STEPS:
                yield (
                    f"simulator {run.simulator} has dt: {simulator.dt:g}, more than {MOST_STEPS:,} steps in a segment of "
                    f"{run.workload}, which takes {segment:g}; use a longer one"
                )


@lru_cache(maxsize=16)
def _usual_parameters(workload: ControlWorkload) -> list[float]:
    return list(workload.system().parameters.values())


Duration = Annotated[Time, Meta(description="Duration of the pulse, in the system's unit of time")]
Amplitude = Annotated[
    AngularFrequency,
    Meta(description="Unit of the models' controls: a network's output of 1, and of random starts"),
]
Limit = Annotated[
    AngularFrequency, Meta(description="Largest magnitude of a control; models' controls are clamped to it")
]


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
    # fmt: off
    target: Annotated[Literal["x", "hadamard"] | State, Meta(description="x: X|0>; hadamard: H|0>; or the "
        "amplitudes of a state, such as [0.6, 0.8j]")] = "x"
    # fmt: on

    def system(self) -> System:
        """See `systems.qubit`."""
        from ketscale.dynamics import qubit

        return qubit(0.0, self.jumps)


class Transmon(ControlWorkload, frozen=True, kw_only=True):
    """A transmon, whose levels above the qubit a pulse must not fill; rad/ns and ns.

    The anharmonicity (-330 MHz) is that of Sheldon et al. (see `systems`).
    """

    unit: ClassVar[float] = 20.0

    # fmt: off
    anharmonicity: Annotated[Detuning, Meta(description="Frequency of the second transition minus that of the "
        "first, the qubit's, rad/ns")] = -2 * pi * 0.33
    levels: Annotated[int, Meta(ge=3, le=8, description="Levels that are simulated")] = 3
    detuning: Annotated[Detunings, Meta(description="Range of the qubit's frequency minus the drive's, rad/ns")] = (0.0, 0.0)
    duration: Duration = 20.0
    amplitude: Amplitude = 0.2
    limit: Limit = 2 * pi * 0.1
    target: Annotated[Literal["x", "hadamard"] | State, Meta(description="x: |1>; hadamard: (|0> + |1>) / sqrt(2); "
        "or the qubit's amplitudes, such as [0.6, 0.8j]")] = "x"
    # fmt: on

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
    # fmt: off
    difference: Annotated[Detuning, Meta(description="Frequency of qubit 1 minus that of qubit 2, which the drive "
        "has, rad/ns")] = 2 * pi * 0.2
    detuning: Annotated[Detunings, Meta(description="Range by which each qubit's frequency is off its usual value, "
        "rad/ns")] = (0.0, 0.0)
    duration: Duration = 160.0
    amplitude: Amplitude = 0.2
    limit: Limit = 2 * pi * 0.1
    target: Annotated[Literal["bell", "x"] | State, Meta(description="bell: (|00> + |11>) / sqrt(2); x: |10>, X on "
        "qubit 1; or a state's amplitudes, such as [0, 0.6, 0.8j, 0]")] = "bell"
    # fmt: on

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
