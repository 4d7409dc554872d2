"""The settings of `control`: workloads, models and simulators, and the metrics of its tasks. Imports nothing heavy.

Workloads are distributions of tasks of a qubit, with a spectrum or relaxation times.

A task is an environment: a value for each range that `VARIED` names, uniform in the range. The values are inputs of the
models, except those whose range has no width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from msgspec import Meta

from ketscale.config import Metric, Model, Positive, Sampling, Seed, Settings, Simulator, Workload
from ketscale.engines import quantities
from ketscale.engines.dynamics.methods import DEVICES, SIMULATORS, Batching, Creation, DynamicsMethod, Route
from ketscale.engines.quantities import Detuning, Lifetime, Step

if TYPE_CHECKING:
    import torch

    from ketscale.dynamics import System

    Device = str
else:
    Device = Literal[DEVICES]


class Quantity(NamedTuple):
    """One number of a task, uniform between `low` and `high`."""

    name: str
    low: float
    high: float


class Rates(NamedTuple):
    """Environments as the engine needs them: rates (n, jumps) and parameters of the drift (n, terms)."""

    rates: torch.Tensor
    parameters: torch.Tensor


class ControlWorkload(Workload, frozen=True, kw_only=True):
    """Tasks of one system.

    VARIED: the ranges that a task's values are drawn from, in this order; the last is the detuning. duration: of the pulse.
    amplitude: unit of the models' controls, a network's output of 1, and of random starts. limit: the largest magnitude of
    a control, to which models' controls are clamped. target: the name of the state that pulses make of |0>.
    """

    VARIED: ClassVar[tuple[str, ...]] = ()
    former: ClassVar[Mapping[str, Any]] = MappingProxyType({"environment_spread": 0.0, "tasks": None})

    duration: ClassVar[float]
    amplitude: ClassVar[float]
    limit: ClassVar[float]
    target: ClassVar[str]

    # fmt: off
    fidelity: Annotated[Literal["overlap", "squared"], Meta(description="F in the loss 1 - F. overlap: Tr(rho sigma), the fidelity; "
        "squared: its square, as published")] = "overlap"
    epoch_steps: Annotated[Positive, Meta(description="Steps in an epoch, each with new tasks; the model is validated "
        "after each epoch")] = 50
    validation: Annotated[Positive, Meta(description="Tasks held out for validation")] = 100
    test: Annotated[Positive, Meta(description="Tasks held out for the test")] = 100
    seed: Annotated[Seed, Meta(description="Seed of the tasks for validation and test")] = 0
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
        parameters = values.new_tensor(_default_parameters(self)).repeat(len(values), 1)
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
        """Ranges ascend."""
        for name in self.VARIED:
            low, high = getattr(self, name)
            if low > high:
                yield f"{name}: goes from {low:g} down to {high:g}; give the smaller number first"

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """The system is one qubit, in a precision that its dynamics need."""
        run = settings.run
        if settings.sizes["qubits"] != 1:
            yield f"workload {run.workload} is a system of 1 qubit; set qubits: 1"
        if settings.protocol.precision == "amp":
            yield f"protocol {run.protocol} has precision: amp, too coarse for the dynamics of {run.workload}; use fp32"


@lru_cache(maxsize=16)
def _default_parameters(workload: ControlWorkload) -> list[float]:
    return list(workload.system().parameters.values())


# The published ranges, section 4 of the ledger of systems, in which 1 is a pulse's duration.
ALPHA, STRENGTH, CUTOFF = (0.5, 2.0), (1e-3, 1e-2), (100.0, 1000.0)
Lifetimes = tuple[Lifetime, Lifetime]


class Qubit(ControlWorkload, frozen=True, kw_only=True):
    """The published qubit; dimensionless, with a pulse of duration 1 that makes X|0>."""

    duration: ClassVar[float] = 1.0
    amplitude: ClassVar[float] = 2.0
    limit: ClassVar[float] = 10.0
    target: ClassVar[str] = "x"
    former: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            **ControlWorkload.former,
            "duration": duration,
            "amplitude": amplitude,
            "limit": limit,
            "target": target,
        }
    )

    detuning: Annotated[tuple[Detuning, Detuning], Meta(description="Range of the factor of Z in H; published: "
        "0.1")] = (0.1, 0.1)  # fmt: skip


class QubitSpectrum(Qubit, frozen=True, kw_only=True):
    """The published tasks: a qubit in an environment with spectrum A / (omega^alpha + omega_c^alpha); dimensionless.

    Its three jumps X, Y and Z have equal rates, which turn every pulse's fidelity F0 without noise into
    1/2 + (F0 - 1/2) exp(-4 rate duration). So whatever their noise, tasks with one detuning have one best pulse.
    """

    VARIED: ClassVar[tuple[str, ...]] = ("alpha", "strength", "cutoff", "detuning")
    former: ClassVar[Mapping[str, Any]] = MappingProxyType({**Qubit.former, "jumps": ["x", "y", "z"]})

    # fmt: off
    alpha: Annotated[tuple[quantities.Exponent, quantities.Exponent], Meta(description="Range of the spectrum's "
        "exponent; 2 is a Lorentzian")] = ALPHA
    strength: Annotated[tuple[quantities.Strength, quantities.Strength], Meta(description="Range of the spectrum's "
        "amplitude A")] = STRENGTH
    cutoff: Annotated[tuple[quantities.Cutoff, quantities.Cutoff], Meta(description="Range of omega_c")] = CUTOFF
    # fmt: on

    def system(self) -> System:
        """See `systems.qubit`."""
        from ketscale.dynamics import qubit

        return qubit(0.0, ("x", "y", "z"))

    def rates(self, *noise: torch.Tensor) -> torch.Tensor:
        """See `ControlWorkload.rates` and `noise_rates`."""
        from ketscale.dynamics import noise_rates

        return noise_rates(*noise)[..., None].expand(-1, 3)


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


# Numbers of adaptation steps whose infidelity is always measured.
ADAPTATION_STEPS = (0, 1, 5, 20)

# The deviations of the run's propagator; see `problem.deviations`.
DEVIATIONS = (
    Metric("exact_infidelity", "infidelity of the pulses by exact propagation", "", "down"),
    Metric("simulator_error", "largest error of a random pulse's fidelity", "", "down", about="error"),
    Metric("negativity", "negativity of a random pulse's state", "", "down"),
)

METRICS = (
    Metric("infidelity", "infidelity", "", "down", chance="data"),
    *(
        Metric(f"infidelity_{steps}", f"infidelity after {steps} adaptation steps", "", "down")
        for steps in ADAPTATION_STEPS
    ),
    *DEVIATIONS,
)

# The aims of a policy's training; see `meta_learning.meta_loss`.
Adaptation = Literal["fomaml", "maml", "reptile", "multi-task"]


class NetworkSettings(Model, frozen=True, kw_only=True):
    """A model of any number of tasks, which is adapted to each by gradient steps."""

    stacks: ClassVar[bool] = True

    inner_steps: Annotated[int, Meta(ge=1, le=1000, description="Gradient steps on a task, after which it is "
        "judged")] = 10  # fmt: skip
    inner_learning_rate: Annotated[float, Meta(gt=0, description="Learning rate of these steps")] = 0.02


class PolicySettings(NetworkSettings, frozen=True, kw_only=True):
    """A network that makes a pulse from a task's values, and is adapted to the task by gradient steps."""

    implementation: ClassVar[str] = "ketscale.problems.control.policy:Policy"
    control: ClassVar[str | None] = "robust_grape"

    # fmt: off
    adaptation: Annotated[Adaptation, Meta(description="Aim of the training. fomaml: weights to adapt from, with "
        "first-order gradients, as published; maml: the same with all derivatives; reptile: the same, towards the "
        "adapted weights; multi-task: weights that are good without adaptation")] = "fomaml"
    inputs: Annotated[Literal["raw", "normalised"], Meta(description="raw: a task's values, as published; "
        "normalised: from their ranges to -1..1")] = "raw"
    batching: Annotated[Literal["broadcast", "loop"], Meta(description="Evaluation in training. broadcast: the "
        "network is evaluated for all tasks at once; loop: network and dynamics for one after the other, as first "
        "published")] = "broadcast"
    # fmt: on
    width: Annotated[int, Meta(ge=1, le=4096, description="Width of the hidden layers")] = 128
    depth: Annotated[int, Meta(ge=1, le=16, description="Number of hidden layers")] = 3

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Tasks that are all the same give a policy no inputs."""
        assert isinstance(settings.workload, ControlWorkload)
        if not settings.workload.varied:
            yield (
                f"workload {settings.run.workload} has one task only, and {settings.run.model} needs values that vary; "
                f"give {' or '.join(settings.workload.VARIED)} a range"
            )


class RobustSettings(NetworkSettings, frozen=True, kw_only=True):
    """One pulse for all tasks, trained on their mean loss; before it is judged, it is adapted to each task."""

    implementation: ClassVar[str] = "ketscale.problems.control.policy:RobustPulse"


class GrapeSettings(Model, frozen=True, kw_only=True):
    """The controls of each held-out task, optimised directly (GRAPE): the best that any other model could reach.

    Khaneja et al., J. Magn. Reson. 172, 296 (2005). Each of eight random starts of each task is a minimisation of its own.
    """

    implementation: ClassVar[str] = "ketscale.problems.control.grape:TaskPulses"
    former: ClassVar[Mapping[str, Any]] = MappingProxyType({"starts": 8})
    # All held-out tasks are in every step.
    sampling: ClassVar[Sampling | None] = "all"

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Tasks share nothing that would make one depend on the others."""
        for setting in ("clip_norm", "plateau"):
            if getattr(settings.protocol, setting) is not None:
                yield (
                    f"protocol {settings.run.protocol} has {setting}, through which the tasks of {settings.run.model} "
                    "would affect each other; leave it out"
                )


