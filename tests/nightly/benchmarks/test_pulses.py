"""The benchmark of pulses: rows, files, and packages that agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.dynamics import error_of
from benchmarks.pulses import (
    REFERENCE,
    Own,
    OwnIntegrator,
    PulsesCase,
    chain_of,
    create,
)  # fmt: skip
from ketscale import cli

SMALL = PulsesCase("pulses", 2, 2)
MODULES = {
    "supergrad": "supergrad",
    "qutip": "qutip",
    "dynamiqs": "dynamiqs",
    "qiskit-dynamics": "qiskit_dynamics",
}


def relative(found: tuple[Any, Any], expected: tuple[Any, Any]) -> float:
    """The error of the gradient."""
    return error_of(found[1:], expected[1:])


def test_a_whole_benchmark(tmp_path: Path) -> None:
    files = [tmp_path / f"bench.{kind}" for kind in ("json", "md")]
    options = [str(part) for pair in zip(("--json", "--markdown"), files, strict=True) for part in pair]
    names = "interaction4-150,interaction4-400,trotter2-5000,qutip"
    arguments = f"--qubits 2 --simulators {names} --repeats 5"
    assert cli.main(["bench", "pulses", *arguments.split(), *options]) == 0
    rows = {row["simulator"]: row for row in json.loads(files[0].read_text())["rows"]}
    assert list(rows) == names.split(",")
    assert all(row["status"] == "timed" and row["median_s"] > 0 for row in rows.values())
    errors = [rows[name]["error"] for name in ("interaction4-400", "interaction4-150", "trotter2-5000")]
    assert 0 < errors[0] < 0.1 * errors[1] < errors[2] < 1e-4
    assert (
        rows["qutip"]["beside"] in (None, "interaction4-400") and rows["interaction4-400"]["beside"] is None
    )
    assert [row["computes"] for row in rows.values()] == ["value and gradient"] * 3 + ["value"]
    assert rows["trotter2-5000"]["peak_rss_bytes"] > 2**20
    table = files[1].read_text()
    assert "| pulses | 2 | 2 | interaction4-150 | " in table and "| value and gradient | 150 |" in table


@pytest.mark.parametrize("levels", [2, 3])
def test_the_reference_is_converged(levels: int) -> None:
    chain = chain_of(SMALL._replace(levels=levels))
    result, expected = (Own(own).prepare(chain)() for own in (REFERENCE, OwnIntegrator("whole-space", 900)))
    assert result[0] == pytest.approx(expected[0], abs=1e-9)
    assert relative(result, expected) < 2e-7


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("name", MODULES)
def test_other_packages_find_the_same(name: str, levels: int) -> None:
    pytest.importorskip(MODULES[name])
    chain = chain_of(SMALL._replace(levels=levels))
    result, expected = create(name).prepare(chain)(), Own(REFERENCE).prepare(chain)()
    assert result[0] == pytest.approx(expected[0], abs=1e-6)
    if result[1] is not None:
        assert relative(result, expected) < 1e-4
