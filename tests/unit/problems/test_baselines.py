"""The standard methods beside models: the numbers of scikit-learn and MNE called directly, on the same data and split."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, log_loss, root_mean_squared_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ketscale.problems import baselines
from ketscale.problems.baselines import PENALTIES, Baseline, of_vectors
from ketscale.problems.registry import FAMILIES, workload_of

RNG = np.random.default_rng(5)
PARTS = dict(zip(("train", "validation", "test"), np.split(RNG.permutation(240), [140, 190]), strict=True))
VECTORS = RNG.normal(size=(240, 6)).astype(np.float32)
SCORES = VECTORS @ RNG.normal(size=(6, 3)) + RNG.gumbel(size=(240, 3))
CLASSES = SCORES.argmax(1)
COLUMNS = np.stack([SCORES[:, 0], 40 + 3 * SCORES[:, 1]], axis=1)


def part(name: str, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(array[PARTS[name]] for array in arrays)


def bits(found: Baseline) -> list[int]:
    assert found.right is not None
    text = "".join(f"{byte:08b}" for byte in base64.b64decode(found.right.bits))
    cases = sum(found.right.cases or [1] * found.right.samples)
    return [int(bit) for bit in text[:cases]]


def test_logistic_regression_has_the_penalty_with_the_least_loss_on_validation() -> None:
    _, found = of_vectors(VECTORS, CLASSES, PARTS)
    models = {
        each: LogisticRegression(C=1 / each, max_iter=1000).fit(*part("train", VECTORS, CLASSES))
        for each in PENALTIES
    }
    (x, y), (x_test, y_test) = part("validation", VECTORS, CLASSES), part("test", VECTORS, CLASSES)
    losses = {
        each: log_loss(y, model.predict_proba(x.astype(float)), labels=[0, 1, 2])
        for each, model in models.items()
    }
    best = min(losses, key=lambda each: losses[each])
    assert best not in (PENALTIES[0], PENALTIES[-1])
    named = models[best].predict(x_test)
    assert (found.name, found.penalty) == ("logistic regression", best)
    assert found.validation == pytest.approx(accuracy_score(y, models[best].predict(x)))
    assert found.test == pytest.approx(accuracy_score(y_test, named))
    assert bits(found) == (named == y_test).astype(int).tolist()


def test_the_unit_of_a_target_and_where_its_zero_is_change_no_error() -> None:
    _, found = of_vectors(VECTORS, COLUMNS, PARTS)
    _, moved = of_vectors(VECTORS, 1e-3 * COLUMNS + 1e7, PARTS)
    assert moved.penalty == found.penalty
    assert found.test is not None and moved.test == pytest.approx(1e-3 * found.test, rel=1e-4)


@pytest.mark.parametrize("targets", [COLUMNS, COLUMNS[:, :1]], ids=["two columns", "one"])
def test_ridge_regression_has_the_penalty_with_the_least_error_on_validation(targets: np.ndarray) -> None:
    constant, found = of_vectors(VECTORS, targets, PARTS)
    models = {
        each: Ridge(alpha=each).fit(*part("train", VECTORS.astype(float), targets)) for each in PENALTIES
    }

    def error(each: float, name: str) -> float:
        x, y = part(name, VECTORS.astype(float), targets)
        return float(root_mean_squared_error(y, models[each].predict(x).reshape(y.shape)))

    best = min(PENALTIES, key=lambda each: error(each, "validation"))
    assert (found.name, found.penalty, found.right) == ("ridge regression", best, None)
    assert (found.validation, found.test) == (
        pytest.approx(error(best, "validation")),
        pytest.approx(error(best, "test")),
    )
    mean, (y,) = targets[PARTS["train"]].mean(0), part("test", targets)
    assert constant.name == "mean" and constant.test == pytest.approx(
        root_mean_squared_error(y, np.broadcast_to(mean, y.shape))
    )


def test_the_majority_class_is_that_of_the_training_part() -> None:
    classes = np.zeros(240, np.int64)
    classes[PARTS["test"]] = 1
    classes[PARTS["test"][:3]] = 0
    classes[PARTS["train"][:20]] = 1
    found = baselines.constant(VECTORS, classes, PARTS)
    assert (found.name, found.penalty, found.validation, found.test) == ("majority class", None, 1.0, 3 / 50)


def test_without_validation_the_penalty_is_the_usual_one() -> None:
    _, found = of_vectors(VECTORS, CLASSES, {**PARTS, "validation": PARTS["validation"][:0]})
    model = LogisticRegression(max_iter=1000).fit(*part("train", VECTORS, CLASSES))
    assert (found.penalty, found.validation) == (1.0, None)
    assert found.test == pytest.approx(model.score(*part("test", VECTORS, CLASSES)))


def test_data_that_do_not_suit_a_method_are_said() -> None:
    found = baselines.fitted(
        "logistic regression", baselines._logistic, VECTORS, 0 * CLASSES, PARTS, PENALTIES
    )
    assert found.test is None and "class" in found.why


# --- families ---


def of_family(block: dict[str, Any], folder: Path) -> tuple[Path, list[Baseline]]:
    """The prepared data of a workload, and its baselines."""
    workload = workload_of(block, "workloads.mine")
    family = next(each for each in FAMILIES.values() if block["kind"] in each.workloads)
    assert family.prepare is not None and family.baselines is not None
    family.prepare(workload, folder / "features.json", None)
    return folder, list(family.baselines(folder / "features.json"))


@pytest.mark.parametrize("kind", ["arrays", "regression"])
def test_vectors_are_those_that_models_see(kind: str, tmp_path: Path) -> None:
    """Standardised by the training part alone, with the split of the file."""
    part_of = np.empty(240, "U10")
    for name, rows in PARTS.items():
        part_of[rows] = name
    numbers = kind == "regression"
    targets = COLUMNS if numbers else CLASSES
    np.savez(tmp_path / "x.npz", x=30 + 5 * VECTORS, y=targets, split=part_of)
    task = {"kind": "rows", "task": "regression"} if numbers else {"kind": kind}
    _, (_, found) = of_family({**task, "file": str(tmp_path / "x.npz"), "split": "given"}, tmp_path)
    penalty = found.penalty or 0
    model = Ridge(alpha=penalty) if numbers else LogisticRegression(C=1 / penalty, max_iter=1000)
    (x, y), (x_test, y_test) = part("train", VECTORS, targets), part("test", VECTORS, targets)
    named = make_pipeline(StandardScaler(), model).fit(x.astype(float), y).predict(x_test.astype(float))
    expected = root_mean_squared_error(y_test, named) if numbers else accuracy_score(y_test, named)
    assert found.penalty in PENALTIES and found.test == pytest.approx(expected, rel=1e-4)


def test_trials_have_the_common_spatial_patterns_of_mne(tmp_path: Path) -> None:
    """Two channels whose powers say the class, mixed with four of noise."""
    mne = pytest.importorskip("mne", reason="the extra eeg is not installed")
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    mne.set_log_level("ERROR")
    labels = np.arange(120) % 2
    sources = RNG.normal(size=(120, 6, 50))
    sources[:, 0] *= np.where(labels, 1.5, 1.0)[:, None]
    signals = np.einsum("ij,njt->nit", RNG.normal(size=(6, 6)), sources)
    parts = np.repeat(["train", "validation", "test"], [70, 20, 30])
    np.savez(tmp_path / "x.npz", x=signals, y=labels, split=parts)
    block = {"kind": "series", "file": str(tmp_path / "x.npz"), "split": "given"}
    folder, (constant, found) = of_family(block, tmp_path)
    x = np.load(next(folder.glob("*/signals.npy"))).astype(float)
    patterns = mne.decoding.CSP(4, reg="oas", log=True).fit(x[:70], labels[:70])
    linear = LinearDiscriminantAnalysis().fit(patterns.transform(x[:70]), labels[:70])
    named = linear.predict(patterns.transform(x[90:]))
    assert (found.name, found.why, found.fold) == ("CSP with LDA", "", None)
    assert bits(found) == (named == labels[90:]).astype(int).tolist()
    assert found.test == np.mean(named == labels[90:]) > 0.6
    assert found.validation == linear.score(patterns.transform(x[70:90]), labels[70:90])
    assert constant.test == 0.5


def test_without_mne_the_other_baseline_of_trials_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mne", None)
    np.savez(tmp_path / "x.npz", x=RNG.normal(size=(40, 2, 20)), y=np.arange(40) % 2)
    block = {"kind": "series", "file": str(tmp_path / "x.npz"), "split": "trials", "split_seed": 0}
    _, (constant, found) = of_family(block, tmp_path)
    assert constant.test == 0.5
    assert found.test is None and found.why.startswith(
        "the baseline CSP with LDA needs mne: pip install 'ketscale[eeg]'"
    )


def test_each_fold_has_its_own(tmp_path: Path) -> None:
    block = {
        "kind": "eeg-synthetic", "subjects": 1, "trials": 45, "rate": 40, "window_s": 1.0, "seed": 0, "gain": 20,
        "split": "runs", "split_seed": 0,
    }  # fmt: skip
    _, found = of_family(block, tmp_path)
    assert [each.fold for each in found if each.name == "majority class"] == [0, 1, 2]
    assert [each.right.samples for each in found if each.right] == [15] * len(found)


def test_words_are_counted_in_training_alone(tmp_path: Path) -> None:
    """Counted by hand: in training `cat` comes next four times, `dog` behind `a` twice, `a` behind `sees` twice."""
    training = ["a cat sees the cat", "the cat sees a dog", "one cat sees a dog"]
    validation, test = "a dog sees the dog", "my dog sees a cat"
    (tmp_path / "lines.txt").write_text("\n".join([*training, validation, test]))
    block = {
        "kind": "sentences",
        "file": str(tmp_path / "lines.txt"),
        "seed": 0,
        "held_out": 1,
        "split_seed": 5,
    }
    folder, (frequent, bigram) = of_family(block, tmp_path)
    with np.load(next(folder.glob("*/splits.npz"))) as rows:
        assert (rows["validation"].tolist(), rows["test"].tolist()) == ([3], [4])
    # Training has no `my`, and nothing behind `dog`.
    assert (frequent.name, bits(frequent)) == ("most frequent word", [0, 0, 0, 1])
    assert (bigram.name, bits(bigram), bigram.test) == ("bigram", [0, 0, 1, 0], 0.25)
    assert (frequent.validation, bigram.validation) == (0.0, 0.25)
