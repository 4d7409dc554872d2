"""The page that is made of a `gpu.json`, here of findings that are made up, and the records that are kept."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.circuits import CircuitCase, Circuits
from ketscale.errors import UserError
from tests.nightly.gpu import publish

RUN = "runs/eeg-synthetic/hydra/q6-l2-b128/fused/{}/timing/seed{}/metrics.json"
MACHINE = {
    "python": "3.12.3", "cpu": "A CPU", "cores": 16, "memory_bytes": 2**37, "driver": "1.2", "cuda": "13.0",
    "packages": {"torch": "2.11.0", "pennylane": None},
    "gpus": [{"name": "Synthetic G1", "capability": "9.0", "memory_bytes": 2**36, "multiprocessors": 132}],
}  # fmt: skip


def of(findings: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A part that has ended well."""
    return {"status": "passed", "reason": None, "seconds": 1.0, "log": "", "results": findings, **more}


def trained(seed: int, step_s: float, **machine: Any) -> dict[str, Any]:
    """A finding of the part ranks."""
    record = {"timing": {"step": {"median_s": step_s}}, "machine": {"host": "a", **machine}}
    return {"run": RUN.format("cpu-n1r1t1", seed), "record": record}


def test_the_page_says_what_was_found_and_what_was_not() -> None:
    cell = CircuitCase("strongly_entangling", 8, 32, 3)
    rows = [
        Circuits().row(cell, name) | {"median_s": seconds, "iqr_s": 1e-5, "repeats": 7}
        for name, seconds in (("fused", 1e-3), ("kronecker", 4e-3))
    ]
    crossing = [
        {"device": where, "threads": threads, "cell": {"qubits": 8, "batch": 32}, "median_s": times}
        for where, threads, times in (
            ("cpu", 16, {"eager": 3e-5}),
            ("cuda", 1, {"eager": 1e-3, "graph": 2e-4}),
        )
    ]
    tests = [{"test": "test_b", "outcome": "failed", "seconds": 1, "why": "E assert\nE 1 == 2"}]
    result = {
        "started": "2026-01-02T03:04:05+00:00", "command": "check", "python": "3.12.3",
        "code": {"commit": "a" * 40, "dirty": False},
        "parts": {
            "machine": of([MACHINE]), "agreement": of(tests, status="failed", reason="exit status 1"),
            "simulators": of([{"cell": "c", "rows": rows}]), "crossing": of(crossing),
            "models": of([], status="timed out", reason="its limit is 60 s"),
        },
    }  # fmt: skip
    page = publish.page(result, ["simulators"])
    assert "# Synthetic G1" in page and "![Simulators](synthetic-g1-2026-01-02-simulators.svg)" in page
    assert "| agreement | failed | 1 s | 0 passed, 1 failed, 0 skipped | exit status 1 |" in page
    assert "Not measured: its limit is 60 s." in page and "Not measured: the part was not asked for." in page
    # A limit ended the part before it could say what the machine is.
    assert "| strongly_entangling | 8 | 32 | 3 | 0 | 0 | 1 ms | 4 ms | 4x (kronecker) |" in page
    assert "| qubits | batch | 16 threads | GPU |" in page and "| 8 | 32 | 30 µs | 200 µs |" in page
    assert [name for name, _ in publish.figures(result)] == ["simulators"]


def test_records_are_kept_below_the_studys_results_and_hosts_apart(tmp_path: Path) -> None:
    result = {"parts": {"ranks": of([trained(seed, 0.4) for seed in (0, 1)])}}
    for _ in range(2):
        assert publish.keep_records(result, tmp_path) == 2
    folder = tmp_path / "results-one-gpu" / RUN.format("cpu-n1r1t1", 0)
    assert json.loads(folder.read_text())["timing"]["step"]["median_s"] == 0.4
    for machine in ({"host": "another"}, {"gpus": [{"name": "another"}]}):
        other = copy.deepcopy(result)
        other["parts"]["ranks"] = of([trained(seed, 0.1, **machine) for seed in (5, 0)])
        with pytest.raises(UserError, match=r"is a record of another host \(a\)"):
            publish.keep_records(other, tmp_path)
        assert not (tmp_path / "results-one-gpu" / RUN.format("cpu-n1r1t1", 5)).exists()
