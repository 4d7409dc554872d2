"""The family `sentences`: the prediction of the next word of a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from ketscale.config import (
    Data,
    Family,
    Metric,
    Model,
    Settings,
    Simulator,
    SizeAxis,
    Split,
    Workload,
)
from ketscale.engines.circuits.settings import CircuitSimulator
from ketscale.grid import BACKENDS
from ketscale.problems.sentences.workloads import SentencesWorkload

if TYPE_CHECKING:
    import torch

    from ketscale.problems.problem import Problem


class LikelihoodSimulator(Simulator, frozen=True, kw_only=True):
    """A way to evaluate the probability of a sentence that only this family has."""

    devices: ClassVar[tuple[str, ...]] = ("closed-form", "literal", "literal-bound")

    device: Annotated[
        Literal["closed-form", "literal", "literal-bound"],
        Meta(
            description="closed-form: by algebra; literal: by Qiskit circuits that every evaluation builds, as "
            "published; literal-bound: by Qiskit circuits that are built once, with angles bound later"
        ),
    ]
    gradient: Literal["backprop", "parameter-shift"]
    batching: Literal["broadcast", "loop"]
    placement: Literal["model"] = "model"

    @property
    def has_tasks(self) -> bool:
        """Whether there are tasks to share: the evaluations of parameter-shift."""
        return self.gradient == "parameter-shift"

    def faults(self) -> Iterator[str]:
        """The literal circuits do only parameter-shift, sentence by sentence; the closed form does only batches."""
        literal = self.device != "closed-form"
        if literal and (self.gradient, self.batching) != ("parameter-shift", "loop"):
            yield f"{self.device} cannot do {self.gradient} with {self.batching} batching; it can do parameter-shift with loop"
        if not literal and self.batching != "broadcast":
            yield f"{self.device} cannot do {self.batching} batching; it can do broadcast"

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Qiskit computes only on the CPU."""
        run = settings.run
        gpu = run.backend in BACKENDS and BACKENDS[run.backend].device == "gpu"
        if self.device != "closed-form" and gpu:
            yield (
                f"simulator {run.simulator} computes on the CPU, but backend {run.layout} trains on a GPU; "
                "use cpu, ddp-cpu or mpi"
            )


class TransformerSettings(Model, frozen=True, kw_only=True):
    """The words so far, in superposition, turned towards the next word."""

    implementation: ClassVar[str] = "ketscale.problems.sentences.transformer:SuperpositionTransformer"
    sizes: ClassVar[Mapping[str, int]] = {"qubits": 4}


def prepare(workload: Workload, manifest: Path, fetched: Path | None) -> None:
    """Write the sentences as arrays with their split; see `sentences.prepare`."""
    from ketscale.problems.sentences import sentences

    assert isinstance(workload, SentencesWorkload)
    sentences.prepare(workload, manifest)


def read(settings: Settings, manifest: Path) -> Data:
    """Open and verify the sentences."""
    from ketscale.problems.sentences.sentences import Prepared

    prepared = Prepared.open(manifest)
    return Data(prepared, Split("sentences"), prepared.data_hash, prepared.hash)


def build(settings: Settings, data: Data, device: torch.device) -> Problem:
    """The prediction of next words."""
    from ketscale.problems.sentences import build

    return build.problem(settings, data.content, device)


FAMILY = Family(
    name="sentences",
    title="sentences",
    sample="sentence",
    samples="sentences",
    sizes=(SizeAxis("q", "qubits", "qubits"), SizeAxis("l", "layers", "circuit layers")),
    sampler="shuffled",
    workloads={"sentences": SentencesWorkload},
    models={"superposition_transformer": TransformerSettings},
    simulators=(CircuitSimulator, LikelihoodSimulator),
    metrics=(
        Metric("accuracy", "accuracy", "share of next words", "up"),
        Metric("reciprocal_rank", "mean reciprocal rank", "", "up"),
    ),
    tiny={
        "workloads": {"sentences": {"seed": 1, "held_out": 1, "split_seed": 0}},
        "axes": {
            "workload": "sentences",
            "model": "superposition_transformer",
            "qubits": 4,
            "layers": 1,
            "batch": 6,
        },
        "simulators": {
            "closed-form": {"device": "closed-form", "gradient": "backprop", "batching": "broadcast"},
            "fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast"},
        },
    },
    build=build,
    prepare=prepare,
    read=read,
)
