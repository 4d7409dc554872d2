"""The benchmark of cohorts: its rows, and what is not timed."""

from __future__ import annotations

import csv
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from ketscale import cli
from ketscale.bench import cohorts, steps
from ketscale.errors import UserError


def test_a_whole_benchmark_of_cohorts(tmp_path: Path, capsys: Any) -> None:
    files = {kind: tmp_path / f"bench.{kind}" for kind in ("json", "csv", "markdown")}
    options = [text for kind, path in files.items() for text in (f"--{kind}", str(path))]
    asked = (
        "--models vqc,mlp,superposition_transformer,robust_grape --qubits 2 --batch 3 --runs 2,3 --repeats 5"
    )
    assert cli.main(["bench", "cohorts", *asked.split(), *options]) == 0
    rows = json.loads(files["json"].read_text())["rows"]
    assert [(row["model"], row["qubits"], row["runs"]) for row in rows] == [
        ("vqc", 2, 2), ("vqc", 2, 3), ("mlp", 0, 2), ("mlp", 0, 3),
        ("superposition_transformer", 4, 2), ("superposition_transformer", 4, 3),
        ("robust_grape", 1, 2), ("robust_grape", 1, 3),
    ]  # fmt: skip
    for row in rows:
        assert row["status"] == "timed" and row["repeats"] == 5
        assert row["gain"] == pytest.approx(row["runs"] * row["alone_s"] / row["median_s"])
    with files["csv"].open() as file:
        assert tuple(next(csv.reader(file))) == tuple(field.name for field in fields(cohorts.CohortRow))
    assert {row["batch"] for row in rows} == {3, steps.SENTENCES}
    assert "| vqc | 2 | 3 | 2 | " in files["markdown"].read_text()
    assert "vqc 2q x 3: 2 together " in capsys.readouterr().out


def test_runs_with_other_losses_are_not_timed(monkeypatch: Any) -> None:
    plain = steps.built

    def other(*cell: Any) -> Any:
        problem = plain(*cell)
        with torch.no_grad():
            next(problem.parameters()).mul_(1.5)
        return problem

    monkeypatch.setattr(steps, "built", other)
    selection = cohorts.CohortSelection(models=("mlp",), batches=(4,), runs=(2,), repeats=5)
    (row,) = cohorts.measure(selection)["rows"]
    assert row["status"] == "parity failed" and row["median_s"] is None


@pytest.mark.parametrize("asked", [{"models": "grape"}, {"runs": "1"}], ids=str)
def test_what_is_no_cohort_is_refused(asked: dict[str, str]) -> None:
    with pytest.raises(UserError, match=f"--{next(iter(asked))}"):
        cohorts.parse(**asked)
