"""A search from its trials, which train together, to the run that trains with what validation chose."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from ketscale.jobs import choice, cohorts
from ketscale.measure.record import check
from tests.process.integration import study


def test_a_run_trains_with_the_best_trial_by_validation_as_if_it_was_given_by_hand(
    tmp_path: Path, digits_features: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = study.run(protocol="tuned")
    before = study.settings(final)
    trials = [before.trial(number, 1000) for number in range(3)]
    monkeypatch.setenv("KETSCALE_CALL", "a-call")
    monkeypatch.setenv(cohorts.VARIABLE, "")
    cohorts.write(tmp_path / "results", [trials])
    for trial in trials:
        study.train(tmp_path, trial.run, digits_features)
    hashed = json.loads(digits_features.read_text())["hash"]
    values = [check(tmp_path / study.record(each.run), each, hashed).record for each in trials]
    quality = [record.quality for record in values if record and record.quality]
    assert [len(record.cohort) for record in values if record] == [2, 2, 2]
    assert all(each.validation["accuracy"] is not None and not each.test for each in quality)

    best = min(
        range(3),
        key=lambda number: (-quality[number].validation["accuracy"], quality[number].validation["loss"]),
    )
    rate = trials[best].protocol.learning_rate

    result = study.train(tmp_path, final, digits_features)
    assert result["config"]["protocol"]["learning_rate"] == rate and result["quality"]["test"]
    pick = choice.make(before, tmp_path / "results", hashed)
    assert pick.chosen == best and result["config"]["choice"] == pick.hash
    plain = msgspec.structs.replace(before.protocol, learning_rate=rate, search=None)
    by_hand = replace(before, run=replace(final, protocol="by-hand"), protocol=plain)
    alike = study.train(tmp_path, by_hand.run, digits_features, "--settings", by_hand.text)
    assert alike["weights_hash"] == result["weights_hash"]
