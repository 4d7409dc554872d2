"""The transitions of sentences as vectors: the words so far, and the word that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

PAIR = 16  # entries of a product of two word vectors


@dataclass(frozen=True)
class Transitions:
    """The transitions of all sentences, one after the other, in fp64.

    psi: (n, 16), unit vectors proportional to the sum of t_j (x) t_j over the words so far, the current one included.
    target: (n, 16), z (x) x of the current word z and the next word x.
    sentence: int64 (n,), the sentence of each transition, ascending.
    """

    psi: torch.Tensor
    target: torch.Tensor
    sentence: torch.Tensor

    @classmethod
    def of(cls, sentences: Sequence[torch.Tensor]) -> Transitions:
        """From the unit vectors (words, 4) of each sentence, which has at least two words."""
        parts = [_transitions(vectors.double()) for vectors in sentences]
        psi, target = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        counts = torch.tensor([len(part) for part, _ in parts])
        return cls(psi, target, torch.repeat_interleave(torch.arange(len(parts)), counts))

    @property
    def counts(self) -> torch.Tensor:
        """The number of transitions of each sentence, (sentences,)."""
        return torch.bincount(self.sentence)

    @property
    def positions(self) -> torch.Tensor:
        """The position of each transition in its sentence, 0, 1, ..., (n,)."""
        counts = self.counts
        return torch.arange(len(self.psi)) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)

    def closed(self) -> torch.Tensor:
        """T = 1/M sum_i target_i psi_i^T for each sentence of M transitions, (sentences, 16, 16)."""
        products = torch.einsum("na,nb->nab", self.target, self.psi)
        sums = products.new_zeros(len(self.counts), PAIR, PAIR).index_add(0, self.sentence, products)
        return sums / self.counts[:, None, None]

    def of_sentence(self, sentence: int) -> tuple[torch.Tensor, torch.Tensor]:
        """psi and target of one sentence, (M, 16) each."""
        mine = self.sentence == sentence
        return self.psi[mine], self.target[mine]


def _transitions(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    pairs = torch.einsum("wa,wb->wab", vectors, vectors).flatten(1)
    sums = pairs[:-1].cumsum(0)
    psi = sums / torch.linalg.vector_norm(sums, dim=1, keepdim=True)
    return psi, torch.einsum("wa,wb->wab", vectors[:-1], vectors[1:]).flatten(1)
