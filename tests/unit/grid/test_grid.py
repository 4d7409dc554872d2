"""A run and its path are one and the same thing, and what decides a run is resolved from the config, sorted and plain."""

import dataclasses
import json
from typing import Any

import pytest

from ketscale import grid
from ketscale.config import Config, Settings, conflicts, load
from ketscale.errors import UserError
from ketscale.grid import Run, SizeAxis
from ketscale.problems.registry import FAMILIES, read_config
from tests import ROOT

SIZES = (SizeAxis("q", "qubits", "qubits"), SizeAxis("l", "layers", "layers"))


@pytest.fixture
def default() -> Config:
    return read_config(ROOT / "config.yaml")


def test_points_add_to_the_shared_axes_or_replace_them() -> None:
    shared = {"workload": "digits", "model": "vqc", "qubits": 4, "layers": 3, "batch": 8, "simulator": "a",
              "backend": "cpu-n1r1t1", "protocol": "p", "seed": [0, 1]}  # fmt: skip
    points = [{**shared}, {**shared, "simulator": ["a", "b"], "seed": 0}]
    runs = grid.expand(points, lambda workload: SIZES)
    assert [(run.simulator, run.seed) for run in runs] == [("a", 0), ("a", 1), ("b", 0)]
    assert {run.size for run in runs} == {"q4-l3"}


def test_runs_that_differ_in_their_seed_alone_have_one_point() -> None:
    one = Run("w", "m", "q1-l1", 8, "s", "mpi", 1, 2, 1, "p", 0)
    other = dataclasses.replace(one, seed=1)
    assert one.without("seed") == other.without("seed")
    assert one.without("batch") != other.without("batch")
    assert "layout" in grid.POINT and "seed" not in grid.POINT and not set(grid.LAYOUT) & set(grid.POINT)


def test_studies_share_runs_and_a_run_is_listed_once(default: Config) -> None:
    runs = [run for study in default.studies for run in study.runs]
    finals = [run for run in default.runs if not default.is_trial(run)]
    assert len(finals) == len(set(finals)) == len(set(runs)) < len(runs)
    # Trials come before what is trained with the settings that they choose.
    assert default.runs[-len(finals) :] == tuple(finals)
    assert len(default.runs) == len(set(default.runs)) > len(finals)


def test_timed_runs_are_scheduled_seed_by_seed_after_the_untimed(default: Config) -> None:
    order = [(default.timed(run), run.seed) for run in default.runs if not default.is_trial(run)]
    assert order == sorted(order)
    assert {timed for timed, _ in order} == {False, True}
    assert len({seed for timed, seed in order if timed}) >= 2
    assert len({seed for timed, seed in order if not timed}) >= 3


def test_within_a_seed_runs_keep_the_order_of_the_studies(default: Config) -> None:
    first = [run for run in default.runs if run.seed == 0 and default.timed(run)]
    runs = dict.fromkeys(run for study in default.studies for run in study.runs)
    assert first == [run for run in runs if run.seed == 0 and default.timed(run)]


def test_a_slow_simulator_gets_its_own_number_of_steps(default: Config) -> None:
    steps = {
        run.simulator: default.settings(run).protocol for run in default.runs if run.protocol == "timing"
    }
    protocol = default.protocols["timing"]
    assert steps["fused"].steps == protocol.steps
    assert steps["lightning.qubit"].steps == protocol.steps_for["lightning.qubit"]
    assert all(not used.steps_for for used in steps.values())


def of(given: dict[str, Any]) -> Config:
    return Config.of(given, FAMILIES)


def test_where_data_are_decides_nothing() -> None:
    arguments = load(ROOT / "workflow" / "studies" / "mnist.yaml")
    run = of(arguments).runs[0]
    before = of(arguments).settings(run).text
    arguments["workloads"]["mnist"]["folder"] = "/elsewhere"
    assert of(arguments).settings(run).text == before


def test_a_default_that_has_all_entries_decides_nothing_more() -> None:
    given = load(ROOT / "config.yaml")
    run = of(given).studies[0].runs[0]
    before = of(given).settings(run).hash
    given["protocols"][run.protocol] |= {"optimiser": "adam", "checkpoint_steps": 200, "weight_decay": 1e-4}
    assert of(given).settings(run).hash == before


def test_only_what_a_run_uses_decides_it() -> None:
    settings = load(ROOT / "config.yaml")
    run = next(run for run in of(settings).runs if run.simulator == "default.qubit")
    before = of(settings).settings(run).hash
    settings["title"] = "another"
    settings["simulators"]["qiskit"]["placement"] = "model"
    settings["studies"].pop("batch")
    assert of(settings).settings(run).hash == before
    settings["protocols"][run.protocol]["learning_rate"] *= 2
    assert of(settings).settings(run).hash != before


def test_settings_survive_the_way_to_another_process(default: Config) -> None:
    for run in default.runs:
        settings = default.settings(run)
        repeat = Settings.of(json.loads(settings.text), FAMILIES, "--settings")
        assert (repeat.run, repeat.hash, repeat.sizes) == (run, settings.hash, settings.sizes)
        assert list(conflicts(repeat)) == []


def test_settings_of_another_version_are_refused_in_a_line(default: Config) -> None:
    content = json.loads(default.settings(default.runs[0]).text)
    content["protocol"]["no_such"] = 1
    with pytest.raises(UserError, match=r"--settings: not settings of this version .*no_such"):
        Settings.of(content, FAMILIES, "--settings")


def test_equal_settings_have_one_text() -> None:
    assert grid.canonical({"b": 1, "a": {"d": 2, "c": 3}}) == '{"a":{"c":3,"d":2},"b":1}'
    assert json.loads(grid.canonical({"b": [1, 2]})) == {"b": [1, 2]}


def test_a_run_outside_the_config_is_refused_by_name(default: Config) -> None:
    run = Run.parse("results/runs/digits/vqc/q4-l3-b16/nosuch/cpu-n1r1t1/timing/seed0/metrics.json")
    with pytest.raises(UserError, match="no simulator is called nosuch"):
        default.settings(run)


def test_paths_of_before_name_the_same_runs() -> None:
    run = Run.parse("results/runs/digits/vqc/q4-l3-b64/fused/cpu-n1r1t1/timing/seed0/metrics.json")
    assert run == Run("digits", "vqc", "q4-l3", 64, "fused", "cpu", 1, 1, 1, "timing", 0)
    assert (
        f"results/{run.path}"
        == "results/runs/digits/vqc/q4-l3-b64/fused/cpu-n1r1t1/timing/seed0/metrics.json"
    )
