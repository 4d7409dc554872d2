"""What all benchmarks share: the stopwatch, turns, and what is not timed and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from benchmarks import ceiling, command, machine, stopwatch
from benchmarks.options import numbers, option
from benchmarks.runner import GRAPH, ON_A_GPU, WRONG, Benchmark, Column, Untimed, best_s
from ketscale import cli
from ketscale.engines.graphs import WARM_CALLS, NoGraph


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
    result = Doubling(**options)
    result.found = subjects
    return result


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
        (lambda *_: NoGraph("RuntimeError: no"), "RuntimeError: no"),
    ],
)
def test_a_graph_is_timed_beside_the_call_if_it_gives_the_same(
    capture: Any, reason: str | None, timed: list[Any]
) -> None:
    bench = doubling({"a": right})
    bench.capture = capture
    (row,) = bench.measure(Doubled(3))
    assert (row["status"], row["median_s"], row["graph_reason"]) == ("timed", 3.0, reason)
    result = (None, None, 3.0) if reason else (1.0, 0.5, 1.0)
    assert (row["graph_median_s"], row["graph_iqr_s"], best_s(row)) == result


def test_an_interrupted_benchmark_keeps_the_cases_that_are_finished(
    timed: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, file = Doubling.measure, tmp_path / "bench.json"

    def interrupted(self: Doubling, case: Doubled) -> Any:
        if case.batch == 64:
            raise KeyboardInterrupt
        return measure(self, case)

    monkeypatch.setitem(command.BENCHMARKS, "doubling", Doubling)
    monkeypatch.setattr(Doubling, "open", lambda self: self.found.update({"a": right, "b": lambda n: n}))
    monkeypatch.setattr(Doubling, "measure", interrupted)
    assert cli.main(["bench", "doubling", "--threads", "1", "--json", str(file)]) == 2
    rows = json.loads(file.read_text())["rows"]
    assert [(row["simulator"], row["status"]) for row in rows] == [("a", "timed"), ("b", "parity failed")]


def test_numpys_linear_algebra_has_no_more_threads_than_were_asked_for() -> None:
    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2, "blas"):
        before = threads()  # Qiskit Aer's library, where it is loaded, has one thread alone
        assert 2 in before
        with machine.prepared(1):
            assert threads() == {1}
        assert threads() == before
