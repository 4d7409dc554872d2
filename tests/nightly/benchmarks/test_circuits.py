"""`ketscale bench simulators`: arithmetic, outside simulators that agree, what is wrong, and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import circuits
from benchmarks.arithmetic import literal_flops
from benchmarks.circuits import CircuitCase, Circuits, Loss, create
from benchmarks.runner import Call
from ketscale import cli
from ketscale.engines.circuits.ansaetze import vqc_ansatz
from ketscale.engines.circuits.circuit import GATES, Circuit, Column, Gate, given, pauli_words
from ketscale.errors import UserError

CPU = torch.device("cpu")
OUTSIDE = (
    "default.qubit-jit", "fused-jax", "tensorcircuit", "deepquantum", "jax", "kronecker", "qulacs", "pyqtorch", "lightning.qubit-vjp",
    *(name for name in circuits.QNODES if name != circuits.QNODE_FLOOR),
)  # fmt: skip


def test_arithmetic_of_the_vqc_by_hand() -> None:
    # 2 + 2 RY forward, undone on two states; 4 angles; 3 for probabilities and 2 words, twice.
    assert literal_flops(vqc_ansatz(2, 1), pauli_words(2)) == 4 * (3 * 4 * 6 + 4 * 4 + 2 * (3 + 2))


def test_arithmetic_of_other_gates_and_words_by_hand() -> None:
    angles = tuple(Column("weight", i) for i in range(3))
    gates = (Gate("Rot", (0,), angles), Gate("CRX", (0, 1), angles[:1]), given(np.eye(4), 0, 1))
    assert literal_flops(Circuit(2, gates), ("XI", "ZI")) == 4 * (3 * 47 + 4 * 4 + 2 * (3 + 1 + 4))
    assert literal_flops(Circuit(1, (given(np.eye(2), 0),)), ("Y",)) == 2 * (3 * 14 + 2 * 4)


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_outside_simulator_has_every_gate(name: str) -> None:
    columns = (Column("weight", 0), Column("input", 0), Column("weight", 1))
    gates = [Gate("RX", (w,), (Column("input", w),)) for w in range(3)]
    for gate, (wires, angles) in GATES.items():
        gates += [Gate(gate, (2, 0)[:wires], columns[:angles]), Gate("RY", (2,), (Column("input", 2),))]
    rng = np.random.default_rng(1)
    words = ("ZIZ", "XYI", "IIZ", "IYX")
    loss = Loss(
        Circuit(3, tuple(gates)), words, rng.normal(size=(2, 3)), rng.normal(size=2), rng.normal(size=(2, 4))
    )
    # DeepQuantum's Hadamard is in single precision whatever its circuit is in; its other gates agree to 1e-15.
    allowed = 1e-6 if name == "deepquantum" else 1e-9
    for actual, expected in zip(
        outside(name).prepare(loss)(), create("default.qubit", CPU).prepare(loss)(), strict=True
    ):
        np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), atol=allowed)


def outside(name: str) -> Any:
    try:
        return create(name, CPU)
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ceiling that takes no time."""
    rate = circuits.ceiling.Ceiling("matmul_gflops", lambda: None, 100)
    monkeypatch.setattr(circuits.ceiling, "of", lambda device: rate)
    monkeypatch.setattr(circuits.ceiling, "gflops", lambda flops, seconds: 100.0)


@pytest.mark.usefixtures("quick")
def test_a_whole_benchmark(tmp_path: Path) -> None:
    files = {kind: tmp_path / f"bench.{kind}" for kind in ("json", "png", "md")}
    arguments = "--ansatz vqc --qubits 2 --batch 1,2 --simulators fused,default.qubit,floor --repeats 5"
    named = zip(("--json", "--figure", "--markdown"), files.values(), strict=True)
    options = [str(part) for pair in named for part in pair]
    assert cli.main(["bench", "simulators", *arguments.split(), *options]) == 0
    result = json.loads(files["json"].read_text())
    assert result["reference"] == "default.qubit"
    assert [(r["simulator"], r["batch"]) for r in result["rows"] if r["status"] == "timed"] == [
        ("fused", 1), ("default.qubit", 1), ("floor", 1), ("fused", 2), ("default.qubit", 2)
    ]  # fmt: skip
    assert all(
        row["fraction"] == pytest.approx(row["gflops"] / 100) for row in result["rows"] if row["gflops"]
    )
    assert files["md"].read_text().count("x (default.qubit)") == 2
    assert files["png"].read_bytes().startswith(b"\x89PNG")


def test_a_simulator_that_is_wrong_is_not_timed() -> None:
    class Wrong:
        uncapturable = None

        def prepare(self, loss: Loss) -> Call:
            call = create("default.qubit", CPU).prepare(loss)
            return lambda: tuple(1.01 * part for part in call())

    bench = Circuits(repeats=5)
    bench.found = {"fused": Wrong(), "default.qubit": create("default.qubit", CPU)}
    bench.refer_to("default.qubit")
    wrong, right = bench.measure(CircuitCase("vqc", 2, 3, 3))
    assert (wrong["status"], wrong["median_s"], right["status"]) == ("parity failed", None, "timed")
