"""Scaling laws in closed form, pairing by seed, and which runs a median may use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from ketscale.analysis import points
from ketscale.analysis.collected import Collected
from ketscale.analysis.kinds import kinds, speed
from ketscale.analysis.kinds.scaling import WEAK
from ketscale.config import Config
from ketscale.grid import Run, Study, layout
from tests import records_factory as factory

CONFIG = factory.default_config()


def row(**changes: Any) -> dict[str, Any]:
    """A row of runs.csv as far as scaling reads it."""
    usual = {
        "workload": "digits", "model": "vqc", "size": "q4-l3", "family": "images", "qubits": 4, "layers": 3, "batch": 64,
        "simulator": "default.qubit", "layout": "cpu-n1r1t1", "protocol": "timing", "seed": 0,
        "status": "completed", "resumed": 0, "quiet": True, "least_step_s": None, "timed": True, "precision": "fp32", "features": "cached",
        "step_s": 1.0, "first_step_s": 2.0, "step_count": 10, "circuit_s": 0.25, "steps_per_epoch": 20, "sample_work": None, "hardware": "CPU, 2 cores", "code": "0.1.0", "imported": "namehash", "packages": "torch=2.9", "mpi_library": None,
        "shared_cores": None, "data_hash": "d", "features_hash": "f",
    }  # fmt: skip
    made = {**usual, **changes}
    made["samples_per_s"] = made["step_s"] and made["batch"] / made["step_s"]
    made["epoch_s"], made["epoch_estimated"] = made["step_s"] and 20 * made["step_s"], False
    return {**made, **layout(made["layout"])}


def ranks(count: int, **changes: Any) -> dict[str, Any]:
    """The same row on `count` MPI ranks."""
    return row(layout=f"mpi-n1r{count}t1", **changes)


def threads(count: int, **changes: Any) -> dict[str, Any]:
    """The same row on `count` threads."""
    return row(layout=f"cpu-n1r1t{count}", **changes)


def rows_of(kind: str, rows: list[dict[str, Any]], asked: int | None = None) -> list[dict[str, Any]]:
    """scaling.csv of one study of the first `asked` of these rows."""
    study = Study("s", kind, "?", tuple(Run.of(found) for found in rows[:asked]))
    collected = Collected.of(CONFIG, rows, {}, {})
    return [dict(made) for made in kinds(CONFIG.families)[kind].rows(study, collected)]


def points_of(kind: str, rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The same by layout."""
    return {found["layout"]: found for found in rows_of(kind, rows)}


def test_a_point_whose_every_seed_was_busy_is_shown_and_flagged() -> None:
    point = points_of("strong", [row(seed=s, quiet=False, step_s=s + 1.0) for s in (0, 1, 2)])["cpu-n1r1t1"]
    assert (point["step_s"], point["n"], point["flag"]) == (2.0, 3, "busy")
    assert points.usable([row(status="diverged")]) == ([], "")


def test_a_point_whose_every_seed_timed_out_is_shown_with_its_steps_and_flagged() -> None:
    late = {"status": "timed_out", "quiet": True}
    rows = [row(seed=0, step_s=2.0, step_count=3, **late), row(seed=1, step_s=4.0, step_count=1, **late)]
    point = points_of("strong", [*rows, row(seed=2, step_s=None, step_count=0, **late)])["cpu-n1r1t1"]
    assert (point["step_s"], point["n"], point["timed_steps"]) == (3.0, 2, 1)
    assert (point["timed_out"], point["failed"], point["flag"]) == (3, 0, "timed_out")


def test_runs_that_timed_out_are_in_no_median_beside_one_that_did_not() -> None:
    rows = [row(seed=0, step_s=1.0), row(seed=1, step_s=9.0, status="timed_out")]
    point = points_of("strong", rows)["cpu-n1r1t1"]
    assert (point["step_s"], point["n"], point["timed_out"], point["flag"]) == (1.0, 1, 1, "")
    busy = [row(seed=0, step_s=1.0, quiet=False), row(seed=1, step_s=9.0, status="timed_out")]
    assert points_of("strong", busy)["cpu-n1r1t1"]["flag"] == "busy"


