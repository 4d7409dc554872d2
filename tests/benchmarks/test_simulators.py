"""`ketscale bench simulators`: arithmetic, stopwatch, protocol, outputs, and outside simulators that agree."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ketscale import cli
from ketscale.bench import agreement, selection, simulators, stopwatch, subjects, summary
from ketscale.bench.arithmetic import literal_flops
from ketscale.bench.cases import Call, Case
from ketscale.bench.own import Own
from ketscale.bench.rows import CircuitRow
from ketscale.bench.selection import Cell, Selection
from ketscale.engines.circuits.ansaetze import vqc_ansatz
from ketscale.engines.circuits.circuit import GATES, Circuit, Column, Gate, given, pauli_words
from ketscale.errors import UserError
from ketscale.words import duration

COLUMNS = tuple(field.name for field in fields(CircuitRow))
CELL = Cell("vqc", 2, 3, 3)
CPU = torch.device("cpu")
PEERS = (*selection.OUTSIDE, selection.BY_HAND, *selection.QNODES, *selection.GROUPS)


class Fake:
    """default.qubit times `factor`; counts its calls."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor
        self.batches: list[int] = []

    def prepare(self, case: Case) -> Call:
        call = Own("default.qubit", CPU).prepare(case)

        def scaled() -> tuple[Any, ...]:
            self.batches.append(len(case.inputs))
            return tuple(self.factor * part for part in call())

        return scaled


