"""The workload `sentences`: words as vectors of four entries, for a model that predicts the next word.

A word's vector is a function of the word and the seed, the same on every rank and machine, plus the vector of its
position (Vaswani et al., arXiv:1706.03762), normalised. A sentence of m words has m - 1 transitions, each from the
words so far to the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ketscale.config import Data, Settings, Split
from ketscale.errors import UserError, damaged, short
from ketscale.problems import store
from ketscale.problems.splits import SPLITS, Parts, first_equal, shared, with_copies

if TYPE_CHECKING:
    from ketscale.problems.sentences.specification import SentencesWorkload

BUILT_IN = (
    "The bird sings",
    "Old ships cross cold water",
    "A small dog chases leaves",
    "Rain falls on quiet hills",
    "The tall baker sells bread",
    "Two friends walk home slowly",
    "Bright stars fill winter skies",
    "My sister paints blue doors",
)
SIZE = 4
SPREAD = 0.1

Vectors = NDArray[np.float64]


@dataclass(frozen=True)
class Sentences:
    """Sentences as indices into a vocabulary.

    words: int64 (n, longest), -1 after a sentence's end. vocabulary: the words, in order of their appearance.
    """

    words: NDArray[np.int64]
    vocabulary: tuple[str, ...]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of words of each sentence, int64 (n,)."""
        return np.asarray((self.words >= 0).sum(1), dtype=np.int64)

    @classmethod
    def of(cls, lines: Sequence[str]) -> Sentences:
        """From texts, which are split at white space; the case of letters is ignored."""
        split = [line.casefold().split() for line in lines]
        vocabulary = tuple(dict.fromkeys(word for words in split for word in words))
        number = {word: i for i, word in enumerate(vocabulary)}
        table = np.full((len(split), max(map(len, split))), -1, dtype=np.int64)
        for row, words in zip(table, split, strict=True):
            row[: len(words)] = [number[word] for word in words]
        return cls(table, vocabulary)

    def digest(self) -> str:
        """SHA-256 of words and order: the data's identity."""
        text = "\n".join(" ".join(self.vocabulary[i] for i in row if i >= 0) for row in self.words)
        return hashlib.sha256(text.encode()).hexdigest()


def read(path: Path) -> list[str]:
    """The sentences of a text file, one on each line; empty lines are skipped.

    Raises:
        UserError: the file cannot be read, is not UTF-8, or has no sentence, or one of a single word.
    """
    with damaged(f"{path}: cannot be read", "save it as UTF-8"):
        # Without a byte-order mark. Only a line's end ends a line: no form feed, no Unicode separator.
        lines = path.read_text("utf-8-sig").split("\n")
    for number, line in enumerate(lines, 1):
        if len(line.split()) == 1:
            raise UserError(
                f"{path}, line {number}: {short(repr(line.strip()))} is one word; write two or more"
            )
    sentences = [line for line in lines if line.split()]
    if not sentences:
        raise UserError(f"{path}: has no sentence; write one on each line")
    return sentences


def embed(words: Sequence[str], positions: Sequence[int], seed: int) -> Vectors:
    """Unit vectors, float64 (n, 4), of words at positions counted from 0."""
    vectors = np.stack([_word(word, seed) + _position(p) for word, p in zip(words, positions, strict=True)])
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def _word(word: str, seed: int) -> Vectors:
    digest = hashlib.sha256(f"{seed} {word}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16])).uniform(0, SPREAD, SIZE)


def _position(position: int) -> Vectors:
    rates = position / 10000.0 ** (np.arange(0, SIZE, 2) / SIZE)
    return np.stack([np.sin(rates), np.cos(rates)], axis=1).reshape(-1)


def split(equal: NDArray[np.int64], held_out: int, seed: int) -> Parts:
    """Indices of train, validation and test; `held_out` sentences for each of the last two are drawn with `seed`.

    equal: `splits.first_equal` of the sentences. Equal ones count as one, and are in one part.

    Raises:
        UserError: no sentence is left to train on.
    """
    different = np.unique(equal)
    count = len(different)
    if 2 * held_out >= count:
        raise UserError(f"held_out: {held_out} of {count} different sentences, twice, leave none to train on")
    order = different[np.random.default_rng(seed).permutation(count)] if held_out else different
    parts = (order[2 * held_out :], order[held_out : 2 * held_out], order[:held_out])
    return with_copies(dict(zip(SPLITS, parts, strict=True)), equal)


VERSION = 2  # increase it whenever the words, vectors or splits of the same settings change
FILES = ("words.npy", "splits.npz", "vocabulary.txt")


@dataclass(frozen=True)
class PreparedSentences:
    """Sentences as a run reads them; seed: of the words' vectors."""

    sentences: Sentences
    splits: Parts
    seed: int

    @classmethod
    def of(cls, lines: Sequence[str], seed: int) -> PreparedSentences:
        """Sentences from texts, all of them in the training split."""
        sentences = Sentences.of(lines)
        return cls(sentences, split(first_equal(sentences.words), 0, 0), seed)


def read_prepared(settings: Settings, manifest: Path) -> Data:
    """Open and verify the `PreparedSentences` that `manifest` points to."""
    folder = store.opened(manifest, VERSION)
    vocabulary = tuple((folder.path / "vocabulary.txt").read_text("utf-8").split("\n"))
    sentences = Sentences(np.load(folder.path / "words.npy"), vocabulary)
    seed, shared = folder.entries["settings"]["seed"], folder.entries["shared"]
    prepared = PreparedSentences(sentences, folder.arrays("splits.npz"), seed)
    return folder.data(prepared, Split("sentences", shared=shared))


def prepare(workload: SentencesWorkload, manifest: Path, fetched: Path | None = None) -> None:
    """Write the sentences of a file, or the built-in ones, with their split, then the manifest; nothing is fetched.

    Raises:
        UserError: the file cannot be used, or the settings do not fit it; nothing is left behind.
    """
    sources = workload.sources()
    sentences = Sentences.of(read(sources[0]) if sources else BUILT_IN)
    equal = first_equal(sentences.words)
    splits = split(equal, workload.held_out, workload.split_seed)
    identity = store.identity_of(workload, sentences.digest(), VERSION)

    def fill(folder: Path) -> dict[str, Any]:
        store.write(folder, {"words.npy": sentences.words, "splits.npz": splits})
        (folder / "vocabulary.txt").write_text("\n".join(sentences.vocabulary), encoding="utf-8")
        return {"samples": len(sentences.words), "shared": shared(splits, equal)}

    store.publish(manifest, identity, FILES, fill)