_IN_WORDS: dict[Batching, str] = {"broadcast": "all tasks at once", "loop": "one task after the other"}


class DynamicsSimulator(Simulator, frozen=True, kw_only=True):
    """How the dynamics of tasks are evaluated and differentiated."""

    devices: ClassVar[tuple[str, ...]] = DEVICES

    # fmt: off
    device: Annotated[Device, Meta(description="exact: the exponential of each segment's Liouvillian; rk4, euler: "
        "integrators with a step")]
    batching: Annotated[Batching, Meta(description="broadcast: all tasks at once; loop: one after the other, step by "
        "step, as published")] = "broadcast"
    dt: Annotated[Step, Meta(description="Step of an integrator, a time in the same unit as the pulse's duration: "
        "with broadcast the longest one, with loop as many as fit into a segment, as published")] | None = None
    route: Annotated[Route, Meta(description="With broadcast. compiled: machine code, on the CPU; torch: torch's "
        "operators; auto: compiled on the CPU, else torch")] = "auto"
    cache: Annotated[bool, Meta(description="With loop. true: what is created for a task (rates from its spectrum, "
        "operators) is kept for its next evaluations, as published; false: it is created again in each")] = False
    tolerance: Annotated[float, Meta(gt=0, description="The largest relative difference of an integrator's losses "
        "from those of exact, as measured; parity allows it")] | None = None
    # fmt: on

    @property
    def stacks(self) -> bool:
        """Whether several runs' tasks are one batch: a loop would take as long for them as before."""
        return self.batching == "broadcast"

    @property
    def method(self) -> DynamicsMethod | None:
        """The propagator with this device and batching; None if there is none."""
        key = (self.device, self.batching)
        return next((each for each in SIMULATORS.values() if (each.device, each.batching) == key), None)

    @property
    def creation(self) -> Creation:
        """When tasks are created."""
        return "batch" if self.batching == "broadcast" else "once" if self.cache else "again"

    def faults(self) -> Iterator[str]:
        """An integrator has a step and a tolerance, exact has neither; only some have a route, and only a loop a cache."""
        method = self.method
        if method is None:
            others = [each for each in SIMULATORS.values() if each.device == self.device]
            yield f"batching: {self.device} evolves {' or '.join(_IN_WORDS[each.batching] for each in others)} only"
            return
        for name, value in (("dt", self.dt), ("tolerance", self.tolerance)):
            if method.exact and value is not None:
                yield f"{name}: {self.device} does not support it; leave it out"
            if not method.exact and value is None:
                yield f"{name}: {self.device} needs one"
        if not method.routes and self.route != "auto":
            yield f"route: {self.device} with batching: {self.batching} does not support it; leave it out"
        if self.batching != "loop" and self.cache:
            yield "cache: only a loop creates something for each task; leave it out, or use batching: loop"
