"""`frequent_word` and `bigram`, the baselines of sentences: which words follow most often in training."""

from __future__ import annotations

from typing import ClassVar

import torch

from ketscale.problems.fitted import Fitted, Samples


class FrequentWord(Fitted):
    """The next word by its frequency among all next words; of equally frequent ones the vocabulary's first.

    vocabulary: the number of words.
    """

    behind: ClassVar[bool] = False
    scores: torch.Tensor

    def __init__(self, vocabulary: int = 10) -> None:
        super().__init__()
        self.register_buffer("scores", torch.zeros(vocabulary, vocabulary))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """A score of each next word (..., vocabulary), all different, behind words (...), int64."""
        return self.scores[words]

    def fit(self, train: Samples, validation: Samples | None) -> None:
        """Count words behind others, int64 (n, longest) each; a next word is -1 behind the end of a sentence."""
        words, size = torch.stack([*train])[:, train.targets >= 0], len(self.scores)
        pairs = torch.zeros(size, size, dtype=torch.float64)
        pairs.index_put_(tuple(words.cpu()), torch.ones(words.shape[1]).double(), accumulate=True)
        frequencies = pairs.sum(0) * size - torch.arange(size)
        scores = frequencies + self.behind * pairs * (frequencies.max() + size)
        self.scores = scores.expand(size, -1).to(self.scores.device)


class Bigram(FrequentWord):
    """The word that most often follows the word before it; of equally frequent ones the first by `FrequentWord`."""

    behind: ClassVar[bool] = True