def test_a_ratio_to_a_reference_that_timed_out_says_so() -> None:
    rows = [row(status="timed_out"), ranks(2, step_s=0.6)]
    point = points_of("strong", rows)["mpi-n1r2t1"]
    assert point["flag"] == "timed_out reference" and point["speedup_same"] is not None


def test_the_best_serial_run_is_the_fastest_of_doubtful_ones_and_none_of_them_beside_a_sound_one() -> None:
    late = row(simulator="qiskit", step_s=5.0, status="timed_out")
    doubtful = points_of("strong", [late, row(step_s=1.0, quiet=False), ranks(2, step_s=0.5, quiet=False)])
    assert doubtful["mpi-n1r2t1"]["speedup_best_serial"] == 2.0
    sound = row(simulator="fused", step_s=4.0)
    found = points_of("strong", [late, sound, row(step_s=1.0, quiet=False), ranks(2, step_s=0.5)])
    assert found["mpi-n1r2t1"]["speedup_best_serial"] == pytest.approx(8.0)


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
    found = {point["simulator"]: point for point in rows_of("simulator", rows, asked=2)}
    assert found["qiskit"]["speedup_best_serial"] == 0.25
    assert found["qiskit"]["best_serial_reference"] == "cpu-n1r1t1 default.qubit"
    assert found["qiskit"]["speedup_same"] == 1.0


def test_the_best_serial_run_does_the_same_work() -> None:
    rows = [row(step_s=1.0), row(step_s=0.1, size="q2-l1", qubits=2, layers=1), ranks(2, step_s=0.5)]
    assert points_of("strong", rows[::2])["mpi-n1r2t1"]["speedup_best_serial"] == 2.0
    found = [point for point in rows_of("strong", rows) if point["size"] == "q4-l3"]
    assert {point["best_serial_reference"] for point in found} == {"cpu-n1r1t1"}
    assert [point["speedup_best_serial"] for point in found] == [1.0, 2.0]


