"""The settings of distributions of tasks, one kind for each system and noise. Imports nothing heavy.

A task is an environment: the values of what `VARIED` names, each uniform in its range. The ranges are inputs of the
models, except those without a width.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import pi
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

from msgspec import Meta

from ketscale.config import Count, Positive, Seed, Settings, Workload
from ketscale.engines.dynamics.settings import DynamicsSimulator

if TYPE_CHECKING:
    import torch

    from ketscale.engines.dynamics import System

Range = tuple[float, float]


class Quantity(NamedTuple):
    """One number of a task, uniform between `low` and `high`; `setting` is the range that the config gives."""

    name: str
    setting: str
    low: float
    high: float


class Rates(NamedTuple):
    """What the engine needs of environments: rates (n, jumps) and parameters of the drift (n, terms)."""

    rates: torch.Tensor
    parameters: torch.Tensor


class ControlWorkload(Workload, frozen=True, kw_only=True):
    """Tasks of one system.

    VARIED: the ranges that a task's values are drawn from, by qubit, then by this order. qubits: of the system.
    POSITIVE: those whose values are above 0.
    """

    VARIED: ClassVar[tuple[str, ...]] = ()
    POSITIVE: ClassVar[tuple[str, ...]] = ()
    qubits: ClassVar[int] = 1

    # Subclasses have them with defaults of their own.
    duration: float
    amplitude: float
    limit: float
    target: str

    fidelity: Annotated[
        Literal["overlap", "squared"],
        Meta(
            description="In the loss 1 - F. overlap: Tr(rho sigma), the fidelity; squared: its square, as published"
        ),
    ] = "overlap"
    environment_spread: Annotated[
        float,
        Meta(
            ge=0,
            lt=1,
            description="Largest relative difference of a task's two environments, in which it is adapted (support) and "
            "judged (query), from its values; with 0 the two are one",
        ),
    ] = 0.0
    tasks: (
        Annotated[
            int,
            Meta(
                ge=1,
                description="Training tasks, the same in every epoch; if left out, every step draws new ones",
            ),
        ]
        | None
    ) = None
    epoch_steps: Annotated[
        Positive,
        Meta(description="Steps in an epoch, after which is validated, where each step draws new tasks"),
    ] = 50
    validation: Annotated[Positive, Meta(description="Tasks held out for validation")] = 100
    test: Annotated[Positive, Meta(description="Tasks held out for the test")] = 100
    seed: Annotated[
        Seed, Meta(description="Of the tasks for validation and test, and of fixed training tasks")
    ] = 0

    def system(self) -> System:
        """The system, with its operators."""
        raise NotImplementedError

    def environment(self, values: torch.Tensor) -> Rates:
        """The environments of tasks with these values (n, quantities), in their precision."""
        raise NotImplementedError

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """What a task consists of, in the order of its values."""
        return tuple(
            Quantity(name if self.qubits == 1 else f"{name}_{qubit}", name, *getattr(self, name))
            for qubit in range(1, self.qubits + 1)
            for name in self.VARIED
        )

    @property
    def varied(self) -> tuple[Quantity, ...]:
        """Those that differ from task to task, which are the models' inputs."""
        return tuple(quantity for quantity in self.quantities if quantity.high > quantity.low)

    @property
    def held_out(self) -> dict[str, Count]:
        """Number of tasks by split."""
        return {"validation": self.validation, "test": self.test}

    def faults(self) -> Iterator[str]:
        """Ranges ascend, all their values are possible, and random starts are within the limit."""
        if self.amplitude > self.limit:
            yield f"amplitude: {self.amplitude:g} is over the limit of controls, {self.limit:g}; use at most that"
        for name in self.VARIED:
            low, high = getattr(self, name)
            if low > high:
                yield f"{name}: goes from {low:g} down to {high:g}; give the smaller number first"
            elif name in self.POSITIVE and low <= 0:
                yield f"{name}: must be above 0, and its range begins at {low:g}"

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """The system has its own number of qubits, and steps fit into segments."""
        run, sizes, simulator = settings.run, settings.sizes, settings.simulator
        if sizes["qubits"] != self.qubits:
            yield f"workload {run.workload} is a system of {self.qubits} qubit(s); set qubits: {self.qubits}"
        if settings.protocol.precision == "amp":
            yield f"protocol {run.protocol} has precision: amp, too coarse for the dynamics of {run.workload}; use fp32"
        if isinstance(simulator, DynamicsSimulator) and simulator.dt and sizes["segments"]:
            segment = self.duration / sizes["segments"]
            if simulator.dt > segment * (1 + 1e-12):
                yield (
                    f"simulator {run.simulator} has dt: {simulator.dt:g}, longer than a segment of {run.workload}, which "
                    f"takes {segment:g}; use at most that"
                )


