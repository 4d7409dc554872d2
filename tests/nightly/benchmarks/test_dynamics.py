"""The benchmark of dynamics: rows, what is wrong or too slow, and packages that agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import dynamics, stopwatch
from benchmarks.dynamics import (
    PEERS,
    TRAJECTORIES,
    ControlCase,
    ControlTasks,
    Dynamics,
    Own,
    at_equal_error,
    create,
    error_of,
    tasks_of,
)
from benchmarks.runner import Call, Row
from ketscale import cli

SMALL = ControlCase("control", 1, 4, 3)
MODULES = {name: name.partition("-")[0] for name in PEERS if name != "plain-torch"} | {
    "qiskit-dynamics": "qiskit_dynamics",
    "plain-jax": "jax",
    "plain-jax-expm": "jax",
}


def test_a_whole_benchmark(tmp_path: Path) -> None:
    files = [tmp_path / f"bench.{kind}" for kind in ("json", "md")]
    options = [str(part) for pair in zip(("--json", "--markdown"), files, strict=True) for part in pair]
    names = "exact,exact-torch,rk4-0.01,literal-0.01,plain-torch,qutip"
    arguments = f"--qubits 1 --segments 4 --batch 3 --simulators {names} --repeats 5"
    assert cli.main(["bench", "dynamics", *arguments.split(), *options]) == 0
    rows = {row["simulator"]: row for row in json.loads(files[0].read_text())["rows"]}
    assert list(rows) == names.split(",")
    assert all(
        row["status"] == "timed" and row["median_s"] > 0 and row["iqr_s"] >= 0 for row in rows.values()
    )
    assert max(rows[name]["error"] for name in ("exact", "plain-torch", "qutip")) < 1e-12
    assert 1e-9 < rows["rk4-0.01"]["error"] < 1e-3
    assert [name for name, row in rows.items() if row["projected_from"] == 2] == ["literal-0.01", "qutip"]
    assert rows["qutip"]["computes"] == "value"
    assert "| control | 1 | 4 | 3 | exact | " in files[1].read_text()
    assert rows["qutip"]["times"] > 0 and rows["qutip"]["beside"] in ("exact", "exact-torch")


@pytest.mark.parametrize("qubits", [1, 2])
@pytest.mark.parametrize("name", PEERS)
def test_other_packages_find_the_same(name: str, qubits: int) -> None:
    if name in MODULES:
        pytest.importorskip(MODULES[name])
    tasks, peer = tasks_of(SMALL._replace(qubits=qubits)), create(name)
    result, expected = peer.prepare(tasks)(), Own("exact").prepare(tasks)()
    assert error_of(result, expected) < (1e-7 if peer.exact else 0.1)


@pytest.mark.parametrize("name", TRAJECTORIES[1:])
def test_trajectories_are_the_same(name: str) -> None:
    if name in MODULES:
        pytest.importorskip(MODULES[name])
    tasks = tasks_of(ControlCase("trajectory-3", 1, 7, 2))
    result, expected = create(name).prepare(tasks)(), Own("exact").prepare(tasks)()
    assert expected[0].shape == (2, 8) and error_of(result, expected) < 1e-10


def test_each_is_compared_with_the_fastest_of_ours_whose_error_is_no_larger() -> None:
    def row(seconds: float | None, error: float | None) -> Row:
        return {"median_s": seconds, "error": error, "beside": None, "times": None}

    rows = {
        "exact": row(2.0, 1e-15),
        "rk4": row(1.0, 1e-6),
        "rough": row(0.1, 1e-2),
        "broken": row(None, None),
        "peer": row(30.0, 1e-6),
        "exact peer": row(30.0, 3e-15),
    }
    at_equal_error(rows, ("exact", "rk4", "rough", "broken"))
    assert {name: (row["beside"], row["times"]) for name, row in rows.items() if row["beside"]} == {
        "peer": ("rk4", 30.0),
        "exact peer": ("exact", 15.0),
    }


class Off:
    """`exact` with a relative error."""

    most: int | None = None
    exact = True

    def __init__(self, error: float) -> None:
        self.error = error

    def prepare(self, tasks: ControlTasks) -> Call:
        return lambda: tuple((1 + self.error) * part for part in Own("exact").prepare(tasks)())


@pytest.mark.parametrize(
    "error, budget, status",
    [(1e-6, 60, "parity failed"), (float("nan"), 60, "parity failed"), (1e-10, 0, "over budget")],
)
def test_what_is_wrong_or_slow_is_not_timed(
    error: float, budget: float, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamics, "create", lambda name: Off(error))
    options = {"simulators": ("exact",), "segments": 4, "batch": (2,), "budget": float(budget), "repeats": 5}
    (row,) = Dynamics(**options).run()["rows"]
    assert (row["status"], row["median_s"]) == (status, None)


def test_times_of_a_loop_are_projected_to_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    timing = stopwatch.Timing(1.0, 0.5, 5)
    monkeypatch.setattr(stopwatch, "steady", lambda calls, repeats: dict.fromkeys(calls, timing))
    exact, loop = Dynamics(simulators=("exact", "literal-0.01"), segments=4, batch=(10,)).run()["rows"]
    assert (exact["median_s"], exact["iqr_s"]) == (1.0, 0.5)
    assert (loop["median_s"], loop["iqr_s"]) == (5.0, 2.5)
