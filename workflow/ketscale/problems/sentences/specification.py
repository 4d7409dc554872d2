"""The family `sentences`: the prediction of the next word of a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from ketscale.config import Data, Family, Metric, Model, Settings, lazily
from ketscale.config.simulators.circuits import CIRCUIT_SIZES, CircuitSimulator
from ketscale.problems.sentences.settings import LikelihoodSimulator, SentencesWorkload

if TYPE_CHECKING:
    import torch

    from ketscale.problems.problem import Problem


class TransformerSettings(Model, frozen=True, kw_only=True):
    """The words so far, in superposition, turned towards the next word."""

    implementation: ClassVar[str] = "ketscale.problems.sentences.transformer:SuperpositionTransformer"
    stacks: ClassVar[bool] = True

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Its circuits have four qubits."""
        if settings.sizes["qubits"] != 4:
            yield f"{settings.run.model} has 4 qubits, not {settings.sizes['qubits']}; set qubits: 4"


def build(settings: Settings, data: Data, device: torch.device) -> Problem:
    """The prediction of next words; the simulator says how the probabilities of a circuit are evaluated."""
    from ketscale.problems.sentences.next_word import NextWord, build_likelihood, transitions
    from ketscale.problems.sentences.transformer import SuperpositionTransformer

    layers, prepared = settings.sizes["layers"], data.content
    assert settings.simulator is not None  # as its conflicts say
    likelihood = build_likelihood(
        settings.run.simulator, settings.simulator, layers, transitions(prepared), device
    )
    return NextWord(SuperpositionTransformer(layers), likelihood, prepared)


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
    build=build,
    prepare=lazily("ketscale.problems.sentences.sentences:prepare"),
    read=lazily("ketscale.problems.sentences.sentences:read_prepared"),
)
