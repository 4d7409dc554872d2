"""The baselines of sentences: the most frequent next word, and the one that most often follows the word before it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from ketscale.measure.right import packed
from ketscale.problems.baselines import Baseline
from ketscale.problems.sentences.sentences import PreparedSentences, read_prepared

Sentences = Sequence[Sequence[int]]


def baselines(manifest: Path) -> Iterator[Baseline]:
    """Both, if sentences are held out.

    If words follow equally often, the one that is more frequent among all next words is taken, then the one that
    appears first. Behind a word that training does not have, the bigram is the most frequent word.
    """
    prepared: PreparedSentences = read_prepared(manifest).content
    parts = {
        part: [[int(word) for word in row if word >= 0] for row in prepared.sentences.words[rows]]
        for part, rows in prepared.splits.items()
    }
    pairs = [pair for words in parts["train"] for pair in pairwise(words)]
    frequencies, followers = (
        Counter(following for _, following in pairs),
        defaultdict[int, Counter[int]](Counter),
    )
    for word, following in pairs:
        followers[word][following] += 1

    def most(counts: Counter[int]) -> int:
        return min(counts, key=lambda word: (-counts[word], -frequencies[word], word))

    if parts["test"]:
        usual = most(frequencies)
        yield _tested("most frequent word", {}, usual, parts)
        yield _tested("bigram", {word: most(counts) for word, counts in followers.items()}, usual, parts)


def _tested(
    name: str, following: Mapping[int, int], otherwise: int, parts: Mapping[str, Sentences]
) -> Baseline:
    """The method that predicts the word `following` each word, or else `otherwise`."""
    right = {
        part: [[int(following.get(a, otherwise) == b) for a, b in pairwise(words)] for words in parts[part]]
        for part in ("validation", "test")
    }
    share = {part: sum(map(sum, cases)) / sum(map(len, cases)) for part, cases in right.items()}
    return Baseline(name, validation=share["validation"], test=share["test"], right=packed(right["test"]))
