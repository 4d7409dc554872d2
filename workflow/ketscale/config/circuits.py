"""The settings of a circuit simulator, and the sizes of models with circuits. Imports nothing heavy, since configs are checked with it at every start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias

from msgspec import Meta

from ketscale.config import Settings, Simulator, SizeAxis
from ketscale.config.block import Block
from ketscale.engines.circuits.registry import METHODS, SIMULATORS, CircuitMethod
from ketscale.words import counted

# The size axes of models with circuits.
# One state of 30 qubits takes 16 GiB in double precision.
CIRCUIT_SIZES = (
    SizeAxis("q", "qubits", "qubits", most=30),
    SizeAxis("l", "layers", "circuit layers", "depth"),
)
# The values of the settings that choose a simulator.
DEVICES = tuple(sorted({method.device for method in SIMULATORS.values()}))
if TYPE_CHECKING:
    Device: TypeAlias = str
    Gradient: TypeAlias = str
else:
    Device = Literal[DEVICES]
    Gradient = Literal[tuple(sorted({method.gradient for method in METHODS}))]


Strength = Annotated[float, Meta(ge=0, le=1)]


class Noise(Block, frozen=True, kw_only=True):
    """Channels after the gates of every circuit; see `engines.noise.model`."""

    # fmt: off
    one_qubit: Annotated[Strength, Meta(description="Strength of depolarising after each gate on one qubit")] = 0.0
    two_qubits: Annotated[Strength, Meta(description="Strength of depolarising of both qubits after each gate on "
        "two, and of each one after a gate on more")] = 0.0
    damping: Annotated[Strength, Meta(description="Strength of amplitude damping of each qubit of a gate, after "
        "it")] = 0.0
    readout: Annotated[tuple[Strength, Strength], Meta(description="Probabilities to read 1 from 0, and 0 from "
        "1")] = (0.0, 0.0)
    # fmt: on

    @property
    def words(self) -> str:
        """How it is labelled in tables and figures."""
        return "noise " + ", ".join(
            f"{value:g}" for value in (self.one_qubit, self.two_qubits, self.damping, *self.readout)
        )


class CircuitSimulator(Simulator, frozen=True, kw_only=True):
    """How a circuit is evaluated, differentiated and given a batch, and where."""

    devices: ClassVar[tuple[str, ...]] = DEVICES
    later: ClassVar[frozenset[str]] = frozenset({"noise", "shots", "trajectories", "noise_in_training"})
    former: ClassVar[Mapping[str, Any]] = MappingProxyType({"route": None})

    # fmt: off
    device: Annotated[Device, Meta(description="The simulator's backend, which evaluates the circuit")]
    gradient: Annotated[Gradient, Meta(description="How the circuit is differentiated. With shots, shift: by the "
        "parameter-shift rules with shots of its own, without bias; exact: the exact gradient of a noisy value")]
    batching: Annotated[Literal["broadcast", "loop"], Meta(description="broadcast: one call for the whole batch; "
        "loop: sample by sample")]
    placement: Annotated[Literal["model", "cpu", "gpu"], Meta(description="The device that circuits run on. model: "
        "the model's own; cpu or gpu: this one, whatever the model's is")] = "model"
    shots: Annotated[int, Meta(ge=1, description="How many measurements an expectation value is the mean of; left "
        "out, it is exact. Words without different letters on a wire are measured together")] | None = None
    noise: Annotated[Noise, Meta(description="Channels after the gates; none by default")] | None = None
    noise_in_training: Annotated[bool, Meta(description="Whether training has the noise too; with false what is evaluated "
        "without gradients alone has it")] = True
    trajectories: Annotated[int, Meta(ge=2, description="How many random trajectories, each a pure state, a result "
        "with noise is the mean of; left out, it is exact, by density matrices")] | None = None
    # fmt: on

    @classmethod
    def of_name(cls, name: str) -> Self:
        """The settings that choose the simulator of a name, a key of `registry.SIMULATORS`."""
        method = SIMULATORS[name]
        return cls(device=method.device, gradient=method.gradient, batching=method.batching)

    @property
    def mode(self) -> str | None:
        """See `Simulator.mode`: that of the method, or how many shots, and what their gradient is; noise, trajectories."""
        mode = self.method.mode if self.method else None
        if self.method is not None and self.shots is not None:
            mode = f"{counted(self.shots, 'shot')}, {self.method.shots}"
        drawn = f"{self.trajectories} trajectories" if self.trajectories else None
        noise = (
            self.noise.words + " in evaluation alone" * (not self.noise_in_training) if self.noise else None
        )
        return ", ".join(filter(None, (mode, noise, drawn))) or None

    @property
    def random(self) -> bool:
        """Whether each step's results are drawn."""
        return self.shots is not None or self.trajectories is not None

    @property
    def stacks(self) -> bool:
        """Whether it evaluates several sets of weights at once, under torch.func.vmap."""
        return bool(self.method and self.method.stacks and self.placement == "model" and not self.random)

    @property
    def method(self) -> CircuitMethod | None:
        """What device, gradient and batching choose; None if nothing has this combination."""
        key = (self.device, self.gradient, self.batching)
        return next((m for m in METHODS if (m.device, m.gradient, m.batching) == key), None)

    @property
    def processor(self) -> Literal["cpu", "cuda"] | None:
        """The only kind of processor that it computes on; None if it follows its placement."""
        if self.trajectories and self.noise and self.noise.damping:
            return "cpu"
        return next((m.processor for m in SIMULATORS.values() if m.device == self.device), None)

    @property
    def needs_gpu(self) -> bool:
        """Whether the circuits run on a GPU whatever the backend."""
        return self.placement == "gpu" or self.processor == "cuda"

    def faults(self) -> Iterator[str]:
        """The device must have the combination and compute where it is placed."""
        if self.method is None:
            methods = [method for method in METHODS if method.device == self.device]
            able = sorted({f"{method.gradient} with {method.batching}" for method in methods})
            yield f"{self.device} cannot do {self.gradient} with {self.batching} batching; it can do {', '.join(able)}"
        sampled = self.method is not None and self.method.shots is not None
        if sampled and self.shots is None:
            yield f"shots: gradient: {self.gradient} is for results from shots; say how many"
        if not sampled and self.shots is not None:
            yield "shots: only device: fused with gradient: shift or exact draws them; leave it out"
        if self.noise == Noise():
            yield "noise: all of its strengths are 0; leave it out"
        if self.noise is not None and (self.device, self.batching) != ("fused", "broadcast"):
            yield "noise: only device: fused with batching: broadcast has it; leave it out"
        if self.noise is None and not self.noise_in_training:
            yield "noise_in_training: there is no noise; leave it out"
        if self.trajectories is not None and (self.noise is None or self.shots is not None):
            yield "trajectories: only with noise and without shots; leave it out"
        if self.placement == "gpu" and self.processor == "cpu":
            what = "damping by trajectories" if self.trajectories else self.device
            yield f"placement: {what} computes on the CPU only; set placement: cpu"
        if self.placement == "cpu" and self.processor == "cuda":
            yield f"placement: {self.device} computes on a GPU only; set placement: gpu"

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """A device that computes on the CPU only cannot follow a model to a GPU."""
        run = settings.run
        if settings.on_gpu and self.placement == "model" and self.processor == "cpu":
            yield (
                f"simulator {run.simulator} ({self.device}) computes on the CPU only, but backend {run.layout} trains on "
                "a GPU; set its placement: cpu, or use cpu, ddp-cpu or mpi"
            )
