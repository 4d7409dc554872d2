"""The base of all workloads of control: distributions of tasks. Imports nothing heavy.

A task is an environment: a value for each range that `VARIED` names, uniform in the range. The values are inputs of the
models, except those whose range has no width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

from msgspec import Meta

from ketscale.config import Positive, Seed, Settings, Workload
from ketscale.engines.dynamics.settings import MOST_STEPS, DynamicsSimulator, Form
from ketscale.engines.quantities import AngularFrequency, Time

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

    VARIED: the ranges that a task's values are drawn from, by qubit, then by this order; the last is the detuning.
    qubits: the number of qubits of the system.
    """

    VARIED: ClassVar[tuple[str, ...]] = ()
    qubits: ClassVar[int] = 1

    # Subclasses have them with defaults of their own.
    duration: float
    amplitude: float
    limit: float
    target: str

    fidelity: Annotated[
        Form,
        Meta(
            description="F in the loss 1 - F. overlap: Tr(rho sigma), the fidelity; squared: its square, as published"
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
        Meta(
            description="Steps in an epoch if each step draws new tasks; the model is validated after each epoch"
        ),
    ] = 50
    validation: Annotated[Positive, Meta(description="Tasks held out for validation")] = 100
    test: Annotated[Positive, Meta(description="Tasks held out for the test")] = 100
    seed: Annotated[
        Seed, Meta(description="Seed of the tasks for validation and test, and of fixed training tasks")
    ] = 0

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
        for name in self.VARIED:
            low, high = getattr(self, name)
            if low > high:
                yield f"{name}: goes from {low:g} down to {high:g}; give the smaller number first"
        yield from self.impossible()

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
