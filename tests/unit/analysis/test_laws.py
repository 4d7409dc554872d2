"""Scaling laws: recovered from times that they generate, with intervals that hold, from runs that can show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from ketscale.analysis import laws
from ketscale.analysis.comparison import Collected
from ketscale.analysis.kinds import kinds
from ketscale.analysis.laws import AMDAHL, GUSTAFSON, USL, Law
from ketscale.grid import Run, Study
from tests.unit.analysis.test_speed import CONFIG, row

RANKS = (1, 2, 4, 8, 16)
# The exact times of each law, and its parameters.
CASES: dict[str, tuple[Law, Callable[[float], float], tuple[float, ...]]] = {
    "amdahl": (AMDAHL, lambda p: 2 * (0.1 + 0.9 / p), (0.1,)),
    "gustafson": (GUSTAFSON, lambda p: 2 * p / (p - 0.1 * (p - 1)), (0.1,)),
    "usl": (USL, lambda p: 2 * (1 + 0.05 * (p - 1) + 0.002 * p * (p - 1)) / p, (0.05, 0.002)),
}


@pytest.mark.parametrize("case", CASES)
def test_parameters_are_within_their_intervals_as_often_as_they_should(case: str) -> None:
    law, exact, parameters = CASES[case]
    times = np.array([exact(p) for p in RANKS])
    assert [each.value for each in laws.fit(law, RANKS, [times])] == pytest.approx(parameters, rel=1e-6)
    rng, repeats = np.random.default_rng(20), 200
    fits = [laws.fit(law, RANKS, times * np.exp(0.01 * rng.standard_normal((4, 5)))) for _ in range(repeats)]
    least, most = binom.ppf([0.0005, 0.9995], repeats, 0.95)
    for i, true in enumerate(parameters):
        assert least <= sum(result[i].low <= true <= result[i].high for result in fits) <= most


def test_a_law_needs_points_that_can_contradict_it() -> None:
    assert laws.fit(AMDAHL, (1, 2), [[1.0, 0.5]]) == () == laws.fit(USL, (1, 2, 4), [[1.0, 0.5, 0.25]])
    assert laws.fit(AMDAHL, (1, 2, 4), []) == ()
    (result,) = laws.fit(AMDAHL, (1, 2, 4), [[1.0, 0.5, 0.25]])
    assert result.low is None


def runs(text: str, seconds: float, seeds: Iterable[int] = range(3), **changes: Any) -> list[dict[str, Any]]:
    """Rows of runs.csv of one point, with a little noise."""
    named = {"layout": text, "shared_cores": False, "gpus": "", **changes}
    noise = np.random.default_rng([*text.encode(), named.get("qubits", 4)]).normal(0, 0.003, 9)
    return [row(seed=seed, step_s=seconds * float(np.exp(noise[seed])), **named) for seed in seeds]


def ranks(counts: Sequence[int], **changes: Any) -> list[dict[str, Any]]:
    """The runs on MPI ranks under Amdahl's law with a serial fraction of 0.1."""
    return [row for p in counts for row in runs(f"mpi-n1r{p}t1", 0.1 + 0.9 / p, **changes)]


