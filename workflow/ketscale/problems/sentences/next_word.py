"""The prediction of the next word, the `Problem` of the workload `sentences`, and its ways to evaluate P."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ketscale.config import Data, Settings, Simulator, checked
from ketscale.config.circuits import CircuitSimulator
from ketscale.engines.circuits.simulator import replays
from ketscale.engines.members import batched, selected
from ketscale.engines.randomness import Step
from ketscale.problems.problem import Problem
from ketscale.problems.samplers import Shuffled
from ketscale.problems.sentences.likelihood import ClosedForm, Likelihood, ShiftedClosedForm, Simulated
from ketscale.problems.sentences.sentences import PreparedSentences, embed
from ketscale.problems.sentences.specification import LikelihoodSimulator
from ketscale.problems.sentences.transformer import PAIR, SuperpositionTransformer, Transitions, loss
from ketscale.simulators.factory import build_simulator
from ketscale.spans import span


def transitions(prepared: PreparedSentences) -> Transitions:
    """The transitions of all sentences, in the sentences' order."""
    vocabulary = prepared.sentences.vocabulary
    return Transitions.of(
        [
            torch.from_numpy(embed([vocabulary[i] for i in row[:length]], range(length), prepared.seed))
            for row, length in zip(prepared.sentences.words, prepared.sentences.lengths, strict=True)
        ]
    )


def build_likelihood(
    name: str, settings: Simulator, layers: int, transitions: Transitions, device: torch.device
) -> Likelihood:
    """The way to evaluate P that the config calls `name`: one of this model's own, or any simulator.

    Raises:
        UserError: the settings cannot be combined, or the sentences do not fit the literal circuit.
    """
    if isinstance(settings, CircuitSimulator):
        return Simulated(layers, transitions, build_simulator(name, settings, device))
    assert isinstance(settings, LikelihoodSimulator)
    checked(settings, f"simulators.{name}")
    if settings.device == "closed-form":
        form = ClosedForm if settings.gradient == "backprop" else ShiftedClosedForm
        return form(layers, transitions)
    # Qiskit is imported by those who ask for its circuits.
    from ketscale.problems.sentences.literal_transformer import LiteralCircuit

    return LiteralCircuit(layers, transitions, rebuild=settings.device == "literal")


