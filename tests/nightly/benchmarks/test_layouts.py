"""The benchmark of layouts: its rows, gains, and processes that fail."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.layouts import Layouts
from benchmarks.steps import ModelCase
from ketscale import cli

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it compares two cores")


@two_cores
def test_a_whole_benchmark_of_layouts(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    # Three samples, so that the processes have different shares.
    asked = "--models hydra --qubits 2 --batch 3 --repeats 5 --threads 2 --json l.json --markdown l.md"
    assert cli.main(["bench", "layouts", *asked.split()]) == 0
    rows = json.loads(Path("l.json").read_text())["rows"]
    assert [(row["layout"], row["ranks"], row["threads"]) for row in rows] == [
        ("r1t1", 1, 1), ("r1t2", 1, 2), ("r2t1", 2, 1)
    ]  # fmt: skip
    assert all(row["median_s"] > 0 and row["repeats"] == 5 for row in rows)
    assert "| hydra | 2 | 3 | r2t1 | " in Path("l.md").read_text()
    assert "hydra 2q x 3: threads " in capsys.readouterr().out


@two_cores
def test_a_process_that_fails_says_so(capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Layouts, "subjects", lambda self, case: ["r2t1"])
    rows = Layouts(models=("hydra",), qubits=(1,), batch=(2,), threads=2).run()["rows"]
    assert {row["status"] for row in rows} == {"failed"}
    assert "a process ended" in rows[0]["reason"] and "qubit" in capfd.readouterr().err


def test_gains_by_hand() -> None:
    case = ModelCase("hydra", 6, 32)._asdict()
    times = {"r1t1": 8.0, "r1t2": 5.0, "r2t1": 4.0}
    (line,) = Layouts.summary([{**case, "layout": name, "median_s": s} for name, s in times.items()])
    assert line == "hydra 6q x 32: threads 1.6x, processes 2x, threads take 1.25x as long as processes"