def rows(kind: str, measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is fitted to one study of these runs."""
    study = Study("s", kind, "?", tuple(Run.of(row) for row in measured))
    fits = kinds(CONFIG.families)[kind].fits(study, Collected.of(CONFIG, measured, (), {}))
    return [{"study": "s", "kind": kind, "on": "", **row} for row in fits]


def test_each_series_of_a_study_has_its_laws() -> None:
    threads = [row for p in (1, 2, 4) for row in runs(f"cpu-n1r1t{p}", 1 / p)]
    result = rows("strong", [*ranks((2, 4, 8)), *threads])
    amdahl = {row["series"]: row for row in result if row["law"] == "Amdahl"}
    # One rank is the process with one thread.
    counts = {name: (row["points"], row["n"]) for name, row in amdahl.items()}
    assert counts == {"mpi-n1r*t1": (4, 3), "cpu-n1r1t*": (3, 3)}
    assert amdahl["mpi-n1r*t1"]["low"] < 0.1 < amdahl["mpi-n1r*t1"]["high"]
    assert {row["series"] for row in result if row["law"] == "USL"} == {"mpi-n1r*t1"}
    weak = [row for p in (1, 2, 4) for row in runs(f"mpi-n1r{p}t1", p / (p - 0.2 * (p - 1)), batch=32 * p)]
    (gustafson,) = rows("weak", weak)
    assert (gustafson["law"], gustafson["batch"]) == ("Gustafson", None)
    assert gustafson["effect"] == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize("change", [
    {"shared_cores": True}, {"shared_cores": None}, {"quiet": False}, {"timed": False}, {"status": "diverged"},
])  # fmt: skip
def test_runs_that_cannot_show_a_law_are_left_out(change: dict[str, Any]) -> None:
    result = rows("strong", [*ranks((1, 2, 4)), *ranks((8,), **change)])
    assert [(row["law"], row["points"]) for row in result] == [("Amdahl", 3)]


def test_ranks_that_share_a_gpu_and_runs_of_other_code_are_left_out() -> None:
    gpus = [row for p in (1, 2, 4) for row in runs(f"ddp-n1r{p}t1", 1 / p, gpus="H100; H100")]
    assert rows("strong", gpus) == []
    assert rows("strong", [*ranks((1, 2)), *ranks((4,), packages="torch=2.10")]) == []


def test_only_seeds_of_every_point_count() -> None:
    result = rows("strong", [*ranks((1, 4)), *ranks((2,), seeds=(0, 1))])
    assert [(row["n"], row["low"]) for row in result] == [(2, None)]


def test_a_line_has_the_first_law_of_its_kind() -> None:
    fitted = pd.DataFrame(rows("strong", ranks((1, 2, 4, 8))))
    points = pd.DataFrame(
        [{**row, "study": "s", "kind": "strong", "workers": row["ranks"]} for row in ranks((1, 8))]
    )
    law, values = laws.of_line(fitted, points) or (None, [])
    assert law is AMDAHL and values == pytest.approx([0.1], abs=0.02)
    assert laws.of_line(fitted, points.assign(batch=32)) is None


def sweep(times: Callable[[int], float]) -> list[dict[str, Any]]:
    """Runs of circuits with 2, 4, 8 and 16 qubits."""
    sizes = {qubits: {"size": f"q{qubits}-l3", "qubits": qubits} for qubits in (2, 4, 8, 16)}
    return [result for qubits, size in sizes.items() for result in runs("cpu-n1r1t1", times(qubits), **size)]


def test_a_sweep_has_the_exponent_of_its_growth_where_one_describes_it() -> None:
    (result,) = rows("qubits", sweep(lambda qubits: 0.01 * qubits**1.5))
    assert (result["law"], result["points"], result["n"]) == ("power", 4, 3)
    assert result["low"] < 1.5 < result["high"] and result["high"] - result["low"] < 0.1
    # An exponential is no power; two sizes contradict none.
    assert rows("qubits", sweep(lambda qubits: 0.01 * 2.0**qubits)) == []
    assert rows("qubits", sweep(lambda qubits: 0.01 * qubits)[:6]) == []


def test_the_slope_is_that_of_least_squares_with_students_interval() -> None:
    """Slopes 1, 2 and 3 of three seeds make 2 with a half width of 4.3027 / sqrt(3)."""
    at = np.array([0.0, 1.0, 3.0])
    result, p_value = laws.slope(at, np.array([1.0, 2.0, 3.0])[:, None] * at)
    assert (result.value, result.high - result.low) == pytest.approx((2.0, 2 * 4.302653 / 3**0.5))
    assert p_value == pytest.approx(1.0)
    # All seeds have the same bend, so it is not noise.
    _, p_value = laws.slope(at, at**2 + np.array([[0, 0, 1e-3], [0, 1e-3, 0], [1e-3, 0, 0]]))
    assert p_value < 1e-6