class Clock:
    """A clock that only calls move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def call(self, name: str, seconds: float) -> Any:
        def spend() -> None:
            self.log.append(name)
            self.now += seconds

        return spend


def measure(found: dict[str, Any], *cells: Cell, **settings: Any) -> list[CircuitRow]:
    bench = simulators.Bench(Selection(repeats=5, **settings), found, Own("default.qubit", CPU), CPU)
    return [row for cell in cells for row in bench.measure(cell)]


def test_arithmetic_of_the_vqc_by_hand() -> None:
    # 2 + 2 RY forward, undone on two states; 4 angles; 3 for probabilities and 2 words, twice.
    assert literal_flops(vqc_ansatz(2, 1), pauli_words(2)) == 4 * (3 * 4 * 6 + 4 * 4 + 2 * (3 + 2))


def test_arithmetic_of_other_gates_and_words_by_hand() -> None:
    angles = tuple(Column("weight", i) for i in range(3))
    gates = (Gate("Rot", (0,), angles), Gate("CRX", (0, 1), angles[:1]), given(np.eye(4), 0, 1))
    assert literal_flops(Circuit(2, gates), ("XI", "ZI")) == 4 * (3 * 47 + 4 * 4 + 2 * (3 + 1 + 4))
    assert literal_flops(Circuit(1, (given(np.eye(2), 0),)), ("Y",)) == 2 * (3 * 14 + 2 * 4)


def test_short_calls_are_looped_and_taken_in_turns() -> None:
    clock = Clock()
    calls = {"a": clock.call("a", 0.25), "b": clock.call("b", 0.0015)}
    times = stopwatch.steady(calls, 5, clock)
    assert times["a"].repeats == times["b"].repeats == 5
    assert times["a"].median_s == pytest.approx(0.25)
    assert times["b"].median_s == pytest.approx(0.0015)
    # Two calls each to warm up; then the loop that lasts 5 ms, and a quarter of it, rounded up, before.
    assert clock.log == ["a", "a", "b", "b", *["a", "a", "b", "b", "b", "b", "b"] * 5]


def test_long_calls_get_fewer_repeats() -> None:
    clock = Clock()
    assert stopwatch.steady({"a": clock.call("a", 2.0), "b": clock.call("b", 99.0)}, 8, clock) == {
        "a": stopwatch.Timing(2.0, 0.0, 4),
        "b": stopwatch.Timing(99.0, 0.0, 2),
    }


def test_a_call_is_predicted_in_proportion_to_the_smaller_batch() -> None:
    assert stopwatch.predicted((32, 0.5), 128) == 2.0
    assert stopwatch.predicted((1, 0.5), 128) == 0.0
    assert stopwatch.predicted(None, 128) == 0.0


def test_over_budget_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    second = stopwatch.Timing(1.0, 0.0, 5)
    monkeypatch.setattr(stopwatch, "steady", lambda calls, repeats: dict.fromkeys(calls, second))
    cells = CELL._replace(batch=32), CELL._replace(batch=3200)
    small, large = measure({"default.qubit": fake}, *cells, budget_s=50.0)
    assert (small.status, large.status) == ("timed", "over budget")
    assert "100 s" in str(large.reason)
    assert 3200 not in fake.batches


def test_a_simulator_that_is_wrong_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[str] = []
    second = stopwatch.Timing(1.0, 0.0, 5)
    monkeypatch.setattr(
        stopwatch, "steady", lambda calls, repeats: timed.extend(calls) or dict.fromkeys(calls, second)
    )
    wrong, right = measure({"fused": Fake(1.01), "default.qubit": Fake()}, CELL)
    assert (wrong.status, right.status) == ("parity failed", "timed")
    assert "off by 1.0e-02" in str(wrong.reason)
    assert wrong.first_s is None
    assert timed == ["default.qubit", "matmul_gflops"]


def test_a_simulator_that_raises_does_not_end_the_benchmark() -> None:
    class Broken:
        def prepare(self, case: Case) -> Call:
            raise MemoryError("too big")

    (row,) = measure({"fused": Broken()}, CELL)
    assert (row.status, row.reason) == ("failed", "MemoryError: too big")


@pytest.mark.parametrize("name", PEERS)
def test_an_outside_simulator_agrees_with_default_qubit(name: str) -> None:
    peer = outside(name)
    reference = Own("default.qubit", CPU)
    for ansatz in selection.LAYERS:
        assert agreement.failure(peer, reference, Cell(ansatz, 3, 3, 2)) is None


@pytest.mark.parametrize("name", PEERS)
def test_an_outside_simulator_has_every_gate(name: str) -> None:
    columns = (Column("weight", 0), Column("input", 0), Column("weight", 1))
    gates = [Gate("RX", (w,), (Column("input", w),)) for w in range(3)]
    for gate, (wires, angles) in GATES.items():
        gates += [Gate(gate, (2, 0)[:wires], columns[:angles]), Gate("RY", (2,), (Column("input", 2),))]
    rng = np.random.default_rng(1)
    words = ("ZIZ", "XYI", "IIZ", "IYX")
    case = Case(
        Circuit(3, tuple(gates)), words, rng.normal(size=(2, 3)), rng.normal(size=2), rng.normal(size=(2, 4))
    )
    # DeepQuantum's Hadamard is in single precision whatever its circuit is in; its other gates agree to 1e-15.
    allowed = 1e-6 if name == "deepquantum" else 1e-9
    for got, expected in zip(
        outside(name).prepare(case)(), Own("default.qubit", CPU).prepare(case)(), strict=True
    ):
        np.testing.assert_allclose(np.asarray(got), np.asarray(expected), atol=allowed)


def outside(name: str) -> Any:
    try:
        return subjects.create(name, CPU)
    except UserError as error:
        pytest.skip(str(error))


def test_a_missing_outside_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deepquantum", None)
    with pytest.raises(UserError, match=r"deepquantum needs deepquantum: .*make bench-extra") as caught:
        subjects.installed(Selection(simulators=("deepquantum",), asked=True), CPU)
    assert "\n" not in str(caught.value)
    found = subjects.installed(Selection(simulators=("deepquantum",)), CPU)
    assert [row.status for row in measure(found, CELL)] == ["not installed"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--ansatz", "nope"], "--ansatz: no 'nope'"),
        (["--qubits", "4,x"], "--qubits: 'x' is not a number"),
        (["--qubits", "1"], "--qubits: must be at least 2"),
        (["--batch", "1,,2"], "--batch: an empty value"),
        (["--simulators", "qiskit"], "--simulators: no 'qiskit'"),
        (["--budget", "nan"], "--budget: must be at least 0"),
        (["--repeats", "4"], "--repeats: must be at least 5"),
        (["--threads", "0"], "--threads: must be at least 1"),
        (["--figure", "a.txt"], "--figure: a.txt must end in"),
    ],
)
def test_bad_arguments(arguments: list[str], message: str, capsys: Any) -> None:
    assert cli.main(["bench", "simulators", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_largest_batch_only_for_few_qubits() -> None:
    cells = list(Selection().cells())
    assert Cell("vqc", 8, 8192, 3) in cells
    assert Cell("vqc", 10, 8192, 3) not in cells


def test_the_summary_by_hand() -> None:
    def row(simulator: str, seconds: float, qubits: int = 8, batch: int = 128) -> dict[str, Any]:
        return vars(CircuitRow(simulator, "vqc", 3, qubits, batch, "timed", median_s=seconds, fraction=0.5))

    rows = [
        row("fused", 1.0),
        row("fused-literal", 2.0),
        row("lightning.qubit", 8.0),
        row("deepquantum", 6.0),
    ]
    (found,) = summary.factors(rows)
    assert (found.peer, found.speedup, found.algebra, found.kernel) == ("deepquantum", 6.0, 2.0, 3.0)
    text = "\n".join(summary.lines([*rows, row("fused", 3.0, 4, 1), row("floor", 2.0, 4, 1)]))
    for part in ("median 6x, worst 6x", "at least 8x", "min 0.50, median 0.50", "vqc 4q x 1: 1.5x"):
        assert part in text


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ceiling that takes no time."""
    monkeypatch.setattr(simulators.ceiling, "copy_gbs", lambda device: 10.0)
    rate = simulators.ceiling.Ceiling("matmul_gflops", lambda: None, 100)
    monkeypatch.setattr(simulators.ceiling, "of", lambda device: rate)
    monkeypatch.setattr(simulators.ceiling, "gflops", lambda flops, seconds: 100.0)


