"""The prediction of the next word, the `Problem` of the workload `sentences`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ketscale.measure.spans import span
from ketscale.problems.problem import Problem
from ketscale.problems.randomness import Step
from ketscale.problems.samplers import Shuffled
from ketscale.problems.sentences.likelihood import Likelihood
from ketscale.problems.sentences.sentences import Prepared, embed
from ketscale.problems.sentences.transformer import SuperpositionTransformer, loss, whole_unitary
from ketscale.problems.sentences.transitions import Transitions


def transitions(prepared: Prepared) -> Transitions:
    """The transitions of all sentences, in the sentences' order."""
    vocabulary = prepared.sentences.vocabulary
    return Transitions.of(
        [
            torch.from_numpy(embed([vocabulary[i] for i in row[:length]], range(length), prepared.seed))
            for row, length in zip(prepared.sentences.words, prepared.sentences.lengths, strict=True)
        ]
    )


class NextWord(Problem):
    """The mean of -ln(P + 1e-12) over sentences.

    The outputs for a sentence are P and, at each transition, the rank of the true next word among all words of the
    vocabulary, which are ordered by |(z (x) x)* (W (x) V) psi| with each word as x. A vector has only four entries,
    and the words' part of them is positive, so words at one position have nearly the same direction: the model can
    distinguish only few.
    """

    model: SuperpositionTransformer
    linear = True

    def __init__(self, model: SuperpositionTransformer, likelihood: Likelihood, prepared: Prepared) -> None:
        super().__init__()
        self.model, self.likelihood = model, likelihood
        words, vocabulary = torch.from_numpy(prepared.sentences.words), prepared.sentences.vocabulary
        data = transitions(prepared)
        # For every transition the next word's index, and the vectors that all words would have in its place.
        following = words[data.sentence, data.positions + 1]
        candidates = torch.stack(
            [
                torch.from_numpy(embed(vocabulary, [position] * len(vocabulary), prepared.seed))
                for position in range(words.shape[1])
            ]
        )[data.positions + 1]
        # Contracting z (x) x with the true x, a unit vector, leaves z.
        true = candidates[torch.arange(len(following)), following]
        current = torch.einsum("nab,nb->na", data.target.unflatten(1, (4, 4)), true)
        buffers = {
            "psi": data.psi.unflatten(1, (4, 4)), "current": current, "candidates": candidates,
            "following": following, "sentence": data.sentence, "position": data.positions,
        }  # fmt: skip
        buffers |= {f"rows_{name}": torch.from_numpy(rows) for name, rows in prepared.splits.items()}
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor, persistent=False)
        self.longest = words.shape[1] - 1
        self.splits: Mapping[str, int] = {name: len(rows) for name, rows in prepared.splits.items()}
        self.sampler = Shuffled(self.splits["train"])

    def share_tasks(self, rank: int, ranks: int) -> None:
        """Let ranks share the tasks of parameter-shift instead of the sentences."""
        self.likelihood.tasks = (rank, ranks)

    def _rows(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        rows = self.get_buffer(f"rows_{split}")
        return rows[indices.to(rows.device)]

    def sums(self, indices: torch.Tensor, step: Step) -> torch.Tensor:
        """The summed loss, shape (1,)."""
        with span("data"):
            rows = self._rows("train", indices)
        return self.likelihood.losses(self.model.weights, rows).sum().reshape(1)

    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        """The mean over sentences."""
        return sums[0] / count

    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        """fp64 (sentences, 1 + longest): P, then the true word's rank (from 1) at each transition, then 0."""
        with torch.no_grad():
            rows = self._rows(split, indices)
            found = torch.zeros(len(rows), 1 + self.longest, dtype=torch.float64, device=rows.device)
            if len(rows):
                found[:, 0] = self.likelihood.probabilities(self.model.weights, rows)
                for i, sentence in enumerate(rows):
                    mine = self.get_buffer("sentence") == sentence
                    found[i, 1 + self.get_buffer("position")[mine]] = self._ranks(mine)
            return found

    def _ranks(self, mine: torch.Tensor) -> torch.Tensor:
        """The number of words that score at least as well as the true one, itself included, at these transitions."""
        unitary = (
            whole_unitary(self.model.weights, self.model.layers).unflatten(0, (4, 4)).unflatten(2, (4, 4))
        )
        psi, current, candidates = (
            self.get_buffer(name)[mine].to(unitary.dtype) for name in ("psi", "current", "candidates")
        )
        scores = torch.einsum("na,abcd,ncd,nvb->nv", current, unitary, psi, candidates).abs()
        following = self.get_buffer("following")[mine]
        own = scores.gather(1, following[:, None])
        return (scores >= own).sum(1).double()

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        """Loss, and as accuracy the share of transitions whose true word ranks first.

        When full also the mean reciprocal rank, the chance levels of both, and the number of transitions as `count`.
        """
        ranks = outputs[:, 1:][outputs[:, 1:] > 0]
        figures: dict[str, Any] = {
            "loss": float(loss(outputs[:, 0]).mean()),
            "accuracy": float((ranks == 1).double().mean()),
        }
        if full:
            vocabulary = self.get_buffer("candidates").shape[1]
            figures["reciprocal_rank"] = float((1 / ranks).mean())
            figures["chance"] = 1 / vocabulary
            figures["chance_reciprocal_rank"] = sum(1 / k for k in range(1, vocabulary + 1)) / vocabulary
            figures["count"] = len(ranks)
        return figures