Duration = Annotated[float, Meta(gt=0, description="Of the pulse, in the system's unit of time")]
Amplitude = Annotated[
    float,
    Meta(gt=0, description="Unit of the models' controls: a network's output of 1, and of random starts"),
]
Limit = Annotated[
    float, Meta(gt=0, description="Largest magnitude of a control; models' controls are clamped to it")
]


class QubitSpectrum(ControlWorkload, frozen=True, kw_only=True):
    """The published tasks: a qubit in an environment with spectrum A / (omega^alpha + omega_c^alpha); dimensionless.

    Its three jumps X, Y and Z have equal rates, which turn every pulse's fidelity F0 without noise into
    1/2 + (F0 - 1/2) exp(-4 rate duration). So whatever their noise, tasks with one detuning have one best pulse.
    """

    VARIED: ClassVar[tuple[str, ...]] = ("alpha", "strength", "cutoff", "detuning")
    POSITIVE: ClassVar[tuple[str, ...]] = ("cutoff",)

    alpha: Annotated[Range, Meta(description="Range of the spectrum's exponent; 2 is a Lorentzian")] = (
        0.5,
        2.0,
    )
    strength: Annotated[Range, Meta(description="Range of the spectrum's amplitude A")] = (1e-3, 1e-2)
    cutoff: Annotated[Range, Meta(description="Range of omega_c")] = (100.0, 1000.0)
    detuning: Annotated[Range, Meta(description="Range of the factor of Z in H; published: 0.1")] = (0.1, 0.1)
    duration: Duration = 1.0
    amplitude: Amplitude = 2.0
    limit: Limit = 10.0
    target: Annotated[Literal["x", "hadamard"], Meta(description="x: X|0>; hadamard: H|0>")] = "x"

    def faults(self) -> Iterator[str]:
        """As for all tasks; and no rate is negative."""
        yield from super().faults()
        for name in ("alpha", "strength"):
            if getattr(self, name)[0] < 0:
                yield f"{name}: must be at least 0, and its range begins at {getattr(self, name)[0]:g}"

    def system(self) -> System:
        """See `systems.qubit`."""
        from ketscale.engines.dynamics import qubit

        return qubit()

    def environment(self, values: torch.Tensor) -> Rates:
        """See `noise.noise_rates`."""
        from ketscale.engines.dynamics import noise_rates

        alpha, strength, cutoff, detuning = values.unbind(1)
        return Rates(noise_rates(alpha, strength, cutoff)[:, None].expand(-1, 3), detuning[:, None])


class _Relaxing(ControlWorkload, frozen=True, kw_only=True):
    """Tasks given by relaxation times and detunings, of each qubit; see `noise.relaxation_rates`."""

    VARIED: ClassVar[tuple[str, ...]] = ("t1", "t2", "detuning")
    POSITIVE: ClassVar[tuple[str, ...]] = ("t1", "t2")

    t1: Range
    t2: Range
    detuning: Range

    def faults(self) -> Iterator[str]:
        """As for all tasks; and T2 is at most 2 T1, in every environment."""
        yield from super().faults()
        most = 2 * self.t1[0] * (1 - self.environment_spread) / (1 + self.environment_spread)
        if self.t2[1] > most:
            yield (
                f"t2: reaches {self.t2[1]:g}, but T2 is at most 2 T1, here {most:g} with the shortest t1 (and its "
                "environment_spread); lower t2 or raise t1"
            )

    def environment(self, values: torch.Tensor) -> Rates:
        """The rates of each qubit's two jumps; the detuning is the drift's first term."""
        from ketscale.engines.dynamics import relaxation_rates

        t1, t2, detuning = values.unbind(1)
        return Rates(relaxation_rates(t1, t2), self._parameters(detuning[:, None]))

    def _parameters(self, first: torch.Tensor) -> torch.Tensor:
        """All parameters of the drift, of which the `first` ones (n, ...) are the tasks' own."""
        import torch

        rest = list(self.system().parameters.values())[first.shape[1] :]
        return torch.cat([first, first.new_tensor(rest).expand(len(first), -1)], 1)