def table_of(file: Path) -> list[dict[str, str]]:
    """The rows of the Markdown table in a file, by the names in its head."""
    lines = [line for line in file.read_text().splitlines() if line.startswith("|")]
    head, rule, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    assert rule == ["---"] * len(head)
    return [dict(zip(head, row, strict=True)) for row in rows]


@pytest.mark.usefixtures("quick")
def test_a_whole_benchmark(tmp_path: Path, capsys: Any) -> None:
    files = {kind: tmp_path / f"bench.{kind}" for kind in ("json", "csv", "png", "md")}
    arguments = "--ansatz vqc --qubits 2 --batch 1,2 --simulators fused,default.qubit,floor --repeats 5"
    named = zip(("--json", "--csv", "--figure", "--markdown"), files.values(), strict=True)
    options = [str(part) for pair in named for part in pair]
    assert cli.main(["bench", "simulators", *arguments.split(), *options]) == 0
    result = json.loads(files["json"].read_text())
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
    assert set(result["rows"][0]) == set(COLUMNS)
    with files["csv"].open() as file:
        assert tuple(next(csv.reader(file))) == COLUMNS
    first, second = table_of(files["md"])
    assert [first[name] for name in ("ansatz", "qubits", "batch", "layers")] == ["vqc", "2", "1", "3"]
    medians = {(row["batch"], row["simulator"]): duration(row["median_s"]) for row in result["rows"]}
    for row in (first, second):
        for name in ("fused", "default.qubit", "floor"):
            assert row[name] == medians.get((int(row["batch"]), name), "")
        assert row["fused over fastest peer"].endswith("x (default.qubit)")
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert "vqc 2q x 1: fused " in out


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("finished", "message"), [(0, "nothing is written"), (1, "after 1 of 2 cells, which are written")]
)
def test_an_interrupted_benchmark_keeps_the_cells_that_are_finished(
    finished: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    measure, done = simulators.Bench.measure, []

    def interrupted(bench: simulators.Bench, cell: Cell) -> list[CircuitRow]:
        if len(done) == finished:
            raise KeyboardInterrupt
        done.append(cell)
        return measure(bench, cell)

    monkeypatch.setattr(simulators.Bench, "measure", interrupted)
    file, figure = tmp_path / "bench.json", tmp_path / "bench.png"
    arguments = "--ansatz vqc --qubits 2 --batch 1,2 --simulators default.qubit --repeats 5"
    written = ["--json", str(file), "--figure", str(figure)]
    assert cli.main(["bench", "simulators", *arguments.split(), *written]) == 2
    assert message in capsys.readouterr().err
    assert file.exists() == figure.exists() == bool(finished)
