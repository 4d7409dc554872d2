"""The benchmark of layouts: its rows, what it refuses, and processes that fail."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ketscale import cli
from ketscale.bench import layouts
from ketscale.bench.steps import ModelCell
from ketscale.errors import UserError

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it compares two cores")


@two_cores
def test_a_whole_benchmark_of_layouts(tmp_path: Path, capsys: Any) -> None:
    files = {kind: tmp_path / f"bench.{kind}" for kind in ("json", "csv", "markdown")}
    options = [text for kind, path in files.items() for text in (f"--{kind}", str(path))]
    # Three samples, so that the processes have different shares.
    asked = "--models hydra --qubits 2 --batch 3 --repeats 5 --threads 2"
    assert cli.main(["bench", "layouts", *asked.split(), *options]) == 0
    rows = json.loads(files["json"].read_text())["rows"]
    assert [(row["ranks"], row["threads"]) for row in rows] == [(1, 1), (1, 2), (2, 1)]
    assert all(row["median_s"] > 0 and row["repeats"] == 5 for row in rows)
    with files["csv"].open() as file:
        assert tuple(next(csv.reader(file))) == tuple(field.name for field in fields(layouts.LayoutRow))
    assert "| hydra | 2 | 3 | fused | 2 | 1 |" in files["markdown"].read_text()
    assert "hydra 2q x 3: threads " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"models": "superposition_transformer"}, "--models"),
        ({"threads": "1"}, "--threads"),
        ({"threads": "4", "batch": "32,3"}, "--batch"),
    ],
)
def test_what_has_no_layouts_to_compare_is_refused(asked: dict[str, str], named: str) -> None:
    with pytest.raises(UserError, match=named):
        layouts.parse(**asked)


@two_cores
def test_a_process_that_fails_ends_the_benchmark(capfd: Any) -> None:
    selection = layouts.LayoutSelection(models=("hydra",), qubits=(1,), batches=(2,), threads=2)
    with pytest.raises(UserError, match="a process ended"):
        layouts.measure(selection)
    assert "qubit" in capfd.readouterr().err


def test_gains_by_hand() -> None:
    cell = ModelCell("hydra", 6, 32)._asdict()
    (line,) = layouts.summary([{**cell, "median_s": seconds} for seconds in (8.0, 5.0, 4.0)])
    assert line == "hydra 6q x 32: threads 1.6x, processes 2x, threads take 1.25x as long as processes"