class NextWord(Problem):
    """The mean of -ln(P + 1e-12) over sentences.

    The outputs for a sentence are P and, at each transition, the rank of the true next word among all words of the
    vocabulary, which are ordered by |(z (x) x)* (W (x) V) psi| with each word as x. A vector has only four entries,
    and the words' part of them is positive, so words at one position have nearly the same direction: the model can
    distinguish only few.
    """

    model: SuperpositionTransformer
    linear = True

    def __init__(
        self, model: SuperpositionTransformer, likelihood: Likelihood, prepared: PreparedSentences
    ) -> None:
        super().__init__()
        self.model, self.likelihood = model, likelihood
        words, vocabulary = torch.from_numpy(prepared.sentences.words), prepared.sentences.vocabulary
        data = transitions(prepared)
        # The vectors of all words at each position.
        vectors = torch.stack(
            [
                torch.from_numpy(embed(vocabulary, [position] * len(vocabulary), prepared.seed))
                for position in range(words.shape[1])
            ]
        )
        # A row for each sentence and a column for each transition; after a sentence's last word the next one is -1.
        current, following = words[:, :-1], words[:, 1:]
        psi = data.psi.new_zeros(*current.shape, PAIR)
        psi[data.sentence, data.positions] = data.psi
        buffers = {
            "psi": psi, "current": vectors[torch.arange(current.shape[1]), current], "following": following,
            "candidates": vectors[1:],
        }  # fmt: skip
        buffers |= {f"rows_{name}": torch.from_numpy(rows) for name, rows in prepared.splits.items()}
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor, persistent=False)
        self.splits: Mapping[str, int] = {name: len(rows) for name, rows in prepared.splits.items()}
        self.sampler = Shuffled(self.splits["train"])

    @property
    def replays(self) -> bool:
        """See `Problem.replays`: with circuits of `fused` in place."""
        return isinstance(self.likelihood, Simulated) and replays(self.likelihood)

    def share_tasks(self, rank: int, ranks: int) -> None:
        """Let ranks share the tasks of parameter-shift instead of the sentences."""
        self.likelihood.tasks = (rank, ranks)

    def _rows(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        rows = self.get_buffer(f"rows_{split}")
        return selected(rows, indices.to(rows.device))

    def sums(self, indices: torch.Tensor, step: Step) -> torch.Tensor:
        """The summed loss, shape (1,)."""
        with span("data"):
            rows = self._rows("train", indices)
        return self.likelihood.losses(self.model.weights, rows).sum(0, keepdim=True)

    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        """The mean over sentences."""
        return sums[0] / count

    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        """fp64 (sentences, 1 + longest): P, then the true word's rank (from 1) at each transition, then 0."""
        with torch.no_grad():
            rows = self._rows(split, indices)
            return batched(self._outputs, *self.likelihood.evaluated(self.model.weights, rows), rows)

    def _outputs(
        self, probabilities: torch.Tensor, unitary: torch.Tensor, rows: torch.Tensor
    ) -> torch.Tensor:
        """The outputs (..., n, 1 + longest) for P (..., n), W (x) V (..., 16, 16) and sentences (..., n)."""
        psi, current, following = (self.get_buffer(name)[rows] for name in ("psi", "current", "following"))
        transformed = psi.to(unitary.dtype) @ unitary.mT.unsqueeze(-3)
        # Real and imaginary parts: a complex product with the real candidates takes longer.
        parts = torch.view_as_real((current[..., None] * transformed.unflatten(-1, (4, 4))).sum(-2))
        scores = torch.einsum("...lbc,lvb->...lvc", parts, self.get_buffer("candidates")).square().sum(-1)
        return torch.cat([probabilities[..., None], self._ranks(scores, following)], -1).double()

    def _ranks(self, scores: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        """The number of words that score (..., words) at least as well as the true one, itself included; 0 of -1."""
        own = scores.gather(-1, following.clamp(min=0)[..., None])
        return (scores >= own).sum(-1) * (following >= 0)

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        """Loss, and as accuracy the share of transitions whose true word ranks first.

        When full also the mean reciprocal rank, the number of transitions as `count`, and the chance levels of both
        metrics: what ranking all words by how often they come next in training gives.
        """
        ranks = outputs[:, 1:][outputs[:, 1:] > 0]
        metrics: dict[str, Any] = {
            "loss": float(loss(outputs[:, 0]).mean()),
            "accuracy": float((ranks == 1).double().mean()),
        }
        if full:
            by_frequency = self._ranks_by_frequency(split)
            metrics["reciprocal_rank"] = float((1 / ranks).mean())
            metrics["chance"] = float((by_frequency == 1).double().mean())
            metrics["chance_reciprocal_rank"] = float((1 / by_frequency.double()).mean())
            metrics["count"] = len(ranks)
        return metrics

    def _ranks_by_frequency(self, split: str) -> torch.Tensor:
        """The rank of the true next word at each transition of a split, if words are ordered as frequent in training."""
        training, tested = (
            words[words >= 0]
            for words in (
                self.get_buffer("following")[self.get_buffer(f"rows_{name}")] for name in ("train", split)
            )
        )
        counts = training.bincount(minlength=self.get_buffer("candidates").shape[1])
        return (1 + counts.argsort(descending=True, stable=True).argsort())[tested]

    def right(self, split: str, outputs: torch.Tensor) -> torch.Tensor:
        """Whether the true word ranks first at each transition, (sentences, longest)."""
        ranks = outputs[:, 1:].cpu()
        return torch.where(ranks > 0, ranks == 1, -1).to(torch.int8)


def build(settings: Settings, data: Data, device: torch.device) -> NextWord:
    """The prediction of next words; the simulator says how the probabilities of a circuit are evaluated."""
    layers, prepared = settings.sizes["layers"], data.content
    assert settings.simulator is not None  # as its conflicts say
    likelihood = build_likelihood(
        settings.run.simulator, settings.simulator, layers, transitions(prepared), device
    )
    return NextWord(SuperpositionTransformer(layers), likelihood, prepared)
