"""Scaling laws on times generated from each of them: recovered, held out, rejected and refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import binom

from ketscale.analysis.laws import known
from ketscale.analysis.laws.fit import Fit, Law, fit
from ketscale.grid import BACKENDS

RANKS = (1, 2, 4, 8, 16)
WORK, STATES = (64, 256, 1024, 4096, 2**14, 2**16), (1e3, 4e3, 1.6e4, 6.4e4, 2.6e5, 1e6)
CACHE = 5e4
PAIRS = [(ranks, size) for ranks in (2, 4, 8) for size in (1000, 10_000, 100_000)]


# Each law has its variables, its exact times at them, and its parameters.
CASES: dict[str, tuple[Law, list[Sequence[float]], list[float], tuple[float, ...]]] = {
    "amdahl": (known.AMDAHL, [RANKS], [2 * (0.1 + 0.9 / p) for p in RANKS], (0.1, 2)),
    "gustafson": (known.GUSTAFSON, [RANKS], [2 * p / (p - 0.1 * (p - 1)) for p in RANKS], (0.1, 2)),
    "usl": (
        known.USL,
        [RANKS],
        [2 * (1 + 0.05 * (p - 1) + 0.002 * p * (p - 1)) / p for p in RANKS],
        (0.05, 0.002, 2),
    ),
    "alpha-beta": (
        known.ALPHA_BETA,
        list(zip(*(known.all_reduce("mpi", *pair) for pair in PAIRS), strict=True)),
        [2e-5 * np.log2(ranks) + 1e-9 * 2 * (ranks - 1) / ranks * size for ranks, size in PAIRS],
        (2e-5, 1e-9),
    ),
    "cost": (
        known.cost(CACHE),
        [WORK, STATES],
        [1e-3 + (1e-6 if size <= CACHE else 4e-6) * work for work, size in zip(WORK, STATES, strict=True)],
        (1e-3, 1e-6, 4e-6),
    ),
}


def times(exact: Sequence[float], noise: float, seeds: int, rng: np.random.Generator) -> np.ndarray:
    """The exact times with relative noise, and a factor of 5 % common to each seed."""
    shape = (seeds, len(exact))
    return np.asarray(exact) * np.exp(
        noise * rng.standard_normal(shape) + 0.05 * rng.standard_normal((seeds, 1))
    )


def fitted(case: str, measured: np.ndarray, law: Law | None = None) -> Fit:
    """The fit of a case's law, or of another one, to times at the case's points."""
    own, variables, _, _ = CASES[case]
    return fit(law or own, variables, measured.tolist(), [f"point {i}" for i in range(measured.shape[1])])


@pytest.mark.parametrize("case, seeds", [*((case, 3) for case in CASES), ("usl", 5)])
def test_parameters_are_within_their_intervals_as_often_as_they_should(case: str, seeds: int) -> None:
    _, _, exact, parameters = CASES[case]
    rng = np.random.default_rng(20)
    fits = [fitted(case, times(exact, 0.03, seeds, rng)) for _ in range(400)]
    # Limits that a right coverage, or level of the test, leaves once in a thousand.
    least, most = binom.ppf([0.0005, 0.9995], 400, 0.95)
    for i, true in enumerate(parameters):
        covered = sum(found.estimates[i].low <= true <= found.estimates[i].high for found in fits)
        assert least <= covered <= most, CASES[case][0].parameters[i].name
    assert least <= sum(found.p_value >= 0.05 for found in fits) <= most


@pytest.mark.parametrize("case", CASES)
def test_without_noise_a_law_is_recovered_exactly(case: str) -> None:
    _, _, exact, parameters = CASES[case]
    found = fitted(case, np.asarray([exact] * 3))
    assert [estimate.value for estimate in found.estimates] == pytest.approx(parameters, rel=1e-9)
    assert (found.verdict, found.reason, found.n, found.points) == ("accepted", "", 3, len(exact))
    assert found.error is not None and found.error.value == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    "case, law",
    [
        ("usl", known.AMDAHL),
        ("amdahl", known.GUSTAFSON),
        ("alpha-beta", known.cost(None)),
        ("cost", known.cost(None)),
    ],
)
def test_times_of_another_law_are_rejected(case: str, law: Law) -> None:
    found = fitted(case, times(CASES[case][2], 0.01, 3, np.random.default_rng(3)), law)
    assert found.verdict == "rejected"
    assert "the largest residual is" in found.reason and "the spread over seeds" in found.reason


@pytest.mark.parametrize(
    "exact, law, why",
    [
        # More than twice as fast on two.
        ([2 * (1.05 / p - 0.02) for p in RANKS], known.AMDAHL, "the serial fraction is below 0"),
        (CASES["gustafson"][2], known.AMDAHL, "the serial fraction is above 1"),
    ],
)
def test_parameters_without_a_meaning_are_rejected(exact: Sequence[float], law: Law, why: str) -> None:
    found = fitted("amdahl", times(exact, 0.01, 3, np.random.default_rng(3)), law)
    assert found.verdict == "rejected" and found.reason == why


@pytest.mark.parametrize("law, points, fewest", [(known.USL, 3, 4), (known.AMDAHL, 2, 3)])
def test_points_that_any_law_fits_are_refused(law: Law, points: int, fewest: int) -> None:
    found = fit(law, [RANKS[:points]], [[3.0, 2.0, 1.5][:points]] * 3, ["a", "b", "c"][:points])
    assert found.verdict == "refused" and found.estimates == ()
    assert found.reason == f"{points} points; the fewest that can contradict this law are {fewest}"


def test_fewer_than_three_seeds_are_refused() -> None:
    found = fit(known.AMDAHL, [RANKS], [CASES["amdahl"][2]] * 2, list(map(str, RANKS)))
    assert found.verdict == "refused" and found.reason.startswith("2 seeds at every point")


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 0.0, -1.0])
def test_times_that_are_none_are_refused(wrong: float) -> None:
    rows = [list(CASES["amdahl"][2]) for _ in range(3)]
    rows[1][2] = wrong
    found = fit(known.AMDAHL, [RANKS], rows, list(map(str, RANKS)))
    assert (found.verdict, found.reason) == ("refused", "a time is not a positive number")


def test_the_closed_forms_are_those_of_their_authors() -> None:
    assert known.amdahl(8, 0.1) == pytest.approx(1 / (0.1 + 0.9 / 8))
    # Gustafson 1988: on 1024 processors a serial fraction of 0.4 % gives 1020.
    assert known.gustafson(1024, 0.004) == pytest.approx(1020, abs=0.5)
    # The USL is largest at sqrt((1 - sigma) / kappa) workers.
    peak = ((1 - 0.05) / 0.002) ** 0.5
    assert known.usl(peak, 0.05, 0.002) > max(known.usl(peak * x, 0.05, 0.002) for x in (0.9, 1.1))
    assert known.usl(8, 0.1, 0) == pytest.approx(known.amdahl(8, 0.1))


def test_every_backend_has_a_number_of_rounds():
    for name, backend in BACKENDS.items():
        if backend.several_ranks:
            assert known.all_reduce(name, 2, 100) == (1.0, 100.0)
            assert known.all_reduce(name, 64, 100)[0] == (63.0 if name == "ddp-cpu" else 6.0)
