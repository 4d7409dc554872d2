"""`ketscale bench simulators`: arithmetic, outside simulators that agree, what is wrong, the summary, and files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import circuits, stopwatch
from benchmarks.arithmetic import least_bytes, literal_flops
from benchmarks.circuits import CircuitCase, Circuits, Loss, create, disagreement
from benchmarks.runner import Call, Row
from ketscale import cli
from ketscale.engines.circuits.ansaetze import vqc_ansatz
from ketscale.engines.circuits.circuit import GATES, Circuit, Column, Gate, given, pauli_words
from ketscale.errors import UserError
from ketscale.words import duration

CASE = CircuitCase("vqc", 2, 3, 3)
CPU = torch.device("cpu")
OUTSIDE = (
    "default.qubit-jit", "fused-jax", "tensorcircuit", "deepquantum", "jax", "kronecker", "qulacs", "pyqtorch", "lightning.qubit-vjp", *circuits.GROUPS,
    *(name for name in circuits.QNODES if name != circuits.QNODE_FLOOR),
)  # fmt: skip


class Scaled:
    """default.qubit times a factor."""

    uncapturable = None

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def prepare(self, loss: Loss) -> Call:
        call = create("default.qubit", CPU).prepare(loss)
        return lambda: tuple(self.factor * part for part in call())


def measured(found: dict[str, Any], case: CircuitCase = CASE, reference: str = "default.qubit") -> list[Row]:
    bench = Circuits(repeats=5)
    bench.found = found
    bench.refer_to(reference)
    return bench.measure(case)


def test_arithmetic_of_the_vqc_by_hand() -> None:
    # 2 + 2 RY forward, undone on two states; 4 angles; 3 for probabilities and 2 words, twice.
    assert literal_flops(vqc_ansatz(2, 1), pauli_words(2)) == 4 * (3 * 4 * 6 + 4 * 4 + 2 * (3 + 2))


def test_arithmetic_of_other_gates_and_words_by_hand() -> None:
    angles = tuple(Column("weight", i) for i in range(3))
    gates = (Gate("Rot", (0,), angles), Gate("CRX", (0, 1), angles[:1]), given(np.eye(4), 0, 1))
    assert literal_flops(Circuit(2, gates), ("XI", "ZI")) == 4 * (3 * 47 + 4 * 4 + 2 * (3 + 1 + 4))
    assert literal_flops(Circuit(1, (given(np.eye(2), 0),)), ("Y",)) == 2 * (3 * 14 + 2 * 4)


def test_traffic_by_hand() -> None:
    gates = (Gate("RX", (0,), (Column("input", 0),)), Gate("RX", (0,), (Column("weight", 0),)))
    # Two rotations about X: complex amplitudes, so 4 numbers; 1 input, 2 cosines, 2 sines, 2 derivatives, 1 word.
    assert least_bytes(Circuit(1, gates), ("Z",), batch=10) == 2 * (1 + 4 + 4 + 2 + 1) * 10 * 4


def test_a_simulator_that_is_wrong_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    second = stopwatch.Timing(1.0, 0.0, 5)
    monkeypatch.setattr(stopwatch, "steady", lambda calls, repeats: dict.fromkeys(calls, second))
    wrong, right = measured({"fused": Scaled(1.01), "default.qubit": Scaled()})
    assert (wrong["status"], right["status"]) == ("parity failed", "timed")
    assert "off by 1.0e-02" in wrong["reason"]
    assert (wrong["median_s"], right["median_s"]) == (None, 1.0)


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_outside_simulator_agrees_with_default_qubit(name: str) -> None:
    peer, reference = outside(name), create("default.qubit", CPU)
    # The gates of vqc are among those of the next test.
    for ansatz in ("strongly_entangling", "qlcu"):
        assert disagreement(peer, reference, CircuitCase(ansatz, 3, 3, 1)) is None


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
    for got, expected in zip(
        outside(name).prepare(loss)(), create("default.qubit", CPU).prepare(loss)(), strict=True
    ):
        np.testing.assert_allclose(np.asarray(got), np.asarray(expected), atol=allowed)


def outside(name: str) -> Any:
    try:
        return create(name, CPU)
    except UserError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("name", "target"), [("deepquantum", "bench-extra"), ("qulacs", "bench-extra"), ("jax", "setup")]
)
def test_a_missing_outside_simulator_is_said(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=rf"simulator {name} needs {name}: .*make {target}") as caught:
        create(name, CPU)
    assert "\n" not in str(caught.value)


def test_the_largest_batch_only_for_few_qubits() -> None:
    cases = list(Circuits().cases())
    assert CircuitCase("vqc", 8, 8192, 3) in cases
    assert CircuitCase("vqc", 10, 8192, 3) not in cases


def test_each_device_has_its_own_simulators() -> None:
    cpu, cuda = (set(Circuits(device=device).names) for device in circuits.DEVICES)
    assert cpu - cuda == {
        "fused-literal", "fused-jax", "lightning.qubit", "lightning.qubit-vjp", "qulacs", "floor",
    }  # fmt: skip
    assert cuda - cpu == {"lightning.gpu"}


def test_the_summary_by_hand() -> None:
    def row(simulator: str, seconds: float, qubits: int = 8, batch: int = 128) -> Row:
        case = CircuitCase("vqc", qubits, batch, 3)
        return Circuits().row(case, simulator) | {"median_s": seconds, "fraction": 0.5}

    rows = [
        row("fused", 1.0),
        row("fused-literal", 2.0),
        row("lightning.qubit", 8.0),
        row("deepquantum", 6.0),
    ]
    (found,) = circuits.factors(rows)
    assert (found.peer, found.speedup, found.algebra, found.kernel) == ("deepquantum", 6.0, 2.0, 3.0)
    text = "\n".join(circuits.summary([*rows, row("fused", 3.0, 4, 1), row("floor", 2.0, 4, 1)]))
    for part in ("median 6x, worst 6x", "at least 8x", "min 0.50, median 0.50", "vqc 4q x 1: 1.5x"):
        assert part in text


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ceiling that takes no time."""
    monkeypatch.setattr(circuits.ceiling, "copy_gbs", lambda device: 10.0)
    rate = circuits.ceiling.Ceiling("matmul_gflops", lambda: None, 100)
    monkeypatch.setattr(circuits.ceiling, "of", lambda device: rate)
    monkeypatch.setattr(circuits.ceiling, "gflops", lambda flops, seconds: 100.0)


