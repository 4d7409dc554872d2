"""A search in a protocol: what is drawn, which runs its trials are, and what is refused."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import json
from typing import Any

import pytest

from ketscale import analysis
from ketscale.config import Config, Settings
from ketscale.config.search import Range, Search
from ketscale.errors import UserError
from ketscale.problems.registry import FAMILIES
from tests.searched import GIVEN, RATE, SEARCH


def of(**changes: Any) -> Config:
    """The config of `searched` with other settings of the search."""
    settings = copy.deepcopy(GIVEN)
    settings["protocols"]["tuned"]["search"] |= changes
    return analysis.of(settings)


def refusal(given: dict[str, Any]) -> str:
    with pytest.raises(UserError) as error:
        analysis.of(given)
    return str(error.value)


def error_of(**changes: Any) -> str:
    with pytest.raises(UserError) as error:
        of(**changes)
    return str(error.value)


def search(**changes: Any) -> Search:
    protocol = of(**changes).protocols["tuned"].search
    assert protocol is not None
    return protocol


def test_trials_are_runs_before_those_that_train_with_the_choice() -> None:
    result = of()
    trials, finals = result.runs[:8], result.runs[8:]
    assert {run.protocol for run in trials} == {f"tuned-t0{number}" for number in range(4)}
    assert {run.seed for run in trials} == {1000}
    assert {*finals} == {*result.studies[0].runs} and {run.protocol for run in finals} == {"tuned"}
    assert all(map(result.is_trial, trials)) and not any(map(result.is_trial, finals))
    assert {trial for run in finals for trial in result.trials_of(run)} == {*trials}
    assert not any([*result.trials_of(run)] for run in trials)
    # A report is made for the same trials.
    assert analysis.of(json.loads(result.text), placed=False).runs == result.runs


def test_each_trial_has_what_was_drawn_and_both_sides_have_the_same_rates() -> None:
    result = of()
    rates = {}
    for run in result.runs[:8]:
        settings = result.settings(run)
        assert settings.protocol.search is None and not settings.protocol.keep_model
        assert settings.trial_of == "tuned"
        rates.setdefault(run.model, []).append(settings.protocol.learning_rate)
        if run.model == "mlp":
            assert settings.content["model"]["width"] in (4, 6, 8)
    assert rates["vqc"] == rates["mlp"] and len(set(rates["vqc"])) == 4
    assert all(1e-4 <= rate <= 0.1 for rate in rates["vqc"])


def test_what_is_drawn_depends_on_nothing_but_the_seed_the_setting_and_the_trial() -> None:
    one = search()
    reordered = dict(reversed(SEARCH["settings"].items()))
    assert [search(settings=reordered).point("mlp", n) for n in range(4)] == [
        one.point("mlp", n) for n in range(4)
    ]
    lists = {"settings": {**RATE, "weight_decay": [1e-4, 0.0]}, "models": {"mlp": {"width": [8, 4, 6]}}}
    assert search(**lists, seeds=[8, 7]) == search(seeds=[7, 8])
    more = search(trials=9, models={"mlp": {"width": [4, 6, 8]}, "vqc": {}})
    assert [more.point("mlp", n) for n in range(4)] == [one.point("mlp", n) for n in range(4)]
    assert [search(seed=1).point("mlp", n) for n in range(4)] != [one.point("mlp", n) for n in range(4)]
    # As it was when this was written: other numbers would make every record of a search stale.
    assert one.point("vqc", 0).training == {"learning_rate": 0.0008231, "weight_decay": 0.0001}


def test_a_finite_space_is_drawn_to_its_end_without_repetition() -> None:
    space = {"learning_rate": [0.001, 0.01, 0.1], "weight_decay": [0.0, 1e-4]}
    drawing = search(trials=6, settings=space, models={})
    assert len({repr(drawing.point("vqc", number)) for number in range(6)}) == 6
    assert "6 settings for vqc and 7 trials" in error_of(trials=7, settings=space, models={})
    assert "trials" in error_of(settings={"learning_rate": {"low": 0.1, "high": 0.10001}}, models={})


def test_a_grid_is_every_combination_and_as_many_for_each_model() -> None:
    space = {"learning_rate": [0.001, 0.1]}
    result = search(method="grid", trials=2, settings=space, models={})
    assert [result.point("mlp", number).training for number in range(2)] == [
        {"learning_rate": 0.001},
        {"learning_rate": 0.1},
    ]
    why = error_of(method="grid", trials=2, settings=space, models={"mlp": {"width": [4, 8]}})
    assert "multiply to 4 settings for mlp, but trials is 2" in why


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_range_is_filled_from_end_to_end(scale: str) -> None:
    complete, real = Range(low=2, high=5, scale=scale), Range(low=0.5, high=8.0, scale=scale)
    shares = [number / 1000 for number in range(1000)]
    assert {complete.at(share) for share in shares} == {2, 3, 4, 5}
    values = [real.at(share) for share in shares]
    assert values == sorted(values) and (values[0], values[-1] > 7.9) == (0.5, True)
    assert real.at(0.5) == (2.0 if scale == "log" else 4.25)


def test_a_range_of_a_real_setting_has_real_numbers_however_it_is_written() -> None:
    drawing = search(settings={**SEARCH["settings"], "clip_norm": {"low": 1, "high": 3}}, models={})
    assert drawing.point("vqc", 0).training["clip_norm"] % 1 != 0
    complete = search(settings=RATE, models={"mlp": {"width": {"low": 2, "high": 90}}})
    assert all(isinstance(complete.point("mlp", number).model["width"], int) for number in range(4))


def test_what_was_chosen_is_in_the_settings_with_the_hash_of_the_choice() -> None:
    result = of()
    final = result.settings(result.runs[-1])
    picked, trial = final.chosen(2, "a" * 8), final.trial(2, 1000)
    assert picked.protocol.learning_rate == trial.protocol.learning_rate
    assert (picked.model, picked.run, picked.choice, picked.trial_of) == (
        trial.model,
        final.run,
        "a" * 8,
        None,
    )
    assert picked.protocol.search is not None and picked.protocol.keep_model
    assert picked.hash not in (final.hash, final.chosen(2, "b" * 8).hash)
    for settings in (final, picked, trial):
        assert Settings.of(settings.content, FAMILIES, "here").content == settings.content


def test_what_is_searched_for_one_model_changes_no_run_of_another() -> None:
    one, other = of(), of(models={"mlp": {"width": [4, 5, 6]}})
    run = next(run for run in one.runs if run.model == "vqc")
    assert one.settings(run).hash == other.settings(run).hash


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"settings": {**RATE, "epochs": [1, 2]}}, "search.settings.epochs"),
        ({"settings": {"learning_rate": {"low": 0.1, "high": 0.01}}}, "search.settings.learning_rate.low"),
        ({"settings": {"learning_rate": {"low": 0.0, "high": 0.01, "scale": "log"}}}, "search.settings.learning_rate.low"),
        ({"settings": RATE, "method": "grid"}, "search.settings.learning_rate"),
        ({"settings": {**RATE, "weight_decay": [0, 0.0]}}, "search.settings.weight_decay"),
        ({"settings": {**RATE, "clip_norm": [float("nan"), 1.0]}}, "search.settings.clip_norm.0"),
        ({"settings": {"learning_rate": [datetime.date(2020, 1, 1), 0.1]}}, "search.settings.learning_rate.0"),
        ({"seeds": [7, 7]}, "search.seeds"),
        ({"seeds": [0]}, "search.seeds"),
    ],
)  # fmt: skip
def test_what_cannot_be_searched_is_refused_by_name(changes: dict[str, Any], path: str) -> None:
    assert path in error_of(**changes)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"learning_rate": 0.1}, "protocols.tuned.learning_rate"),
        ({"timed": True}, "protocols.tuned.search"),
        ({"epochs": None, "steps": 9}, "protocols.tuned.search"),
    ],
)
def test_a_protocol_that_cannot_be_searched_is_refused(changes: dict[str, Any], path: str) -> None:
    settings = copy.deepcopy(GIVEN)
    tuned = {**settings["protocols"]["tuned"], **changes}
    settings["protocols"]["tuned"] = {name: value for name, value in tuned.items() if value is not None}
    assert path in refusal(settings)


def test_a_choice_belongs_to_a_point_and_takes_no_notice_of_seeds() -> None:
    settings = copy.deepcopy(GIVEN)
    settings["protocols"]["tuned"]["search"]["seeds"] = [0]
    settings["studies"]["accuracy"]["axes"]["seed"] = [1, 2]
    config = analysis.of(settings)
    point = dataclasses.replace(config.studies[0].runs[0], seed=0)
    assert config.settings(point).protocol.search is not None
