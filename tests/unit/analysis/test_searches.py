"""What report, plan and status say of a study whose settings are searched."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from ketscale import analysis
from ketscale.analysis.advice import plan
from ketscale.analysis.report.page import provenance
from ketscale.errors import UserError
from ketscale.jobs import status
from tests import records_factory as factory
from tests.searched import GIVEN

CONFIG = analysis.of(GIVEN)
TRIALS = [run for run in CONFIG.runs if CONFIG.is_trial(run)]


def test_a_report_has_the_trials_and_what_each_side_had(tmp_path: Path) -> None:
    factory.write_all(CONFIG, tmp_path)
    tables = factory.collect(CONFIG, tmp_path).tables
    runs, quality = tables["runs"], tables["quality"].set_index("model")
    trials = runs[runs["studies"] == "search"]
    assert len(runs) == len(CONFIG.runs) and len(trials) == len(TRIALS)
    assert {*trials["node_hours"]} == {1 / 60} and trials["test_accuracy"].isna().all()
    assert provenance(runs)["cost"] == ["0.1 node-hours, 0 GPU-hours; searches 0.133 node-hours"]
    # A trial is no answer.
    assert quality["n"].tolist() == [3, 3]
    assert pd.isna(quality.loc["vqc", "why"])


def test_a_missing_trial_is_missed_and_a_partial_report_has_no_run_that_chose_by_it(tmp_path: Path) -> None:
    factory.write_all(CONFIG, tmp_path)
    (tmp_path / TRIALS[0].path).unlink()
    with pytest.raises(UserError, match="4 of 14 runs cannot be used"):
        factory.collect(CONFIG, tmp_path)
    result = factory.collect(factory.partial(CONFIG), tmp_path)
    runs, quality = result.tables["runs"], result.tables["quality"].set_index("model")
    assert runs["status"].value_counts().to_dict() == {"completed": 10, "stale": 3, "missing": 1}
    assert not result.complete and quality["chosen"].sum() == 1


def test_status_and_plan_count_the_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    message = status.as_text(CONFIG, Path("config.yaml"), tmp_path)
    assert ["accuracy", "14", ".", "14"] in map(str.split, message.splitlines())
    outline = plan.make(CONFIG, Path("config.yaml"), None, ())
    assert len(outline.omitted) == 14 and sum(map(CONFIG.is_trial, outline.omitted)) == 8


def test_trials_come_with_the_first_seeds_of_their_point() -> None:
    vqc = {run: 1.0 for run in CONFIG.runs if run.model == "vqc"}
    [(completion, further)] = plan.order(CONFIG, set(), vqc)
    assert [CONFIG.is_trial(run) for run in completion] == [True] * 4 + [False] * 3 and not further
    for unknown in (completion[0], completion[-1]):
        known = {run: one for run, one in vqc.items() if run != unknown}
        assert plan.order(CONFIG, set(), known) == [], "nothing is known of a trial, or of one of three seeds"