def table_of(file: Path) -> list[dict[str, str]]:
    """The rows of the Markdown table in a file, by the names in its head."""
    lines = [line for line in file.read_text().splitlines() if line.startswith("|")]
    head, rule, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    assert rule == ["---"] * len(head)
    return [dict(zip(head, row, strict=True)) for row in rows]


@pytest.mark.usefixtures("quick")
def test_a_whole_benchmark(tmp_path: Path, capsys: Any) -> None:
    files = {kind: tmp_path / f"bench.{kind}" for kind in ("json", "png", "md")}
    arguments = "--ansatz vqc --qubits 2 --batch 1,2 --simulators fused,default.qubit,floor --repeats 5"
    named = zip(("--json", "--figure", "--markdown"), files.values(), strict=True)
    options = [str(part) for pair in named for part in pair]
    assert cli.main(["bench", "simulators", *arguments.split(), *options]) == 0
    result = json.loads(files["json"].read_text())
    assert result["reference"] == "default.qubit"
    assert [(r["simulator"], r["batch"], r["status"]) for r in result["rows"]] == [
        ("fused", 1, "timed"),
        ("default.qubit", 1, "timed"),
        ("floor", 1, "timed"),
        ("fused", 2, "timed"),
        ("default.qubit", 2, "timed"),
    ]
    assert all(
        row["fraction"] == pytest.approx(row["gflops"] / 100) for row in result["rows"] if row["gflops"]
    )
    first, second = table_of(files["md"])
    assert [first[name] for name in ("ansatz", "qubits", "batch", "layers")] == ["vqc", "2", "1", "3"]
    medians = {(row["batch"], row["simulator"]): duration(row["median_s"]) for row in result["rows"]}
    for row in (first, second):
        for name in ("fused", "default.qubit", "floor"):
            assert row[f"{name} ({circuits.KNOWN[name].mode})"] == medians.get((int(row["batch"]), name), "")
        assert row["fused over fastest peer"].endswith("x (default.qubit)")
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    assert "vqc 2q x 1: fused " in capsys.readouterr().out
