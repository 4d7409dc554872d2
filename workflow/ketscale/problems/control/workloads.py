"""The workloads of control: distributions of tasks of a qubit, with a spectrum or relaxation times. Imports nothing heavy.

A task is an environment: a value for each range that `VARIED` names, uniform in the range. The values are inputs of the
models, except those whose range has no width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from msgspec import Meta

from ketscale.config import Positive, Seed, Settings, Workload
from ketscale.config.simulators.dynamics import DynamicsSimulator
from ketscale.engines import quantities
from ketscale.engines.dynamics.methods import MOST_STEPS
from ketscale.engines.quantities import AngularFrequency, Detuning, Lifetime, Time

if TYPE_CHECKING:
    import torch

    from ketscale.dynamics import System


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

    VARIED: the ranges that a task's values are drawn from, in this order; the last is the detuning.
    """

    VARIED: ClassVar[tuple[str, ...]] = ()
    former: ClassVar[Mapping[str, Any]] = MappingProxyType({"environment_spread": 0.0})

    # Subclasses have them with defaults of their own.
    duration: float
    amplitude: float
    limit: float
    target: str

    # fmt: off
    fidelity: Annotated[Literal["overlap", "squared"], Meta(description="F in the loss 1 - F. overlap: Tr(rho sigma), the fidelity; "
        "squared: its square, as published")] = "overlap"
    tasks: Annotated[int, Meta(ge=1, description="Training tasks, the same in every epoch; if left out, every step "
        "draws new ones")] | None = None
    epoch_steps: Annotated[Positive, Meta(description="Steps in an epoch if each step draws new tasks; the model "
        "is validated after each epoch")] = 50
    validation: Annotated[Positive, Meta(description="Tasks held out for validation")] = 100
    test: Annotated[Positive, Meta(description="Tasks held out for the test")] = 100
    seed: Annotated[Seed, Meta(description="Seed of the tasks for validation and test, and of fixed training "
        "tasks")] = 0
    # fmt: on

    def system(self) -> System:
        """The system, with its operators. Detunings are added to its first parameter."""
        raise NotImplementedError

    def rates(self, *noise: torch.Tensor) -> torch.Tensor:
        """The rates (n, jumps) of noise with these values (n,), without the detuning."""
        raise NotImplementedError

    def environment(self, values: torch.Tensor) -> Rates:
        """The environments of tasks with these values (n, quantities), in their precision."""
        *noise, detuning = values.unbind(1)
        parameters = values.new_tensor(_usual_parameters(self)).repeat(len(values), 1)
        parameters[:, 0] += detuning
        return Rates(self.rates(*noise), parameters)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The quantities of a task, in the order of its values."""
        return tuple(Quantity(name, *getattr(self, name)) for name in self.VARIED)

    @property
    def varied(self) -> tuple[Quantity, ...]:
        """The quantities that differ from task to task, which are the models' inputs."""
        return tuple(quantity for quantity in self.quantities if quantity.high > quantity.low)

    @property
    def held_out(self) -> dict[str, int]:
        """Number of tasks by split."""
        return {"validation": self.validation, "test": self.test}

    def faults(self) -> Iterator[str]:
        """Ranges ascend, and random starts are within the limit."""
        if self.amplitude > self.limit:
            yield f"amplitude: {self.amplitude:g} is over the limit of controls, {self.limit:g}; use at most that"
        for name in self.VARIED:
            low, high = getattr(self, name)
            if low > high:
                yield f"{name}: goes from {low:g} down to {high:g}; give the smaller number first"

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """The system is one qubit, and steps fit into segments."""
        run, sizes, simulator = settings.run, settings.sizes, settings.simulator
        if sizes["qubits"] != 1:
            yield f"workload {run.workload} is a system of 1 qubit; set qubits: 1"
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


# fmt: off
Duration = Annotated[Time, Meta(description="Duration of the pulse, in the system's unit of time")]
Amplitude = Annotated[AngularFrequency, Meta(description="Unit of the models' controls: a network's output of 1, and of "
    "random starts")]
Limit = Annotated[AngularFrequency, Meta(description="Largest magnitude of a control; models' controls are clamped to "
    "it")]
# fmt: on


