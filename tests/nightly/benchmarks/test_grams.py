"""The benchmark of Gram matrices: rows, projections, and peers that agree with PennyLane's template state by state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pennylane as qml
import pytest

from benchmarks import stopwatch
from benchmarks.grams import SIMULATORS, GramCase, create, features_of
from benchmarks.runner import Call
from benchmarks.stopwatch import Timing
from ketscale import cli


@pytest.mark.parametrize("name", SIMULATORS)
@pytest.mark.parametrize("qubits, layers", [(1, 2), (2, 1), (5, 3)])
def test_every_simulator_has_the_states_of_pennylanes_template(name, qubits, layers):
    case = GramCase(qubits, layers, 6)

    @qml.qnode(qml.device("default.qubit", wires=qubits))
    def state(features):
        qml.IQPEmbedding(features, wires=range(qubits), n_repeats=layers)
        return qml.state()

    states = np.array([state(row) for row in features_of(case)])
    if name == "jax":
        pytest.importorskip("jax")
    result = create(name).prepare(case)()
    np.testing.assert_allclose(result, np.abs(states @ states.conj().T) ** 2, rtol=0, atol=1e-12)


def test_a_whole_benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def steady(calls: Mapping[tuple[str, str], Call], repeats: int) -> dict[tuple[str, str], Timing]:
        return {name: Timing(2.0, 0.5, repeats) for name in calls}

    monkeypatch.setattr(stopwatch, "steady", steady)
    names = "fused,vectorised,pennylane-pairs"
    arguments = f"--qubits 2 --samples 25 --simulators {names} --repeats 5 --threads 1 --json {tmp_path / 'rows.json'}"
    assert cli.main(["bench", "grams", *arguments.split()]) == 0
    rows = {row["simulator"]: row for row in json.loads((tmp_path / "rows.json").read_text())["rows"]}
    assert list(rows) == names.split(",")
    assert all(row["status"] == "timed" and row["first_s"] > 0 for row in rows.values())
    assert [row["part"] for row in rows.values()] == [None, None, 20]
    # The timed call is of the part; the whole has 300 pairs instead of 190.
    assert [row["by_fused"] for row in rows.values()] == [1, 1, pytest.approx(300 / 190)]
    assert [row["median_s"] for row in rows.values()] == [2, 2, pytest.approx(2 * 300 / 190)]
    assert rows["pennylane-pairs"]["iqr_s"] == pytest.approx(0.5 * 300 / 190)
