"""The benchmark of gates without noise: its rows, and that plain torch, plain JAX and finite differences agree."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import expm

from benchmarks.dynamics import error_of
from benchmarks.gates import PEERS, GatesCase, Own, create, tasks_of
from ketscale import cli


def test_a_whole_benchmark(tmp_path: Path) -> None:
    file = tmp_path / "gates.json"
    simulators = "evolve,evolve-torch,plain-torch,plain-jax"
    arguments = (
        f"--qubits 1,2 --levels 2 --segments 3 --batch 2 --repeats 5 --threads 1 --simulators {simulators}"
    )
    assert cli.main(["bench", "gates", *arguments.split(), "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["rows"]
    assert [(row["gate"], row["qubits"]) for row in rows] == [("x", 1)] * 4 + [("x", 2)] * 4 + [
        ("cnot", 2)
    ] * 4
    for row in rows:
        assert row["status"] == "timed"
        assert row["error"] is None or row["error"] < 1e-12


@pytest.mark.parametrize(("name", "order"), [("x", [3, 2, 1, 0]), ("cnot", [0, 1, 3, 2])])
def test_infidelities_and_gradients_are_those_of_dense_exponentials(name: str, order: list[int]) -> None:
    tasks = tasks_of(GatesCase(2, 3, 2, 1, name))
    states = tasks.system.computational_states

    def infidelity(controls: np.ndarray) -> float:
        final = np.eye(9)
        for values in controls:
            final = expm(-1j * tasks.tau * (tasks.drift + np.tensordot(values, tasks.operators, 1))) @ final
        flipped = states.T @ final @ states
        return 1 - abs(np.trace(np.eye(4)[order].T @ flipped)) ** 2 / 16

    values, gradient = create("plain-torch").prepare(tasks)()
    assert values == pytest.approx([infidelity(tasks.controls[0])], rel=1e-12)
    step = np.zeros_like(tasks.controls[0])
    step[1, 2] = 1e-6
    both = [infidelity(tasks.controls[0] + sign * step) for sign in (1, -1)]
    assert gradient[0, 1, 2] == pytest.approx((both[0] - both[1]) / 2e-6, rel=1e-6)
    for own in ("evolve", "evolve-torch"):
        result = Own(own).prepare(tasks)()
        np.testing.assert_allclose(result[0], values, rtol=1e-12)
        np.testing.assert_allclose(result[1], gradient, atol=1e-12)


@pytest.mark.parametrize("name", PEERS)
def test_other_packages_find_the_same(name: str) -> None:
    if name != "plain-torch":
        pytest.importorskip(
            {"plain-jax": "jax", "qutip-qtrl": "qutip_qtrl", "dynamiqs-expm": "dynamiqs"}[name]
        )
    tasks = tasks_of(GatesCase(1, 3, 4, 2))
    assert error_of(create(name).prepare(tasks)(), Own("evolve").prepare(tasks)()) < 1e-9
