"""Predicting the next word: the `Problem` of the workload `sentences`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ketscale.models.transformer import TINY, Batch, SuperpositionTransformer, pair_unitary
from ketscale.spans import span
from ketscale.workloads.problem import Problem
from ketscale.workloads.sentences import Prepared, embed


class NextWord(Problem):
    """Mean of -ln(P + 1e-12) over sentences.

    What the model says of a sentence is P, and for each transition the rank of the true next word among all words of
    the vocabulary, by |(z (x) x)* (W (x) V) psi|^2 with each word as x. With unitaries of 4 x 4 the model cannot tell
    many words apart: words that point nearly the same way rank nearly the same.
    """

    def __init__(self, model: SuperpositionTransformer, prepared: Prepared) -> None:
        super().__init__()
        self.model = model
        words, lengths = prepared.sentences.words, prepared.sentences.lengths
        vocabulary, seed = prepared.sentences.vocabulary, prepared.seed
        vectors = [
            torch.from_numpy(embed([vocabulary[i] for i in row[:length]], range(length), seed))
            for row, length in zip(words, lengths, strict=True)
        ]
        for name, tensor in Batch.of(vectors)._asdict().items():
            self.register_buffer(f"all_{name}", tensor, persistent=False)
        # Every word at every position but the first.
        table = [embed(vocabulary, [p] * len(vocabulary), seed) for p in range(1, words.shape[1])]
        self.register_buffer("candidates", torch.stack([torch.from_numpy(t) for t in table]), persistent=False)
        self.register_buffer("words", torch.from_numpy(words), persistent=False)
        for name, rows in prepared.splits.items():
            self.register_buffer(f"rows_{name}", torch.from_numpy(rows), persistent=False)
        self.splits: Mapping[str, int] = {name: len(rows) for name, rows in prepared.splits.items()}
        self.samples = self.splits["train"]

    def _batch(self, split: str, indices: torch.Tensor) -> tuple[torch.Tensor, Batch]:
        with span("data"):
            rows = self.get_buffer(f"rows_{split}")
            rows = rows[indices.to(rows.device)]
            everything = Batch(*(self.get_buffer(f"all_{name}") for name in Batch._fields))
            return rows, everything.select(rows)

    def sums(self, indices: torch.Tensor, step: int) -> torch.Tensor:
        """The summed loss, shape (1,)."""
        _, batch = self._batch("train", indices)
        return -torch.log(self.model(batch) + TINY).sum().reshape(1)

    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        """The mean over sentences."""
        return sums[0] / count

    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        """P, then the true word's rank (from 1) at each transition, 0 behind a sentence's end."""
        with torch.no_grad():
            rows, batch = self._batch(split, indices)
            half = len(self.model.weights) // 2
            v, w = (pair_unitary(part, self.model.layers) for part in self.model.weights.split(half))
            turned = torch.einsum("ac,bd,tcd->tab", w, v, batch.psi.unflatten(1, (4, 4)).to(w.dtype))
            words = self.get_buffer("words")[rows]
            ranks = batch.psi.new_zeros(len(rows), words.shape[1] - 1)
            position = _positions(batch.counts)
            candidates = self.get_buffer("candidates")[position]
            next_words = words[batch.sentence, position + 1]
            # target is z (x) x with unit vectors, so that contracting it with x leaves the current word's z.
            z = batch.target.unflatten(1, (4, 4)) @ _chosen(candidates, next_words)[:, :, None]
            scores = torch.einsum("ta,tab,tvb->tv", z[..., 0].to(w.dtype), turned, candidates.to(w.dtype)).abs()
            own = scores.gather(1, next_words[:, None])
            ranks[batch.sentence, position] = (scores > own).sum(1).to(ranks.dtype) + 1
            return torch.cat([self.model(batch)[:, None], ranks], dim=1)

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        """Loss, and the share of transitions whose true word ranks first; when full also what chance would give."""
        ranks = outputs[:, 1:][outputs[:, 1:] > 0]
        figures: dict[str, Any] = {
            "loss": float(-torch.log(outputs[:, 0].double() + TINY).mean()),
            "accuracy": float((ranks == 1).double().mean()),
        }
        if full:
            figures["reciprocal_rank"] = float((1 / ranks.double()).mean())
            figures["chance"] = 1 / self.get_buffer("candidates").shape[1]
            figures["transitions"] = len(ranks)
        return figures


def _positions(counts: torch.Tensor) -> torch.Tensor:
    """0, 1, ... within each sentence, for all transitions."""
    starts = counts.cumsum(0) - counts
    return torch.arange(int(counts.sum()), device=counts.device) - torch.repeat_interleave(starts, counts)


def _chosen(candidates: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    return candidates[torch.arange(len(words), device=words.device), words]