# The published ranges, section 4 of the ledger of systems, in which 1 is a pulse's duration.
ALPHA, STRENGTH, CUTOFF = (0.5, 2.0), (1e-3, 1e-2), (100.0, 1000.0)
Lifetimes = tuple[Lifetime, Lifetime]
Jump = Literal["x", "y", "z", "relaxation", "dephasing"]


class Qubit(ControlWorkload, frozen=True, kw_only=True):
    """The published qubit; dimensionless, with a pulse of duration 1."""

    # fmt: off
    detuning: Annotated[tuple[Detuning, Detuning], Meta(description="Range of the factor of Z in H; published: "
        "0.1")] = (0.1, 0.1)
    duration: Duration = 1.0
    amplitude: Amplitude = 2.0
    limit: Limit = 10.0
    target: Annotated[Literal["x", "hadamard"], Meta(description="x: X|0>; hadamard: H|0>")] = "x"
    # fmt: on


class QubitSpectrum(Qubit, frozen=True, kw_only=True):
    """The published tasks: a qubit in an environment with spectrum A / (omega^alpha + omega_c^alpha); dimensionless.

    Its three jumps X, Y and Z have equal rates, which turn every pulse's fidelity F0 without noise into
    1/2 + (F0 - 1/2) exp(-4 rate duration). So whatever their noise, tasks with one detuning have one best pulse.
    """

    VARIED: ClassVar[tuple[str, ...]] = ("alpha", "strength", "cutoff", "detuning")

    # fmt: off
    alpha: Annotated[tuple[quantities.Exponent, quantities.Exponent], Meta(description="Range of the spectrum's "
        "exponent; 2 is a Lorentzian")] = ALPHA
    strength: Annotated[tuple[quantities.Strength, quantities.Strength], Meta(description="Range of the spectrum's "
        "amplitude A")] = STRENGTH
    cutoff: Annotated[tuple[quantities.Cutoff, quantities.Cutoff], Meta(description="Range of omega_c")] = CUTOFF
    jumps: Annotated[tuple[Jump, ...], Meta(min_length=1, description="Jump operators, which all have the spectrum's "
        "rate. x, y, z: Pauli matrices; relaxation: |0><1|; dephasing: Z / sqrt(2), whose rate is that at which "
        "coherence decays")] = ("x", "y", "z")
    # fmt: on

    def system(self) -> System:
        """See `systems.qubit`."""
        from ketscale.dynamics import qubit

        return qubit(0.0, self.jumps)

    def rates(self, *noise: torch.Tensor) -> torch.Tensor:
        """See `ControlWorkload.rates` and `noise_rates`."""
        from ketscale.dynamics import noise_rates

        return noise_rates(*noise)[..., None].expand(-1, len(self.jumps))

    def faults(self) -> Iterator[str]:
        """No jump is named twice."""
        yield from super().faults()
        for name in dict.fromkeys(self.jumps):
            if self.jumps.count(name) > 1:
                yield f"jumps: {name} is named twice; once is enough"


class QubitRelaxation(Qubit, frozen=True, kw_only=True):
    """A qubit that relaxes and dephases; times in units of a pulse's duration of 1, rates chosen to be felt."""

    VARIED: ClassVar[tuple[str, ...]] = ("t1", "t2", "detuning")

    t1: Annotated[Lifetimes, Meta(description="Range of T1")] = (20.0, 100.0)
    t2: Annotated[Lifetimes, Meta(description="Range of T2, at most 2 T1")] = (10.0, 40.0)

    def system(self) -> System:
        """See `systems.qubit`."""
        from ketscale.dynamics import qubit

        return qubit(0.0, ("relaxation", "dephasing"))

    def rates(self, *noise: torch.Tensor) -> torch.Tensor:
        """See `ControlWorkload.rates` and `relaxation_rates`."""
        from ketscale.dynamics import relaxation_rates

        return relaxation_rates(*noise)

    def faults(self) -> Iterator[str]:
        """T2 is at most 2 T1, in every environment."""
        yield from super().faults()
        most = 2 * self.t1[0]
        if self.t2[1] > most:
            yield f"t2: reaches {self.t2[1]:g}, but T2 is at most 2 T1, here {most:g} with the shortest t1; lower t2 or raise t1"
