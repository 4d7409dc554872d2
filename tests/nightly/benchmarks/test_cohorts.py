"""The benchmark of cohorts: its rows, and what is not timed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import steps
from benchmarks.cohorts import Cohorts
from ketscale import cli


def test_a_whole_benchmark_of_cohorts(tmp_path: Path) -> None:
    models = "vqc,mlp,superposition_transformer,robust_grape"
    options = f"--models {models} --qubits 2 --batch 3 --runs 2,3 --repeats 5 --json {tmp_path / 'rows.json'}"
    assert cli.main(["bench", "cohorts", *options.split()]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [(row["model"], row["qubits"], row["trained"]) for row in rows] == [
        (model, qubits, trained)
        for model, qubits in (("vqc", 2), ("mlp", 0), ("superposition_transformer", 4), ("robust_grape", 1))
        for trained in ("alone", "2 together", "3 together")
    ]
    for first in range(0, len(rows), 3):
        single, *joint = rows[first : first + 3]
        assert single["gain"] is None and {row["status"] for row in (single, *joint)} == {"timed"}
        for row in joint:
            assert row["gain"] == pytest.approx(row["runs"] * single["median_s"] / row["median_s"])
    assert {row["batch"] for row in rows} == {3, steps.SENTENCES}


def test_runs_with_other_losses_are_not_timed(monkeypatch: Any) -> None:
    plain, result = steps.built, []

    def other(*case: Any) -> Any:
        problem = plain(*case)
        result.append(problem)
        # The first one is alone.
        if len(result) > 1:
            with torch.no_grad():
                next(problem.parameters()).mul_(1.5)
        return problem

    monkeypatch.setattr(steps, "built", other)
    single, joint = Cohorts(models=("mlp",), batch=(4,), runs=(2,), repeats=5).run()["rows"]
    assert (single["status"], joint["status"]) == ("timed", "parity failed")
    assert joint["median_s"] is None and joint["gain"] is None
