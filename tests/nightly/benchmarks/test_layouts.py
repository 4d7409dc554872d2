"""The benchmark of layouts: its rows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ketscale import cli


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it compares two cores")
def test_a_whole_benchmark_of_layouts(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    # Three samples, so that the processes have different shares.
    options = "--models hydra --qubits 2 --batch 3 --repeats 5 --threads 2 --json l.json"
    assert cli.main(["bench", "layouts", *options.split()]) == 0
    rows = json.loads(Path("l.json").read_text())["rows"]
    assert [(row["layout"], row["ranks"], row["threads"]) for row in rows] == [
        ("r1t1", 1, 1), ("r1t2", 1, 2), ("r2t1", 2, 1)
    ]  # fmt: skip
    assert all(row["median_s"] > 0 and row["repeats"] == 5 for row in rows)
