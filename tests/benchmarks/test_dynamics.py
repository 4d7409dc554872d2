"""The benchmark of dynamics: rows, files, what is wrong, missing or too slow, and packages that agree."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ketscale import cli
from ketscale.bench.dynamics import measure
from ketscale.bench.dynamics.arithmetic import flops
from ketscale.bench.dynamics.case import Call, Case, case_of
from ketscale.bench.dynamics.measure import create
from ketscale.bench.dynamics.own import OwnSubject
from ketscale.bench.dynamics.rows import DynamicsRow
from ketscale.bench.dynamics.selection import PEERS, Cell, DynamicsSelection, parse
from ketscale.engines.dynamics.evolution import Division
from ketscale.errors import UserError

SMALL = Cell("control", 1, 4, 3)
MODULES = {name: name.partition("-")[0] for name in PEERS} | {"qiskit-dynamics": "qiskit_dynamics"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ceiling that takes no time."""
    monkeypatch.setattr(measure, "SIZE", 16)


def test_a_whole_benchmark(tmp_path: Path, capsys: Any) -> None:
    files = [tmp_path / f"bench.{kind}" for kind in ("json", "csv", "md")]
    options = [
        str(part) for pair in zip(("--json", "--csv", "--markdown"), files, strict=True) for part in pair
    ]
    names = "exact,exact-torch,rk4-0.01,literal-0.01,qutip"
    arguments = f"--problem control --qubits 1 --segments 4 --batch 3 --simulators {names} --repeats 5"
    assert cli.main(["bench", "dynamics", *arguments.split(), *options]) == 0
    rows = {row["simulator"]: row for row in json.loads(files[0].read_text())["rows"]}
    assert list(rows) == names.split(",")
    assert all(
        row["status"] == "timed" and row["median_s"] > 0 and row["spread_s"] >= 0 for row in rows.values()
    )
    assert max(rows[name]["error"] for name in ("exact", "qutip")) < 1e-12
    assert 1e-9 < rows["rk4-0.01"]["error"] < 1e-3
    assert [name for name, row in rows.items() if row["projected_from"] == 2] == ["literal-0.01", "qutip"]
    assert [name for name, row in rows.items() if row["gflops"]] == ["exact", "rk4-0.01"]
    assert rows["qutip"]["computes"] == "value"
    with files[1].open() as file:
        assert tuple(next(csv.reader(file))) == tuple(field.name for field in fields(DynamicsRow))
    assert "| control | 1 | 4 | 3 | exact | value and gradient |" in files[2].read_text()
    assert "control 1q 4 segments x 3: exact takes" in capsys.readouterr().out


@pytest.mark.parametrize("qubits", [1, 2])
@pytest.mark.parametrize("name", PEERS)
def test_other_packages_find_the_same(name: str, qubits: int) -> None:
    pytest.importorskip(MODULES[name])
    case = case_of(SMALL._replace(qubits=qubits))
    (overlaps, gradient), expected = create(name).prepare(case)(), OwnSubject("exact").prepare(case)()
    np.testing.assert_allclose(overlaps, expected[0], rtol=0, atol=1e-8)
    if gradient is not None:
        assert expected[1] is not None
        np.testing.assert_allclose(gradient, expected[1], rtol=0, atol=1e-8 * np.abs(expected[1]).max())


@pytest.mark.parametrize("name", PEERS)
def test_a_package_that_is_not_here_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULES[name], None)
    with pytest.raises(UserError, match=rf"^{MODULES[name]} is not here .* make env-dynamics-bench has it$"):
        measure.measure(DynamicsSelection(simulators=(name,), asked=True))
    found = measure.measure(DynamicsSelection(simulators=(name,), segments=4, batches=(2,), repeats=5))
    assert [(row["status"], MODULES[name] in row["reason"]) for row in found["rows"]] == [
        ("not installed", True)
    ]


class Off:
    """`exact` with a relative error."""

    most: int | None = None

    def __init__(self, error: float) -> None:
        self.error = error

    def prepare(self, case: Case) -> Call:
        def call() -> Any:
            return tuple((1 + self.error) * part for part in OwnSubject("exact").prepare(case)())  # type: ignore[operator]

        return call


@pytest.mark.parametrize(
    "error, budget, status",
    [
        (1e-6, 60, "parity failed"),
        (float("nan"), 60, "parity failed"),
        (1e-10, 0, "over budget"),
        (1e-10, 60, "timed"),
    ],
)
def test_what_is_wrong_or_slow_is_not_timed(
    error: float, budget: float, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "create", lambda name: Off(error))
    selection = DynamicsSelection(simulators=("exact",), segments=4, batches=(2,), budget_s=budget, repeats=5)
    (row,) = measure.measure(selection)["rows"]
    assert row["status"] == status
    assert (row["median_s"] is None) == (status != "timed")


def test_times_of_a_loop_are_projected_to_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    timing = measure.stopwatch.Timing(1.0, 0.5, 5)
    monkeypatch.setattr(measure.stopwatch, "steady", lambda calls, repeats: dict.fromkeys(calls, timing))
    selection = DynamicsSelection(simulators=("exact", "literal-0.01"), segments=4, batches=(10,))
    exact, loop = measure.measure(selection)["rows"]
    assert (exact["median_s"], exact["spread_s"]) == (1.0, 0.5)
    assert (loop["median_s"], loop["spread_s"]) == (5.0, 2.5)


def test_arithmetic_of_a_fixed_number_of_steps() -> None:
    # Three rows with three entries each: 12 multiply-adds a term forward, as many again and 33 backward.
    assert flops(case_of(SMALL), Division((4,), (), 1)) == 2 * 3 * 4 * 4 * (12 + 33)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"problem": "control,pulses"}, "--problem: no 'pulses'"),
        ({"qubits": "3"}, "--qubits: there is no problem of 3 qubits"),
        ({"simulators": "exakt"}, "--simulators: no 'exakt'"),
        ({"repeats": "4"}, "--repeats: must be at least 5"),
        ({"batch": "0"}, "--batch: must be at least 1"),
    ],
)
def test_options_are_checked(options: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse(**options)