def test_the_runs_of_a_point_are_not_looked_at_again_for_each_other_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the table of thousands of points takes the square of their number."""
    looked = 0

    def usable(group: points.Group) -> tuple[list[points.Row], str]:
        nonlocal looked
        looked += 1
        return points.usable(group)

    monkeypatch.setattr(speed, "usable", usable)
    rows = [threads(count + 1) for count in range(50)]
    assert len(points_of("strong", rows)) == len(rows)
    assert looked <= 10 * len(rows)


def test_weak_scaling_compares_with_one_workers_share_of_the_batch() -> None:
    point = points_of("weak", [row(batch=64, step_s=1.0), ranks(2, batch=128, step_s=1.25)])["mpi-n1r2t1"]
    assert point["efficiency"] == 0.8
    assert point["speedup_same"] == 1.6
    assert point["same_reference"] == "cpu-n1r1t1 b64"
    assert point.get("karp_flatt") is None


# A family in which twice the batch needs one more qubit, and so four times the work.
GROWING = replace(CONFIG.families["images"], work=lambda sizes: 4.0 ** sizes["qubits"])
GROWN = replace(CONFIG, families={**CONFIG.families, "images": GROWING})


def grown(qubits: int, layers: int = 3, **changes: Any) -> dict[str, Any]:
    """A row of such a family: 2**qubits samples on 2**(qubits - 4) ranks."""
    made = ranks if qubits > 4 else lambda count, **more: row(**more)
    sizes = {"size": f"q{qubits}-l{layers}", "qubits": qubits, "layers": layers, "batch": 2**qubits}
    return made(2 ** (qubits - 4), **sizes, sample_work=4.0**qubits, **changes)


def test_weak_scaling_counts_the_work_of_samples_where_it_grows() -> None:
    found = points_of("weak", [grown(4, step_s=1.0), grown(5, step_s=5.0), grown(6, step_s=32.0)])
    assert [found[f"mpi-n1r{count}t1"]["efficiency"] for count in (2, 4)] == [0.8, 0.5]
    assert [found[f"mpi-n1r{count}t1"]["speedup_same"] for count in (2, 4)] == [1.6, 2.0]
    assert found["mpi-n1r4t1"]["same_reference"] == "cpu-n1r1t1 q4-l3 b16"
    assert (found["cpu-n1r1t1"]["efficiency"], found["cpu-n1r1t1"]["speedup_same"]) == (1.0, 1.0)


def test_weak_scaling_compares_with_the_size_that_is_the_most_alike() -> None:
    rows = [grown(4, layers=2, step_s=9.0), grown(4, step_s=1.0), grown(5, step_s=4.0)]
    assert points_of("weak", rows)["mpi-n1r2t1"]["same_reference"] == "cpu-n1r1t1 q4-l3 b16"


@pytest.mark.parametrize("ratio", [1 / 3, 0.7])
def test_without_work_the_efficiency_is_the_bare_ratio(ratio: float) -> None:
    point = points_of("weak", [row(batch=64, step_s=ratio), ranks(3, batch=192, step_s=1.0)])["mpi-n1r3t1"]
    assert (point["efficiency"], point["speedup_same"]) == pytest.approx((ratio, ratio * 3.0))
    other = points_of("weak", [row(batch=64, step_s=1.0), ranks(2, batch=128, size="q5-l3", qubits=5)])
    assert other["mpi-n1r2t1"]["same_reference"] == ""


@pytest.mark.parametrize(
    "config, qubits, faults", [(GROWN, (4, 5), 0), (GROWN, (4, 6), 1), (CONFIG, (4, 5), 0), (CONFIG, (4, 6), 0)]
)  # fmt: skip
def test_the_share_of_a_worker_is_checked_across_sizes_where_they_grow(
    config: Config, qubits: tuple[int, int], faults: int
) -> None:
    small, large = (grown(number) for number in qubits)
    runs = tuple(Run.of({**found, **layout("mpi-n1r2t1" if found is large else "cpu-n1r1t1")}) for found in (small, large))  # fmt: skip
    assert len(list(WEAK.check(Study("s", "weak", "?", runs), config))) == faults


@pytest.mark.parametrize("config, along", [(GROWN, ["batch", "qubits"]), (CONFIG, ["batch"])])
def test_points_of_one_line_may_differ_in_what_grows(config: Config, along: list[str]) -> None:
    table = pd.DataFrame(rows_of("weak", [grown(4), grown(5, step_s=5.0), grown(6, step_s=32.0)]))
    assert WEAK.along(table, config) == along


def test_a_size_that_differs_among_equal_workers_does_not_grow() -> None:
    table = pd.DataFrame(rows_of("weak", [grown(q, layers=n) for q in (4, 5) for n in (2, 3)]))
    assert WEAK.along(table, GROWN) == ["batch", "qubits"]


def test_on_gpus_the_workers_are_gpus() -> None:
    assert points.workers("ddp-n1r4t8") == 4
    assert points.workers("mpi-n1r4t8") == 32
    assert points.serial("ddp") == "gpu-n1r1t1"


@pytest.mark.parametrize("status", ["completed", "timed_out"])
def test_a_protocol_that_shares_the_machine_is_flagged(status: str) -> None:
    assert points_of("strong", [row(timed=False, status=status)])["cpu-n1r1t1"]["flag"] == "untimed"


@pytest.mark.parametrize("estimated", [(), (2,)])
def test_the_time_of_an_epoch_is_the_measured_one_and_an_estimate_is_called_one(
    estimated: tuple[int, ...],
) -> None:
    """Not the median step times the steps, which would be 20 s."""
    rows = [
        row(seed=seed) | {"epoch_s": 26.0 + seed, "epoch_estimated": seed in estimated} for seed in range(3)
    ]
    (found,) = rows_of("strong", rows)
    assert (found["step_s"], found["epoch_s"], found["epoch_estimated"]) == (1.0, 27.0, bool(estimated))
