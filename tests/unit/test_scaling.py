"""Scaling laws in closed form, pairing by seed, and which runs a median may use."""

from __future__ import annotations

from typing import Any

import pytest

from ketscale.analysis import scaling


def row(**changes: Any) -> dict[str, Any]:
    """A row of runs.csv as far as scaling reads it."""
    usual = {
        "workload": "digits", "model": "vqc", "qubits": 4, "layers": 3, "batch": 64, "simulator": "default.qubit",
        "backend": "cpu", "ranks": 1, "threads": 1, "place": "cpu-n1r1t1", "protocol": "timing", "seed": 0,
        "status": "completed", "resumed": 0, "quiet": True, "timed": True, "precision": "fp32", "features": "cached",
        "step_s": 1.0, "steps_per_epoch": 20, "hardware": "CPU, 2 cores", "code": "0.1.0",
    }  # fmt: skip
    return {**usual, **changes}


def ranks(count: int, **changes: Any) -> dict[str, Any]:
    """The same row on `count` MPI ranks."""
    return row(backend="mpi", ranks=count, place=f"mpi-n1r{count}t1", **changes)


def threads(count: int, **changes: Any) -> dict[str, Any]:
    """The same row on `count` threads."""
    return row(threads=count, place=f"cpu-n1r1t{count}", **changes)


def points_of(kind: str, rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """scaling.csv of one study over these rows, by place."""
    axes = ("workload", "model", "qubits", "layers", "batch", "simulator", "protocol", "seed")
    points = [{**{axis: found[axis] for axis in axes}, "backend": found["place"]} for found in rows]
    config = {"studies": {"s": {"kind": kind, "question": "?", "points": points}}}
    return {point["place"]: point for point in scaling.table(config, rows, {})}


@pytest.mark.parametrize("serial", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("workers", [2, 4, 64])
def test_karp_flatt_recovers_the_serial_fraction_of_amdahls_law(serial: float, workers: int) -> None:
    amdahl = 1 / (serial + (1 - serial) / workers)
    assert scaling.karp_flatt(amdahl, workers) == pytest.approx(serial, abs=1e-12)


def test_karp_flatt_says_nothing_about_one_worker() -> None:
    assert scaling.karp_flatt(1.0, 1) is None


def test_speedup_and_efficiencies_are_their_textbook_ratios() -> None:
    assert scaling.speedup(6.0, 2.0) == 3.0
    assert scaling.strong_efficiency(3.0, 4) == 0.75
    assert scaling.weak_efficiency(2.0, 2.5) == 0.8


def test_a_spread_gives_median_range_and_quartiles() -> None:
    assert scaling.spread([4.0, 1.0, 2.0]) == scaling.Spread(2.0, 1.0, 4.0, 1.5, 3.0, 3)
    assert scaling.spread([]) is None


def test_ratios_pair_runs_of_the_same_seed() -> None:
    reference = [row(seed=0, step_s=1.0), row(seed=1, step_s=10.0)]
    ratio = scaling.paired_ratio(
        reference, [row(seed=1, step_s=5.0), row(seed=0, step_s=0.5), row(seed=2, step_s=9.0)]
    )
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high, ratio.n) == (2.0, 2.0, 2.0, 2)


def test_ratios_never_pair_different_hardware() -> None:
    assert scaling.paired_ratio([row()], [row(hardware="another CPU, 64 cores")]) is None


def test_a_line_through_fewer_than_three_points_is_no_fit() -> None:
    assert scaling.fit_line([1, 3], [1.0, 2.0]) is None
    assert scaling.fit_line([1, 2, 3], [5.0, 7.0, 9.0]) == scaling.Line(
        pytest.approx(3.0), pytest.approx(2.0), 1.0
    )


def test_busy_resumed_and_failed_runs_are_counted_but_in_no_median() -> None:
    rows = [
        row(seed=0, step_s=1.0), row(seed=1, step_s=99.0, quiet=False), row(seed=2, step_s=99.0, resumed=1),
        row(seed=3, step_s=99.0, status="diverged"), row(seed=4, step_s=None, status="out_of_memory"),
    ]  # fmt: skip
    point = points_of("strong", rows)["cpu-n1r1t1"]
    assert point["step_s"] == 1.0
    assert (point["n"], point["busy"], point["resumed"], point["failed"], point["flag"]) == (1, 1, 1, 2, "")


def test_a_point_whose_every_seed_was_busy_is_shown_and_flagged() -> None:
    point = points_of("strong", [row(seed=s, quiet=False, step_s=s + 1.0) for s in (0, 1, 2)])["cpu-n1r1t1"]
    assert (point["step_s"], point["n"], point["flag"]) == (2.0, 3, "busy")


def test_a_ratio_to_a_busy_reference_says_so() -> None:
    rows = [row(quiet=False), ranks(2, step_s=0.6)]
    assert points_of("strong", rows)["mpi-n1r2t1"]["flag"] == "busy reference"


def test_strong_scaling_gives_both_speedups() -> None:
    rows = [row(step_s=1.0), threads(2, step_s=0.8), ranks(2, step_s=0.5)]
    point = points_of("strong", rows)["mpi-n1r2t1"]
    assert point["speedup_same"] == 2.0
    assert (point["speedup_best_serial"], point["best_serial_reference"]) == (
        pytest.approx(1.6),
        "cpu-n1r1t2",
    )
    assert (point["efficiency"], point["karp_flatt"]) == (1.0, 0.0)


def test_the_best_serial_run_may_use_no_more_cores_than_the_point() -> None:
    point = points_of("strong", [row(step_s=1.0), threads(4, step_s=0.1), ranks(2, step_s=0.5)])["mpi-n1r2t1"]
    assert point["best_serial_reference"] == "cpu-n1r1t1"


def test_the_best_serial_run_may_be_another_simulator_but_no_untimed_run() -> None:
    rows = [
        row(simulator="qiskit", step_s=4.0), row(step_s=1.0), row(step_s=0.1, protocol="quality", timed=False)
    ]  # fmt: skip
    points = {p["simulator"]: p for p in scaling.table(
        {"studies": {"s": {"kind": "simulator", "question": "?", "points": [
            {**{a: r[a] for a in ("workload", "model", "qubits", "layers", "batch", "simulator", "protocol", "seed")},
             "backend": r["place"]} for r in rows[:2]]}}}, rows, {})}  # fmt: skip
    assert points["qiskit"]["speedup_best_serial"] == 0.25
    assert points["qiskit"]["best_serial_reference"] == "cpu-n1r1t1 default.qubit"
    assert points["qiskit"]["speedup_same"] == 1.0


def test_weak_scaling_compares_with_one_workers_share_of_the_batch() -> None:
    point = points_of("weak", [row(batch=64, step_s=1.0), ranks(2, batch=128, step_s=1.25)])["mpi-n1r2t1"]
    assert point["efficiency"] == 0.8
    assert point["speedup_same"] == 1.6
    assert point["same_reference"] == "cpu-n1r1t1 b64"
    assert point["karp_flatt"] is None


def test_on_gpus_the_workers_are_gpus() -> None:
    assert scaling.workers(row(backend="ddp", ranks=4, threads=8)) == 4
    assert scaling.workers(row(backend="mpi", ranks=4, threads=8)) == 32


def test_a_protocol_that_shares_the_machine_is_flagged() -> None:
    assert points_of("strong", [row(timed=False)])["cpu-n1r1t1"]["flag"] == "untimed"
