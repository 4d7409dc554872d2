"""The workload `sentences`: reading text, words as vectors, the split, and what the model's evaluation means."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
import torch

from ketscale.config import Data
from ketscale.errors import UserError
from ketscale.problems.sentences import next_word
from ketscale.problems.sentences.next_word import NextWord, build_likelihood
from ketscale.problems.sentences.sentences import (
    BUILT_IN,
    PreparedSentences,
    Sentences,
    embed,
    prepare,
    read,
    read_prepared,
    split,
)
from ketscale.problems.sentences.specification import LikelihoodSimulator, SentencesWorkload
from ketscale.problems.sentences.transformer import SuperpositionTransformer, sentence_unitary

SETTINGS: dict[str, Any] = {"seed": 5, "held_out": 2, "split_seed": 0}
CLOSED = LikelihoodSimulator(device="closed-form", gradient="backprop", batching="broadcast")


def data(root: Path, text: str | None = None, **changes: Any) -> Data:
    settings = {**SETTINGS, **changes}
    if text is not None:
        (root / "sentences.txt").write_text(text, encoding="utf-8")
        settings["file"] = str(root / "sentences.txt")
    prepare(SentencesWorkload(**settings), root / "features.json")
    return read_prepared(ANY, root / "features.json")


def prepared(root: Path, text: str | None = None, **changes: Any) -> PreparedSentences:
    content: PreparedSentences = data(root, text, **changes).content
    return content


def test_a_word_is_the_same_vector_everywhere() -> None:
    once = embed(["bird", "sings"], [1, 2], seed=5)
    assert np.array_equal(embed(["sings"], [2], seed=5)[0], once[1])
    assert not np.allclose(embed(["bird"], [1], seed=6)[0], once[0])
    assert np.allclose(np.linalg.norm(once, axis=1), 1)
    # Pinned, so that a change of the generator or of the hash shows.
    assert once[0] == pytest.approx(
        [0.5844420542533684, 0.37429603793994093, 0.06940072628299009, 0.7165985629304309], abs=1e-12
    )


@pytest.mark.parametrize("content", [b"\n  \n", b"two words\nalone\n"])
def test_bad_files_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=re.escape(str(path))):
        read(path)


def test_empty_lines_and_case_do_not_count_and_only_the_end_of_a_line_ends_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("\ufeff\nThe Bird\u2028sings\r\n\nthe\x0cship sings\x85loud\n".encode())
    result = Sentences.of(read(path))
    assert result.vocabulary == ("the", "bird", "sings", "ship", "loud")
    assert result.words.tolist() == [[0, 1, 2, -1], [0, 3, 2, 4]]


def test_ragged_sentences_and_any_alphabet(tmp_path: Path) -> None:
    result = prepared(tmp_path, "one two\nüber den Wolken ist es still\n歩 く 人\n", held_out=1)
    assert result.sentences.lengths.tolist() == [2, 6, 3]
    assert sorted(np.concatenate(list(result.splits.values())).tolist()) == [0, 1, 2]
    assert next_word.transitions(result).counts.tolist() == [1, 5, 2]


def test_the_split_holds_out_what_was_asked_for() -> None:
    parts = split(np.arange(8), 2, seed=1)
    assert {name: len(rows) for name, rows in parts.items()} == {"train": 4, "validation": 2, "test": 2}
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(8))
    assert split(np.arange(8), 0, seed=1)["train"].tolist() == list(range(8))
    with pytest.raises(UserError, match="held_out: 4 of 8"):
        split(np.arange(8), 4, seed=1)


def test_the_text_decides_the_identity_not_its_place(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
    text = "\n".join(BUILT_IN)
    assert data(first, text).features_hash == data(second).features_hash
    assert data(second, text, seed=6).features_hash != data(first).features_hash


def problem(made: PreparedSentences, seed: int = 0) -> NextWord:
    torch.manual_seed(seed)
    likelihood = build_likelihood("closed", CLOSED, 1, next_word.transitions(made), torch.device("cpu"))
    return NextWord(SuperpositionTransformer(1), likelihood, made).double()


def test_ranks_count_the_words_that_score_as_well(tmp_path: Path) -> None:
    result = prepared(tmp_path)
    built = problem(result)
    outputs = built.outputs("train", torch.arange(built.splits["train"]))
    unitary = sentence_unitary(built.model.weights.detach(), 1).numpy()
    vocabulary = result.sentences.vocabulary
    for row, sentence in enumerate(result.splits["train"]):
        words = result.sentences.words[sentence]
        words = words[words >= 0]
        vectors = embed([vocabulary[i] for i in words], range(len(words)), 5)
        for i in range(len(words) - 1):
            psi = sum(np.kron(v, v) for v in vectors[: i + 1])
            psi = psi / np.linalg.norm(psi)
            everyone = embed(vocabulary, [i + 1] * len(vocabulary), 5)
            scores = [abs(np.kron(vectors[i], x) @ unitary @ psi) for x in everyone]
            rank = sum(score >= scores[words[i + 1]] - 1e-12 for score in scores)
            assert outputs[row, 1 + i] == rank
        assert outputs[row, 1 + len(words) - 1 :].tolist() == [0] * (outputs.shape[1] - len(words))


def test_metrics_compare_with_chance(tmp_path: Path) -> None:
    built = problem(prepared(tmp_path))
    outputs = torch.tensor([[0.5, 1.0, 4.0], [0.25, 2.0, 0.0]], dtype=torch.float64)
    metrics = built.metrics("test", outputs, full=True)
    assert metrics["accuracy"] == pytest.approx(1 / 3)
    assert metrics["reciprocal_rank"] == pytest.approx((1 + 1 / 4 + 1 / 2) / 3)
    assert metrics["count"] == 3
    assert built.right("test", outputs).tolist() == [[1, 0], [0, -1]]
    assert metrics["loss"] == pytest.approx(float(-np.log([0.5, 0.25]).mean()), abs=1e-9)


def test_chance_is_the_most_frequent_word_of_training(tmp_path: Path) -> None:
    """A sentence repeated: 'b' comes next three times in training, 'a' twice, 'c' never."""
    data = PreparedSentences(
        Sentences.of(("a b a b a b", "c b c")), {"train": np.array([0]), "test": np.array([1])}, seed=4
    )
    metrics = problem(data).metrics("test", torch.ones(2, 6, dtype=torch.float64)[1:, :3], full=True)
    assert metrics["chance"] == 1 / 2, "b is right, c is not"
    assert metrics["chance_reciprocal_rank"] == pytest.approx((1 + 1 / 3) / 2)


def test_a_word_that_scores_like_all_others_ranks_last(tmp_path: Path) -> None:
    built = problem(prepared(tmp_path))
    # Without any word before in psi all scores are zero.
    built.get_buffer("psi").zero_()
    ranks = built.outputs("train", torch.arange(1))[0, 1:]
    assert set(ranks[ranks > 0].tolist()) == {float(built.get_buffer("candidates").shape[1])}