class QubitRelaxation(_Relaxing, frozen=True, kw_only=True):
    """A qubit that relaxes and dephases; times in units of a pulse's duration of 1, rates chosen to be felt."""

    t1: Annotated[Range, Meta(description="Range of T1")] = (20.0, 100.0)
    t2: Annotated[Range, Meta(description="Range of T2, at most 2 T1")] = (10.0, 40.0)
    detuning: Annotated[Range, Meta(description="Range of the factor of Z in H")] = (0.1, 0.1)
    duration: Duration = 1.0
    amplitude: Amplitude = 2.0
    limit: Limit = 10.0
    target: Annotated[Literal["x", "hadamard"], Meta(description="x: X|0>; hadamard: H|0>")] = "x"

    def system(self) -> System:
        """See `systems.qubit`."""
        from ketscale.engines.dynamics import qubit

        return qubit(noise="relaxation")


class Transmon(_Relaxing, frozen=True, kw_only=True):
    """A transmon of three levels, the third of which a pulse must not fill; rad/ns and ns.

    Anharmonicity (-330 MHz) and T1 and T2, around 38 and 50 us, are those of Sheldon et al. (see `systems`).
    """

    t1: Annotated[Range, Meta(description="Range of T1, ns")] = (30e3, 50e3)
    t2: Annotated[Range, Meta(description="Range of T2, ns, at most 2 T1")] = (40e3, 60e3)
    detuning: Annotated[
        Range, Meta(description="Range of the qubit's frequency minus the drive's, rad/ns")
    ] = (
        0.0,
        0.0,
    )
    duration: Duration = 20.0
    amplitude: Amplitude = 0.2
    limit: Limit = 2 * pi * 0.1
    target: Annotated[
        Literal["x", "hadamard"], Meta(description="x: |1>; hadamard: (|0> + |1>) / sqrt(2)")
    ] = "x"

    def system(self) -> System:
        """See `systems.transmon`."""
        from ketscale.engines.dynamics import transmon

        return transmon()


class CoupledQubits(_Relaxing, frozen=True, kw_only=True):
    """Two transmons, as qubits, with a fixed exchange coupling; rad/ns and ns.

    Coupling (3.8 MHz), the qubits' difference (200 MHz), T1 and T2 and a gate of 160 ns are those of Sheldon et al. (see
    `systems`). The drive is resonant with qubit 2.
    """

    qubits: ClassVar[int] = 2

    t1: Annotated[Range, Meta(description="Range of each qubit's T1, ns")] = (30e3, 50e3)
    t2: Annotated[Range, Meta(description="Range of each qubit's T2, ns, at most 2 T1")] = (40e3, 60e3)
    detuning: Annotated[
        Range, Meta(description="Range by which each qubit's frequency is off its usual value, rad/ns")
    ] = (0.0, 0.0)
    duration: Duration = 160.0
    amplitude: Amplitude = 0.2
    limit: Limit = 2 * pi * 0.1
    target: Annotated[
        Literal["bell", "x"], Meta(description="bell: (|00> + |11>) / sqrt(2); x: |10>, X on qubit 1")
    ] = "bell"

    def system(self) -> System:
        """See `systems.coupled_qubits`."""
        from ketscale.engines.dynamics import coupled_qubits

        return coupled_qubits()

    def environment(self, values: torch.Tensor) -> Rates:
        """The rates of the jumps of qubit 1, then of qubit 2."""
        from ketscale.engines.dynamics import relaxation_rates

        t1, t2, off = values.unflatten(1, (self.qubits, -1)).unbind(2)
        usual = values.new_tensor(list(self.system().parameters.values())[: self.qubits])
        return Rates(relaxation_rates(t1, t2).flatten(1), self._parameters(usual + off))


WORKLOADS: dict[str, type[ControlWorkload]] = {
    "qubit-spectrum": QubitSpectrum,
    "qubit-relaxation": QubitRelaxation,
    "transmon": Transmon,
    "coupled-qubits": CoupledQubits,
}
