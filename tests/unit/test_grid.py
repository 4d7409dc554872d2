"""A run and its path are one and the same thing, and what decides a run is resolved from the config, sorted and plain."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketscale import config as settings
from ketscale import grid
from ketscale.errors import UserError
from ketscale.grid import Run

ROOT = Path(__file__).resolve().parents[2]
NAMES = st.from_regex(rf"\A{grid.NAME}\Z")
COUNTS = st.integers(min_value=0, max_value=10**6)
RUNS = st.builds(
    Run,
    workload=NAMES,
    model=NAMES,
    qubits=COUNTS,
    layers=COUNTS,
    batch=COUNTS,
    simulator=NAMES,
    backend=st.sampled_from(["cpu", "gpu", "ddp", "ddp-cpu", "mpi"]),
    nodes=COUNTS,
    ranks=COUNTS,
    threads=COUNTS,
    protocol=NAMES,
    seed=COUNTS,
)


@pytest.fixture
def default() -> dict[str, Any]:
    return settings.load(ROOT / "config.yaml")


@given(RUNS)
def test_parse_is_the_inverse_of_path(run: Run) -> None:
    assert Run.parse(run.path) == run
    assert Run.parse(run.folder) == run
    assert Run.parse(f"/somewhere/else/{run.path}") == run


@given(RUNS, RUNS)
def test_two_runs_never_share_a_path(one: Run, other: Run) -> None:
    assert (one.path == other.path) == (one == other)


@given(RUNS)
def test_a_place_splits_into_what_it_was_made_of(run: Run) -> None:
    assert grid.place(run.place) == {
        "backend": run.backend,
        "nodes": run.nodes,
        "ranks": run.ranks,
        "threads": run.threads,
    }


@pytest.mark.parametrize(
    "path",
    ["", "results/report.html", "results/runs/digits/vqc/q4-l3/default.qubit/cpu-n1r1t1/timing/seed0/metrics.json",
     "results/runs/digits/vqc/q4-l3-b16/default.qubit/cpu-n1r1t1/timing/seedx/metrics.json",
     "results/runs/digits/vqc/q4-l3-b16/default.qubit/cpu-n1r1t1/timing/seed0/history.csv"],
)  # fmt: skip
def test_a_path_that_names_no_run_is_refused(path: str) -> None:
    with pytest.raises(UserError, match="not a run's path"):
        Run.parse(path)


@pytest.mark.parametrize("text", ["cpu", "cpu-n1", "cpu-r1n1t1", "mpi-n1r2", "CPU-n1r1t1", "mpi-n1r2t1x"])
def test_a_place_that_is_written_otherwise_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="write it as NAME-n<nodes>r<ranks>t<threads>"):
        grid.place(text)


def test_points_add_to_the_shared_axes_or_replace_them() -> None:
    shared = {"workload": "digits", "model": "vqc", "qubits": 4, "layers": 3, "batch": 8, "simulator": "a",
              "backend": "cpu-n1r1t1", "protocol": "p", "seed": [0, 1]}  # fmt: skip
    block = {
        "kind": "simulator",
        "question": "?",
        "axes": shared,
        "points": [{}, {"simulator": ["a", "b"], "seed": 0}],
    }
    (study,) = grid.studies({"studies": {"s": block}})
    assert [(run.simulator, run.seed) for run in study.runs] == [("a", 0), ("a", 1), ("b", 0)]


def test_studies_share_runs_and_a_run_is_listed_once(default: dict[str, Any]) -> None:
    listed = grid.runs(default)
    asked = [run for study in grid.studies(default) for run in study.runs]
    assert len(listed) == len(set(listed)) == len(set(asked)) < len(asked)


def test_timed_runs_are_scheduled_seed_by_seed_after_the_untimed(default: dict[str, Any]) -> None:
    order = [(default["protocols"][run.protocol]["timed"], run.seed) for run in grid.runs(default)]
    assert order == sorted(order)
    assert {timed for timed, _ in order} == {False, True}
    assert len({seed for timed, seed in order if timed}) >= 2
    assert len({seed for timed, seed in order if not timed}) >= 3


def test_within_a_seed_runs_keep_the_order_of_the_studies(default: dict[str, Any]) -> None:
    def timed(run: Run) -> bool:
        return default["protocols"][run.protocol]["timed"]

    first = [run for run in grid.runs(default) if run.seed == 0 and timed(run)]
    asked = dict.fromkeys(run for study in grid.studies(default) for run in study.runs)
    assert first == [run for run in asked if run.seed == 0 and timed(run)]


def test_a_slow_simulator_gets_its_own_number_of_steps(default: dict[str, Any]) -> None:
    steps = {
        run.simulator: grid.resolve(default, run)["protocol"]["steps"]
        for run in grid.runs(default)
        if run.protocol == "timing"
    }
    protocol = default["protocols"]["timing"]
    assert steps["fused"] == protocol["steps"]
    assert steps["qiskit"] == protocol["steps_for"]["qiskit"]
    assert all("steps_for" not in grid.resolve(default, run)["protocol"] for run in grid.runs(default))


def test_where_data_lie_decides_nothing(default: dict[str, Any]) -> None:
    run = grid.runs(default)[0]
    before = grid.canonical(grid.resolve(default, run))
    default["workloads"]["digits"]["folder"] = "/elsewhere"
    default["workloads"]["digits"]["weights_folder"] = "/elsewhere"
    assert grid.canonical(grid.resolve(default, run)) == before


def test_only_what_a_run_uses_decides_it(default: dict[str, Any]) -> None:
    run = next(run for run in grid.runs(default) if run.simulator == "default.qubit")
    before = grid.config_hash(grid.resolve(default, run))
    default["title"] = "another"
    default["simulators"]["qiskit"]["placement"] = "model"
    default["studies"].pop("weak")
    assert grid.config_hash(grid.resolve(default, run)) == before
    default["protocols"][run.protocol]["learning_rate"] *= 2
    assert grid.config_hash(grid.resolve(default, run)) != before


def test_equal_settings_have_one_text() -> None:
    assert grid.canonical({"b": 1, "a": {"d": 2, "c": 3}}) == '{"a":{"c":3,"d":2},"b":1}'
    assert json.loads(grid.canonical({"b": [1, 2]})) == {"b": [1, 2]}


def test_a_run_outside_the_config_is_refused_by_name(default: dict[str, Any]) -> None:
    run = Run.parse("results/runs/digits/vqc/q4-l3-b16/nosuch/cpu-n1r1t1/timing/seed0/metrics.json")
    with pytest.raises(UserError, match="no 'nosuch' under simulators"):
        grid.resolve(default, run)
