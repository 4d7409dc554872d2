"""Runs whose seeds choose different folds of the data, together and alone: each trains on the fold of its own seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch

from ketscale.config import workload_kinds
from ketscale.jobs import started
from ketscale.problems.eeg.specification import eeg_file
from ketscale.problems.registry import FAMILIES
from ketscale.problems.splits import SPLITS
from ketscale.training.stack import Stack
from tests.process.integration.trials import SEEDS, Study, generated
from tests.unit.problems.eeg.edf_factory import RATE, write_edf


def recordings(folder: Path, counts: tuple[int, ...]) -> dict[str, Any]:
    """The settings of one subject's recordings of noise, with so many trials each."""
    rng = np.random.default_rng(7)
    for run, trials in zip((4, 8, 12), counts, strict=True):
        cues = [(1.0 + 4 * trial, ("T1", "T2")[trial % 2]) for trial in range(trials)]
        seconds = 4 * trials + 6
        write_edf(folder / eeg_file(1, run), 50 * rng.standard_normal((64, seconds * RATE)), cues)
    return {
        "kind": "eegmmidb", "folder": str(folder), "subjects": [1], "runs": [4, 8, 12], "rate": 10,
        "split": "runs", "split_seed": 0,
    }  # fmt: skip


# Every kind of workload with such folds: of equal sizes, and with a smaller one at the end.
KINDS = {"eeg-synthetic": lambda _: generated(45), "eegmmidb": lambda to: recordings(to, (10, 10, 6))}


def test_every_kind_of_workload_with_such_folds_is_tested_here() -> None:
    folded = {
        kind
        for kind, of in workload_kinds(FAMILIES.values()).items()
        if hasattr(of, "folded") and "runs" in str(get_type_hints(of, include_extras=True)["split"])
    }
    assert folded == KINDS.keys()


@pytest.fixture
def stacked(monkeypatch: pytest.MonkeyPatch) -> list[dict[int, Any]]:
    """The problems of each cohort that is trained, by seed."""
    values: list[dict[int, Any]] = []

    class Seen(Stack):
        def __init__(self, problems: Any, *rest: Any) -> None:
            super().__init__(problems, *rest)
            values.append({problem.seed: problem for problem in problems})

    monkeypatch.setattr("ketscale.training.cohort.Stack", Seen)
    return values


def samples(problem: Any, name: str) -> tuple[torch.Tensor, list[int], torch.Tensor]:
    """The samples of a part of a problem, how many there are of each class, and what a model sees of them."""
    rows = problem.get_buffer(f"rows_{name}")
    labels, inputs = (problem.get_buffer(of)[rows] for of in ("targets", "inputs"))
    return rows, labels.bincount(minlength=2).tolist(), inputs


def same_as_alone(study: Study, where: str, cohort: dict[int, Any]) -> None:
    """Assert that runs that were trained together left what they leave alone."""
    for seed, problem in cohort.items():
        settings = study.settings[seed]
        own = started.build(settings, started.read(settings, study.manifest), torch.device("cpu"))
        for name in SPLITS:
            (rows, classes, inputs), (its_rows, its_classes, its_inputs) = (
                samples(each, name) for each in (problem, own)
            )
            assert torch.equal(rows, its_rows) and classes == its_classes and torch.equal(inputs, its_inputs)
        study.train("alone", seed, None)
        joint, single = study.record(where, seed), study.record("alone", seed)
        assert joint["cohort"] == [f"quality/seed{other}" for other in cohort if other != seed]
        assert joint["split"] == single["split"] and single["split"]["fold"] == seed % 3
        assert [joint[name] for name in ("data_hash", "features_hash", "parameters")] == [
            single[name] for name in ("data_hash", "features_hash", "parameters")
        ]
        assert len(single["losses"]) == 20
        assert joint["losses"] == pytest.approx(single["losses"], rel=1e-10)
        for part in ("validation", "test"):
            figures, its = (each["quality"][part] for each in (joint, single))
            assert figures.pop("loss") == pytest.approx(its.pop("loss"), rel=1e-8)
            assert figures == its
        saved, its = (
            np.load(study.folder / place / settings.run.folder / "predictions.npz")
            for place in (where, "alone")
        )
        assert all(np.array_equal(saved[name], its[name]) for name in ("samples", "labels"))


CHOSEN = {"loss": "hinge", "class_weights": "balanced", "optimiser": "sgd", "momentum": 0.5, "cosine": {}}


@pytest.mark.parametrize(("metric", "protocol"), [(None, {}), ("f1_macro", CHOSEN)])
def test_each_member_of_a_cohort_trains_on_the_fold_of_its_seed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    one_thread: None,
    stacked: Any,
    metric: Any,
    protocol: Any,
) -> None:
    workload = KINDS["eeg-synthetic"](tmp_path) | ({"metric": metric} if metric else {})
    study = Study(tmp_path, workload, **protocol)
    assert study.train("together", 0, study.cohort(monkeypatch, "together")) == "completed"
    (cohort,) = stacked
    assert list(cohort) == list(range(SEEDS))
    # What is equal is there once.
    assert len({problem.get_buffer("inputs").data_ptr() for problem in cohort.values()}) == 1
    same_as_alone(study, "together", cohort)
    folds = [study.record("together", seed)["split"]["held_out"] for seed in range(SEEDS)]
    assert folds[:2] == folds[3:] and len(set(folds)) == 3
    quality = study.record("together", 0)["quality"]
    assert (quality["right"] is None) == (metric is not None)
    assert metric is None or 0 <= quality["test"][metric] <= 1


def test_runs_whose_folds_have_other_sizes_train_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None, stacked: list[dict[int, Any]]
) -> None:
    study = Study(tmp_path, KINDS["eegmmidb"](tmp_path / "given"))
    file = study.cohort(monkeypatch, "together")
    for seed in (1, 2):
        assert study.train("together", seed, file) == "completed"
    # The last fold is that of seed 2 alone, whose job finds nobody to train with.
    (cohort,) = stacked
    assert list(cohort) == [0, 1, 3, 4]
    same_as_alone(study, "together", cohort)
    study.train("alone", 2, None)
    last, single = study.record("together", 2), study.record("alone", 2)
    assert last["cohort"] == [] and last["timing"]["step"]["count"] > 0
    assert last["weights_hash"] == single["weights_hash"] and last["split"] == single["split"]
