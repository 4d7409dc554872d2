"""What a search chooses: by the validation of its trials' records alone, and what the runs that train with it say of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ketscale import analysis
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs import choice, records, status
from ketscale.jobs.status import Queue
from ketscale.measure import record
from tests import record_maker as maker
from tests.searched import GIVEN

CONFIG = analysis.of(GIVEN)
FINALS = [run for run in CONFIG.runs if run.model == "vqc" and not CONFIG.is_trial(run)]
FINAL = CONFIG.settings(FINALS[0])
TRIALS = [*CONFIG.trials_of(FINALS[0])]


def quality(accuracy: float | None, loss: float | None = 1.0, test: Mapping[str, Any] = {}) -> dict[str, Any]:
    """The quality of a record with these metrics on validation data."""
    validation = {"accuracy": accuracy, "loss": loss}
    return {"epochs": 2, "best_epoch": 1, "chosen": {}, "validation": validation, "test": test, "right": None}


def reach(results: Path, *found: Mapping[str, Any]) -> None:
    """Records of the trials, in their order, with these changes."""
    folder = results / "features/digits"
    folder.mkdir(parents=True, exist_ok=True)
    block = CONFIG.workloads["digits"][1]
    about = {"hash": maker.FEATURES, "workload": type(block).__name__, "settings": block.content()}
    (folder / "features.json").write_text(json.dumps(about))
    for run, changes in zip(TRIALS, found, strict=True):
        maker.write(results, CONFIG.settings(run), **changes)


def qualities(*accuracies: float) -> list[dict[str, Any]]:
    return [{"quality": quality(each)} for each in accuracies]


def train(results: Path, run: Run = FINALS[0]) -> Path:
    """The record of a run with the settings that it finds."""
    result = choice_of(results)
    settings = CONFIG.settings(run).chosen(result.chosen, result.hash)
    return maker.write(results, settings, quality=quality(0.5))


def choice_of(results: Path) -> choice.Choice:
    return choice.make(FINAL, results, maker.FEATURES)


def test_the_best_on_validation_data_is_chosen(tmp_path: Path) -> None:
    reach(tmp_path, *qualities(0.7, 0.9, 0.8, 0.2))
    result = choice_of(tmp_path)
    values = {trial.name: trial.validation for trial in result.trials}
    assert result.chosen == 1 and values == dict(
        zip((run.protocol for run in TRIALS), (0.7, 0.9, 0.8, 0.2), strict=True)
    )
    assert result.why == "tuned-t01 has the best accuracy on validation data of 4 trials"
    settings = FINAL.chosen(result.chosen, result.hash)
    assert settings.protocol.learning_rate == CONFIG.settings(TRIALS[1]).protocol.learning_rate


def test_of_equals_the_smaller_loss_then_the_smaller_trial_is_chosen(tmp_path: Path) -> None:
    reach(tmp_path, *({"quality": quality(0.9, loss)} for loss in (2.0, 1.0, 1.0, 3.0)))
    assert choice_of(tmp_path).chosen == 1
    reach(tmp_path, *({"quality": quality(0.9, loss)} for loss in (2.0, 2.0, 2.0, 2.0)))
    assert choice_of(tmp_path).chosen == 0


def test_a_trial_that_diverged_loses_and_is_named(tmp_path: Path) -> None:
    reach(tmp_path, {"status": "diverged"}, *qualities(0.1, 0.2, 0.1))
    result = choice_of(tmp_path)
    assert result.chosen == 2 and result.trials[0].why == "diverged" and "; 1 failed" in result.why


def test_if_every_trial_failed_nothing_trains_and_the_reason_is_said(tmp_path: Path) -> None:
    folder = tmp_path / CONFIG.results
    reach(folder, *({"status": "diverged"} for _ in range(3)), {"quality": quality(None)})
    with pytest.raises(UserError, match=r"none of 4 trials can be chosen \(3 diverged, 1 without accuracy\)"):
        choice_of(folder)
    assert "none of 4 trials" in records.read(CONFIG, folder).checked[FINALS[0]].why
    (state,) = (one for one in status.survey(CONFIG, tmp_path, Queue()) if one.run == FINALS[0])
    assert state.state == "failed" and state.reason.endswith("give `search` other settings")


def test_no_test_result_changes_a_choice(tmp_path: Path) -> None:
    """Training leaves no test of a trial; if there was one it would count for nothing."""
    reach(tmp_path / "a", *qualities(0.7, 0.9, 0.8, 0.2))
    tests = ({"accuracy": share, "loss": 1 - share} for share in (1.0, 0.0, 1.0, 1.0))
    result = ((0.7, 0.9, 0.8, 0.2), tests)
    for run, accuracy, test in zip(TRIALS, *result, strict=True):
        maker.forge(tmp_path / "b", CONFIG.settings(run), quality=quality(accuracy, test=test))
    records = {run: record.read(tmp_path / "b" / run.path) for run in TRIALS}
    assert all(each.record for each in records.values())
    assert choice.of(FINAL, records, maker.FEATURES) == choice_of(tmp_path / "a")


def test_the_mean_over_the_seeds_of_the_search_decides(tmp_path: Path) -> None:
    settings = {**GIVEN, "protocols": {"tuned": {**GIVEN["protocols"]["tuned"]}}}
    settings["protocols"]["tuned"]["search"] = {**settings["protocols"]["tuned"]["search"], "seeds": [7, 8]}
    config = analysis.of(settings)
    final = next(run for run in config.runs if run.model == "vqc" and run.protocol == "tuned")
    values = {7: (0.9, 0.5, 0.1, 0.1), 8: (0.1, 0.6, 0.1, 0.1)}
    for run in config.trials_of(final):
        accuracy = values[run.seed][int(run.protocol[-1])]
        maker.write(tmp_path, config.settings(run), quality=quality(accuracy))
    assert choice.make(config.settings(final), tmp_path, maker.FEATURES).chosen == 1


def test_a_run_is_stale_if_its_trials_choose_another_or_one_is_missing(tmp_path: Path) -> None:
    reach(tmp_path, *qualities(0.7, 0.9, 0.8, 0.2))
    train(tmp_path)
    assert records.read(CONFIG, tmp_path).checked[FINALS[0]].state == "completed"
    reach(tmp_path, *qualities(0.7, 0.9, 0.95, 0.2))
    assert records.read(CONFIG, tmp_path).checked[FINALS[0]].state == "stale"
    reach(tmp_path, *qualities(0.7, 0.9, 0.8, 0.2))
    (tmp_path / TRIALS[0].path).unlink()
    assert records.read(CONFIG, tmp_path).checked[FINALS[0]].state == "stale"
    with pytest.raises(UserError, match=r"metrics.json: missing; train this trial first"):
        choice_of(tmp_path)


def test_the_hash_of_a_choice_is_that_of_older_folders(tmp_path: Path) -> None:
    """Records of runs that trained with a choice have it among their settings."""
    reach(tmp_path, *qualities(0.7, 0.9, 0.8, 0.2))
    assert choice_of(tmp_path).hash == "5ac10e564a114eca1165e72186d257b02f552d24ef5213536a32f09fa48ec1b5"
