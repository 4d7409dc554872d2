"""The benchmark of what an evolution costs: what it times, what it leaves out, and its tables."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from docs._generate import benched

from benchmarks.costs import Costs, CostsCase, call_of
from benchmarks.gates import DURATION_NS, chain_of, controls_of
from ketscale import cli
from ketscale import dynamics as kd

COMMAND = "costs --states 3 --segments 2,5 --batch 1,2 --repeats 5 --threads 1"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("costs") / "costs.json"
    assert cli.main(["bench", *COMMAND.split(), "--json", str(file)]) == 0
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_every_cell_is_timed(result: dict[str, Any]) -> None:
    assert len(result["rows"]) == 3 * 2 * 2 * 2
    assert {row["status"] for row in result["rows"]} == {"timed"}


def test_the_page_has_a_part_of_the_table(result: dict[str, Any]) -> None:
    heading, _, *lines = Costs.table(result["rows"])
    assert heading == "| evolves | qubits | levels | segments | 1 task (range) | 2 tasks (range) |"
    assert len(lines) == 12
    shown = Costs.excerpt(result["rows"])[2:]
    assert set(shown) < set(lines)
    # The longest of each system, and both lengths of one.
    lengths = [[cell.strip() for cell in line.split("|")][1:5] for line in shown]
    assert [length for length in lengths if length[3] == "2"] == [["unitary", "1", "3", "2"]]
    assert len(shown) == 7
    page = benched.written(
        "<!-- measured: costs -->\nold\n<!-- end: costs -->\n", "costs", [("costs", result)]
    )
    assert "old" not in page and shown[0] in page and "[CSV](measurements/bench-costs.csv)" in page


def test_the_values_are_those_of_one_unitary() -> None:
    system = chain_of(2, 3)
    final = kd.evolve(system, controls_of(system, 4, 2), DURATION_NS, kind="unitary")
    flipped = final[:, system.computational[-1], 0].abs().square()
    kets, gradient = call_of(CostsCase("ket", 2, 3, 4, 2))()
    torch.testing.assert_close(kets, 1 - flipped)
    assert gradient.shape == (2, 4, 4) and gradient.abs().min() > 0
    noisy, _ = call_of(CostsCase("density", 2, 3, 4, 2))()
    assert 1e-6 < (noisy - kets).abs().max() < 1e-2
    states = torch.from_numpy(system.computational_states.copy())
    overlap = (states.mH @ final @ states).flip(1).diagonal(dim1=1, dim2=2).sum(-1)
    infidelities, _ = call_of(CostsCase("unitary", 2, 3, 4, 2))()
    torch.testing.assert_close(infidelities, 1 - overlap.abs().square() / 16)


def test_what_would_take_too_long_is_left_out() -> None:
    made = Costs(evolves=("ket",), states=2, segments=(10,), batch=(1, 4096), budget=1e-3)
    made.open()
    first, many = made.cases()
    made.finish(first, {"evolve": {"median_s": 0.5}}, {}, None)
    (row,) = made.measure(many)
    assert (row["status"], row["reason"]) == ("over budget", "expected 256 s")
