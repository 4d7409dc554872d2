"""The benchmark of models: rows, files, factors and what cannot be timed."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from ketscale import cli
from ketscale.bench import memory, models, training
from ketscale.bench.output import MODEL_COLUMNS
from ketscale.bench.training import Cell


def test_a_whole_benchmark_of_models(tmp_path: Path, capsys: Any) -> None:
    files = {kind: tmp_path / f"bench.{kind}" for kind in ("json", "csv", "png", "md")}
    named = zip(("--json", "--csv", "--figure", "--markdown"), files.values(), strict=True)
    options = [str(part) for pair in named for part in pair]
    arguments = "--models mamba_hybrid --qubits 2 --batch 2 --simulators fused,literal --repeats 5"
    assert cli.main(["bench", "models", *arguments.split(), *options]) == 0
    result = json.loads(files["json"].read_text())
    assert [(r["simulator"], r["status"]) for r in result["rows"]] == [
        ("fused", "timed"),
        ("literal", "timed"),
    ]
    for row in result["rows"]:
        assert row["median_s"] > 0 and row["peak_bytes"] > 0
        assert {"circuit.forward", "circuit.backward", "classical.forward", "optimiser"} <= set(row["spans"])
    with files["csv"].open() as file:
        assert tuple(next(csv.reader(file))) == MODEL_COLUMNS
    assert "| mamba_hybrid | 2 | 2 | literal |" in files["md"].read_text()
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    assert "mamba_hybrid 2q x 2: together " in capsys.readouterr().out


def test_factors_by_hand() -> None:
    seconds = {"fused": 1.0, "literal-fused": 3.0, "default.qubit": 20.0, "literal": 90.0}
    shared = {"model": "hydra", "qubits": 6, "batch": 32}
    rows = [
        {**shared, "simulator": name, "median_s": s, "spans": {"circuit.forward": s / 2, "optimiser": 0.1}}
        for name, s in seconds.items()
    ]
    (line,) = models.factors(rows)
    for part in ("together 90x", "reductions under fused 3x", "on the literal circuits 30x", "alone 90x"):
        assert part in line


def test_a_simulator_that_computes_something_else_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    step = training.step

    def wrong(cell: Cell, arm: str) -> Any:
        call = step(cell, arm)
        return call if arm == "fused" else lambda: call() * 1.01

    monkeypatch.setattr(memory, "peak_bytes", lambda *_: 1)
    monkeypatch.setattr(training, "step", wrong)
    selection = models.parse(models="mamba_hybrid", qubits="2", batch="2", simulators="fused,literal-fused")
    rows = models.run(selection, lambda cell, rows: None)["rows"]
    assert [row["status"] for row in rows] == ["timed", "parity failed"]


def test_memory_that_runs_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "peak_bytes", lambda *_: memory.OUT_OF_MEMORY)
    (row,) = models.run(
        models.parse(models="mamba", qubits="2", simulators="fused"), lambda cell, rows: None
    )["rows"]
    assert (row["status"], row["median_s"]) == ("out of memory", None)
