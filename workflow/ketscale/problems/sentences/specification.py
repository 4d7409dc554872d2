"""The family `sentences`: the prediction of the next word of a sentence. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from ketscale.config import Count, Family, Metric, Model, Seed, Settings, Simulator, Workload, lazily
from ketscale.config.circuits import CIRCUIT_SIZES, CircuitSimulator
from ketscale.errors import UserError


class SentencesWorkload(Workload, frozen=True, kw_only=True):
    """Eight built-in sentences, or those of a text file, for a model that predicts the next word."""

    machine: ClassVar[frozenset[str]] = frozenset({"file"})

    # fmt: off
    file: Annotated[str, Meta(description="A text file, UTF-8, one sentence a line; without it the built-in "
        "ones")] | None = None
    seed: Annotated[Seed, Meta(description="Seed of the words' vectors")]
    held_out: Annotated[Count, Meta(description="Sentences for validation, and as many for test; 0 if nothing is "
        "evaluated")]
    # fmt: on
    split_seed: Annotated[Seed, Meta(description="Seed of the split")]

    def sources(self) -> list[Path]:
        """The text file."""
        if self.file is None:
            return []
        file = Path(self.file).expanduser()
        if not file.is_file():
            raise UserError(f"file: there is no file {file}; name another, or leave it out")
        return [file]

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Epochs are validated, which needs sentences held out."""
        run = settings.run
        if self.held_out == 0 and settings.protocol.by_epochs:
            yield f"workload {run.workload} holds out no sentence to validate epochs with; use steps"


class LikelihoodSimulator(Simulator, frozen=True, kw_only=True):
    """Ways to evaluate the probability of a sentence that no other model has."""

    devices: ClassVar[tuple[str, ...]] = ("closed-form", "literal", "literal-bound")

    device: Annotated[Literal["closed-form", "literal", "literal-bound"], Meta(description="closed-form: the "
        "algebra; literal: Qiskit circuits built in every evaluation, as published; literal-bound: built once and "
        "bound")]  # fmt: skip
    gradient: Literal["backprop", "parameter-shift"]
    batching: Literal["broadcast", "loop"]
    placement: Annotated[Literal["model"], Meta(description="model: on the model's device")] = "model"

    @property
    def stacks(self) -> bool:
        """Whether it evaluates several sets of weights at once: it does if autograd differentiates it."""
        return self.gradient == "backprop"

    @property
    def has_tasks(self) -> bool:
        """Whether it has tasks: the evaluations of parameter-shift are tasks."""
        return self.gradient == "parameter-shift"

    def faults(self) -> Iterator[str]:
        """The literal circuits are evaluated sentence by sentence, and shifted."""
        literal = self.device != "closed-form"
        if literal and (self.gradient, self.batching) != ("parameter-shift", "loop"):
            yield f"{self.device} cannot do {self.gradient} with {self.batching} batching; it can do parameter-shift with loop"
        if not literal and self.batching != "broadcast":
            yield f"{self.device} cannot do {self.batching} batching; it can do broadcast"

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Qiskit computes on the CPU."""
        run = settings.run
        if self.device != "closed-form" and settings.on_gpu:
            yield f"simulator {run.simulator} computes on the CPU alone; use cpu, ddp-cpu or mpi"


class TransformerSettings(Model, frozen=True, kw_only=True):
    """The words so far, in superposition, turned towards the next word."""

    implementation: ClassVar[str] = "ketscale.problems.sentences.transformer:SuperpositionTransformer"
    stacks: ClassVar[bool] = True

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Its circuits have four qubits."""
        if settings.sizes["qubits"] != 4:
            yield f"{settings.run.model} has 4 qubits, not {settings.sizes['qubits']}; set qubits: 4"


FAMILY = Family(
    name="sentences",
    title="sentences",
    samples="sentences",
    sizes=CIRCUIT_SIZES,
    sampler="shuffled",
    workloads={"sentences": SentencesWorkload},
    models={"superposition_transformer": TransformerSettings},
    simulators=(CircuitSimulator, LikelihoodSimulator),
    metrics=(
        Metric("accuracy", "accuracy", "share of next words", "up", chance="data"),
        Metric("reciprocal_rank", "mean reciprocal rank", "", "up"),
    ),
    build=lazily("ketscale.problems.sentences.next_word:build"),
    prepare=lazily("ketscale.problems.sentences.sentences:prepare"),
    read=lazily("ketscale.problems.sentences.sentences:read_prepared"),
)
