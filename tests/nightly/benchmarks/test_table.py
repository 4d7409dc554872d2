"""`ketscale bench table`: its groups of cells, what agrees, long calls, and shots."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import circuits, command, table
from benchmarks.circuits import CircuitCase, create, loss_of, vector
from ketscale.errors import UserError

CPU = torch.device("cpu")


def test_a_hamiltonian_has_different_words_and_the_same_coefficients_for_all_samples() -> None:
    loss = loss_of(CircuitCase("vqc", 3, 2, 1, words=60), np.float64)
    assert len(set(loss.words)) == 60 and "III" not in loss.words
    assert (loss.coefficients[0] == loss.coefficients[1]).all()
    assert len(set(loss.coefficients[0])) == 60


@pytest.mark.parametrize("name", ["qulacs", "qnode-fused", "fused"])
def test_a_value_of_shots_is_drawn_around_the_exact_one(name: str) -> None:
    case = CircuitCase("strongly_entangling", 2, 2, 1)
    try:
        drawn = create(name, CPU).prepare(loss_of(case._replace(shots=4000), np.float64))
    except UserError as missing:
        pytest.skip(str(missing))
    found = {vector(drawn())[0] for _ in range(2)}
    exact = vector(create("kronecker", CPU).prepare(loss_of(case, np.float64))())[0]
    spread = np.abs(loss_of(case, np.float64).coefficients).sum() / 4000**0.5
    assert len(found) == 2 and all(abs(value - exact) < 6 * spread for value in found)


def test_the_table_says_what_is_wrong_times_a_long_call_once_and_draws(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prepare = circuits.Simulators.prepare

    def wrong(self: object, case: CircuitCase, name: str, row: object) -> object:
        call = prepare(self, case, name, row)  # type: ignore[arg-type]
        return (lambda: tuple(1.01 * part for part in call())) if name == "fused" and case.words else call

    monkeypatch.setattr(circuits.ceiling, "once", lambda device: {})
    monkeypatch.setattr(circuits.ceiling, "of", lambda device: None)
    cells = (CircuitCase("vqc", 2, 2, 1), CircuitCase("vqc", 2, 2, 1, words=5))
    monkeypatch.setattr(table, "GROUPS", {"small": (cells, ("default.qubit", "fused", "qnode-floor"))})
    monkeypatch.setattr(circuits.Simulators, "prepare", wrong)
    rows = table.Table(cells=("small",), repeats=5, budget=30).run()["rows"]
    assert [(row["simulator"], row["status"]) for row in rows] == [
        ("default.qubit", "timed"), ("fused", "timed"), ("qnode-floor", "timed"),
        ("default.qubit", "timed"), ("fused", "parity failed"), ("qnode-floor", "timed"),
    ]  # fmt: skip
    assert all(row["mode"] for row in rows)
    lines = table.Table.table(rows)
    assert lines[2].startswith("| 2 x 2 | 1 | 0 | 0 | default.qubit | torch, backprop, broadcast | ")
    assert lines[6].endswith("| parity failed |  |") and lines[3].endswith("| 5 | 1 |")
    once = table.Table(cells=("small",), simulators=("default.qubit",), repeats=5, budget=0).run()
    assert {(row["repeats"], row["median_s"] == row["first_s"]) for row in once["rows"]} == {(1, True)}
    from benchmarks import figures

    figures.save(table.Table.draw(once), tmp_path / "table.png")
    assert (tmp_path / "table.png").stat().st_size > 1000


def test_the_summary_says_whether_a_qnode_takes_more_or_less_than_the_floor() -> None:
    def row(simulator: str, seconds: float, qubits: int) -> dict[str, object]:
        return table.Table().row(CircuitCase("vqc", qubits, 1, 3), simulator) | {"median_s": seconds}

    lines = table.Table.summary([
        row("default.qubit", 0.004, 2), row("qnode-fused", 0.002, 2), row("qnode-floor", 0.001, 2),
        row("qnode-fused", 0.0015, 3), row("qnode-floor", 0.002, 3),
    ])  # fmt: skip
    assert lines == [
        "2 x 1: qnode-fused 2x over default.qubit (torch, backprop, broadcast)",
        "2 x 1: qnode-fused takes 1 ms more than qnode-floor",
        "3 x 1: qnode-fused takes 0.5 ms less than qnode-floor",
    ]


def test_the_command_knows_its_groups() -> None:
    with pytest.raises(UserError, match="--cells: no 'tiny'; choose of small, large, deep, words, shots"):
        command.main(["table", "--cells", "tiny"])
