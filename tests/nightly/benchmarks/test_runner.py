"""What all benchmarks share: the stopwatch, options, turns, what is not timed and why, and the files."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from benchmarks import ceiling, command, machine, output, stopwatch
from benchmarks.options import numbers, option
from benchmarks.runner import GRAPH, ON_A_GPU, WRONG, Benchmark, Column, Untimed, best_s, declared
from ketscale import cli
from ketscale.analysis import columns
from ketscale.analysis.columns import TABLES
from ketscale.engines.graphs import WARM_CALLS, Refused
from ketscale.errors import UserError

ROOT = Path(command.__file__).parents[1]


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


# --- one benchmark of numbers ---


class Doubled(NamedTuple):
    """A case: twice a number."""

    batch: int

    def __str__(self) -> str:
        return f"twice {self.batch}"


@dataclass(kw_only=True)
class Doubling(Benchmark):
    """Subjects are functions of the case's number."""

    text = "doubling"
    case = Doubled
    predicts = True
    columns = (*ON_A_GPU, Column("peak_bytes"), Column("times", "times", "{:.1f}".format))

    batch: tuple[int, ...] = option((32, 64), numbers(1), "numbers")

    def cases(self) -> list[Doubled]:
        return [Doubled(batch) for batch in self.batch]

    def prepare(self, case: Doubled, name: str, row: Any) -> Any:
        double = self.installed(name)
        return lambda: double(case.batch)

    def agree(self, case: Doubled, name: str, row: Any, result: Any) -> None:
        if result != 2 * case.batch:
            raise Untimed(WRONG, f"{result} instead of {2 * case.batch}")

    def calls(self, case: Doubled, name: str, row: Any, call: Any) -> Any:
        if self.capture is None:
            return {"": call}
        return self.with_graph(
            row, call, lambda replay: None if replay() == call() else "another result", call
        )

    def finish(self, case: Doubled, rows: Any, calls: Any, rate: float | None) -> None:
        for name in calls:
            rows[name]["times"] = 2.0

    @classmethod
    def summary(cls, rows: Any) -> list[str]:
        return [f"{len(rows)} rows"]


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The names of what is timed; graphs take one second, everything else three."""
    names: list[Any] = []

    def steady(calls: dict[Any, Any], repeats: int) -> dict[Any, stopwatch.Timing]:
        names.extend(calls)
        return {name: stopwatch.Timing(1.0 if GRAPH in name else 3.0, 0.5, repeats) for name in calls}

    monkeypatch.setattr(stopwatch, "steady", steady)
    return names


def doubling(subjects: dict[str, Any], **options: Any) -> Doubling:
    made = Doubling(**options)
    made.found = subjects
    return made


def right(number: int) -> int:
    return 2 * number


def fails(error: Exception) -> Callable[[int], int]:
    def call(number: int) -> int:
        raise error

    return call


def test_each_row_says_what_was_measured_or_why_not(timed: list[Any]) -> None:
    subjects = {
        "right": right,
        "wrong": lambda number: number,
        "absent": "jax is not here",
        "large": fails(MemoryError("too big")),
        "short": fails(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")),
        "too": fails(RuntimeError("RESOURCE_EXHAUSTED: Out of memory")),
    }
    rows = doubling(subjects).measure(Doubled(3))
    assert [(row["simulator"], row["status"], row["reason"]) for row in rows] == [
        ("right", "timed", None),
        ("wrong", "parity failed", "3 instead of 6"),
        ("absent", "not installed", "jax is not here"),
        ("large", "failed", "MemoryError: too big"),
        ("short", "out of memory", "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
        ("too", "out of memory", "RuntimeError: RESOURCE_EXHAUSTED: Out of memory"),
    ]
    assert [name for name, _ in timed] == ["right"]
    assert (rows[0]["median_s"], rows[0]["iqr_s"], rows[0]["repeats"], rows[0]["times"]) == (3.0, 0.5, 7, 2.0)
    assert rows[0]["first_s"] > 0 and all(row["median_s"] is None for row in rows[1:])
    assert {frozenset(row) for row in rows} == {frozenset(rows[0])}


def test_a_larger_batch_that_would_be_over_budget_is_not_called(timed: list[Any]) -> None:
    called: list[int] = []
    bench = doubling({"a": lambda number: called.append(number) or 2 * number}, budget=100.0)
    small, large = bench.measure(Doubled(32))[0], bench.measure(Doubled(3200))[0]
    assert (small["status"], large["status"], large["reason"]) == ("timed", "over budget", "predicted 300 s")
    assert 3200 not in called


@pytest.mark.parametrize("counts", [True, False])
def test_a_slow_first_call_is_over_budget_unless_it_compiles(
    counts: bool, timed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Doubling, "first_counts", counts)
    (row,) = doubling({"a": right}, budget=0.0).measure(Doubled(3))
    assert row["status"] == ("over budget" if counts else "timed")


def test_a_subject_that_was_asked_for_has_to_be_there() -> None:
    def create(name: str) -> Any:
        raise UserError(f"{name} needs jax") if name == "known" else ImportError("broken")

    bench = Doubling()
    bench.install(create, ["known", "other"])
    assert bench.found == {"known": "known needs jax", "other": "ImportError: broken"}
    with pytest.raises(UserError, match="known needs jax"):
        Doubling(asked=True).install(create, ["known"])


def test_no_case_is_begun_after_the_time_limit() -> None:
    assert doubling({"a": right}, threads=1).run(limit_s=-1.0)["cells"] == {"asked": 2, "measured": 0}


def test_the_ceiling_takes_turns_with_the_subjects(timed: list[Any]) -> None:
    bench = doubling({"a": right}, threads=1, batch=(1,))
    bench.ceiling = ceiling.Ceiling("matmul_gflops", lambda: None, 6 * 10**9)
    assert bench.run()["machine"]["ceiling"] == {"matmul_gflops": 2.0}
    assert timed == [("a", ""), ("", "ceiling")]


# --- graphs, with a stand-in for their capture ---


def pretended(call: Any, device: Any, needed: Any, before: Callable[[], None]) -> Any:
    """What `captured` does, without a GPU: the replay is the call."""
    for _ in range(WARM_CALLS):
        before()
        call()
    return call


@pytest.mark.parametrize(
    ("capture", "reason"),
    [
        (pretended, None),
        (lambda call, *_: lambda: call() + 1, "another result"),
        (lambda *_: Refused("RuntimeError: no"), "RuntimeError: no"),
    ],
)
def test_a_graph_is_timed_beside_the_call_if_it_gives_the_same(
    capture: Any, reason: str | None, timed: list[Any]
) -> None:
    bench = doubling({"a": right})
    bench.capture = capture
    (row,) = bench.measure(Doubled(3))
    assert (row["status"], row["median_s"], row["graph_reason"]) == ("timed", 3.0, reason)
    found = (None, None, 3.0) if reason else (1.0, 0.5, 1.0)
    assert (row["graph_median_s"], row["graph_iqr_s"], best_s(row)) == found


# --- the command line ---


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, timed: list[Any]) -> type[Doubling]:
    """`ketscale bench doubling`."""
    monkeypatch.setitem(command.BENCHMARKS, "doubling", Doubling)
    monkeypatch.setattr(Doubling, "open", lambda self: self.found.update({"a": right, "b": lambda n: n}))
    return Doubling


def test_every_file_has_the_rows(bench: type[Doubling], tmp_path: Path, capsys: Any) -> None:
    files = {kind: tmp_path / f"bench.{kind}" for kind in ("json", "csv", "markdown")}
    options = [text for kind, path in files.items() for text in (f"--{kind}", str(path))]
    assert cli.main(["bench", "doubling", "--batch", "2,1", "--threads", "1", *options]) == 0
    rows = json.loads(files["json"].read_text())["rows"]
    assert [(row["batch"], row["simulator"], row["status"]) for row in rows] == [
        (1, "a", "timed"), (1, "b", "parity failed"), (2, "a", "timed"), (2, "b", "parity failed")
    ]  # fmt: skip
    with files["csv"].open() as file:
        assert tuple(next(csv.reader(file))) == tuple(rows[0])
    lines = files["markdown"].read_text().splitlines()
    assert lines[2] == "| batch | simulator | time | interquartile range | first call | times |"
    assert lines[4].startswith("| 1 | a | 3 s | 500 ms | ") and lines[4].endswith(" | 2.0 |")
    assert lines[5].startswith("| 1 | b | parity failed: 1 instead of 2 |  | ") and lines[-1] == "- 4 rows"
    out = capsys.readouterr().out
    assert out.startswith("twice 1: a 3 s  b parity failed\ntwice 2: a 3 s") and out.endswith("\n4 rows\n")


@pytest.mark.parametrize(
    ("finished", "message"), [(0, "nothing is written"), (1, "after 1 of 2 cells, which are written")]
)
def test_an_interrupted_benchmark_keeps_the_cases_that_are_finished(
    finished: int, message: str, bench: type[Doubling], tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    measure, done = Doubling.measure, []

    def interrupted(self: Doubling, case: Doubled) -> Any:
        if len(done) == finished:
            raise KeyboardInterrupt
        done.append(case)
        return measure(self, case)

    monkeypatch.setattr(Doubling, "measure", interrupted)
    file = tmp_path / "bench.json"
    assert cli.main(["bench", "doubling", "--threads", "1", "--json", str(file)]) == 2
    assert message in capsys.readouterr().err
    assert file.exists() == bool(finished)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("simulators --ansatz nope", "--ansatz: no 'nope'; choose of strongly_entangling, vqc, qlcu"),
        ("simulators --qubits 4,x", "--qubits: 'x' is not a number"),
        ("simulators --qubits 1", "--qubits: must be at least 2"),
        ("simulators --batch 1,,2", "--batch: an empty value"),
        ("simulators --simulators qiskit", "--simulators: no 'qiskit'"),
        ("simulators --budget nan", "--budget: must be at least 0"),
        ("simulators --repeats 4", "--repeats: must be at least 5"),
        ("simulators --threads 0", "--threads: must be at least 1"),
        ("simulators --threads 9999", "--threads: 9999 asked for"),
        ("simulators --figure a.txt", "--figure: a.txt must end in"),
        ("simulators --device tpu", "--device: no 'tpu'; choose of cpu, cuda"),
        ("simulators --device cpu,cuda", "--device: one of cpu, cuda, not cpu,cuda"),
        ("simulators --device cuda --simulators floor", "--simulators: floor runs on cpu only, not on cuda"),
        (
            "simulators --simulators lightning.gpu",
            "--simulators: lightning.gpu runs on cuda only, not on cpu",
        ),
        (
            "models --models mamba --simulators closed-form",
            "--simulators: none fits mamba; choose of fused, literal",
        ),
        ("layouts --models superposition_transformer", "--models: no 'superposition_transformer'"),
        ("layouts --threads 1", "--threads: must be at least 2"),
        ("layouts --threads 4 --batch 32,3", "--batch: every process needs a sample: at least 4"),
        ("cohorts --models grape", "--models: no 'grape'"),
        ("cohorts --runs 1", "--runs: must be at least 2"),
        ("ranks --ranks 1", "--ranks: must be at least 2"),
        ("ranks --backends cpu", "--backends: no 'cpu'"),
        ("ranks --ranks 2,9999", "--ranks: 9999 asked for"),
        ("dynamics --qubits 3", "--qubits: there is no problem of 3 qubits; choose of 1, 2"),
        ("dynamics --problem nope", "--problem: no 'nope'; choose of control, pulses"),
        ("dynamics --problem pulses --qubits 1", "--qubits: must be at least 2"),
        ("pulses --levels 1", "--levels: must be at least 2"),
        ("pulses --simulators exact", "--simulators: no 'exact'"),
    ],
)
def test_a_wrong_option_is_named_in_a_line(arguments: str, message: str, capsys: Any) -> None:
    assert cli.main(["bench", *arguments.split()]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("name", ["simulators", "models"])
def test_cuda_without_a_gpu_is_an_error_of_one_line(name: str, capsys: Any) -> None:
    assert cli.main(["bench", name, "--device", "cuda"]) == 2
    error = capsys.readouterr().err
    assert "--device cuda: torch sees no CUDA GPU" in error and error.count("\n") == 1


@pytest.mark.parametrize("arguments", ["dynamics --levels 2", "pulses --batch 8"])
def test_an_option_of_another_benchmark_is_refused(arguments: str, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", *arguments.split()])
    assert "unrecognized arguments" in capsys.readouterr().err


def test_the_help_names_every_benchmark(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", "--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in command.BENCHMARKS)


def test_an_installed_package_says_where_the_benchmarks_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "lib" / "ketscale" / "cli.py"))
    assert cli.main(["bench", "simulators"]) == 2
    error = capsys.readouterr().err
    assert "the benchmarks are no part of the installed package: get a checkout" in error
    assert error.count("\n") == 1


def test_the_benchmarks_are_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmarks of the package's own checkout, and not a package of that name around."""

    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").write_text("raise SystemExit('another package')")
    done = subprocess.run(
        [sys.executable, "-m", "ketscale", "bench", "simulators", "--help"],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "--ansatz NAMES" in done.stdout, done.stderr


def test_rates_are_said_with_their_units() -> None:
    about = {
        "gpu": {"name": "G1"}, "cpu": "A CPU", "threads": 2, "commit": "a" * 40, "dirty": True,
        "ceiling": {"fma_gflops": 1.5, "copy_gbs": 20.0, "exchange_gbs": None},
    }  # fmt: skip
    said = "G1, A CPU, 2 threads, fma 1.5 GFLOP/s, copy 20 GB/s, commit aaaaaaaaaa, modified"
    assert output.hardware(about) == said


def test_a_quantity_that_tables_have_too_is_their_column() -> None:
    known = {
        part.name for table in TABLES.values() for part in table.parts if isinstance(part, columns.Column)
    }
    shown = {
        (column.name, column.heading)
        for benchmark in command.BENCHMARKS.values()
        for column in benchmark.columns
        if column.heading and column.name in known
    }
    assert shown == {(name, declared(name).heading) for name, _ in shown}
    assert {"simulator", "gradient_bytes", "error", "peak_rss_bytes"} <= {name for name, _ in shown}
    assert declared("peak_rss_bytes").cell({"peak_rss_bytes": 2.5e6}) == "2.5"
    assert declared("peak_rss_bytes").heading == "memory (MB)"


def test_a_result_names_its_command_without_the_files_that_it_wrote() -> None:
    given = ["gates", "--json", "/home/me/gates.json", "--threads", "1", "--csv=gates.csv", "--batch", "1,64"]
    assert command._measuring(given) == "ketscale bench gates --threads 1 --batch 1,64"


def test_numpys_linear_algebra_has_no_more_threads_than_were_asked_for() -> None:
    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2, "blas"):
        with machine.prepared(1):
            assert threads() == {1}
        assert threads() == {2}
