"""Invariant: the same numbers for every backend and number of ranks (fp64: 1e-10)."""

import functools

import numpy as np
import pytest

from tests.process.parallel import worlds

# 37 samples in batches of 16: the last batch of an epoch has 5; batch 2 on three ranks leaves one without samples.
CASES = [
    ("classification", 16, 20),
    ("classification", 2, 20),
    ("regression", 2, 20),
    # So large a gradient that DistributedDataParallel sums it while the backward pass goes on.
    ("large", 2, 20),
    ("fidelity", 4, 20),
    # Every sample in every step, and tasks drawn afresh; both with a penalty, which counts once.
    ("columns", 4, 20),
    ("tasks", 7, 20),
    # Second-order meta-gradients; and parts that are minimised each by itself.
    ("meta-learning", 7, 20),
    ("meta-learning", 2, 20),
    ("grape", 5, 20),
]


def numbers(figures):
    """All metrics that are defined, but for matrices."""
    return {name: value for name, value in figures.items() if isinstance(value, float)}


# Every rank does every sample, by mistake: with each of the samplers, and a loss that is not linear.
UNSHARDED = [
    (*case, {"mistake": "unsharded"}) for case in CASES if case[0] in ("fidelity", "columns", "tasks")
]


@pytest.fixture(scope="module")
def alone():
    return worlds.train("cpu-n1r1t1", CASES)


@functools.cache
def trained(where):
    """CASES in this place; and then UNSHARDED, in one of them."""
    return worlds.train(where, CASES + (UNSHARDED if where == "mpi-n1r3t1" else []))


@pytest.mark.parametrize(
    "where",
    # Gloo sums by messages of pairs where the number of ranks is a power of two.
    [
        pytest.param("mpi-n1r2t1", marks=pytest.mark.nightly),
        "mpi-n1r3t1",
        pytest.param("ddp-cpu-n1r3t1", marks=pytest.mark.nightly),
        "ddp-cpu-n1r4t1",
    ],
)
def test_ranks_compute_what_one_process_computes(where, alone):
    for case, one, several in zip(CASES, alone, trained(where)[: len(CASES)], strict=True):
        assert len(one["losses"]) == 20
        np.testing.assert_allclose(several["losses"], one["losses"], rtol=1e-10, atol=0, err_msg=str(case))
        np.testing.assert_allclose(
            several["parameters"], one["parameters"], rtol=0, atol=1e-10, err_msg=str(case)
        )
        assert numbers(several["figures"]) == pytest.approx(numbers(one["figures"]), rel=1e-10)
        assert several["right"] == one["right"] and (one["right"] is None) == (
            case[0] not in ("classification", "large")
        )
        assert sum(several["samples"]) == one["samples"][0]
        assert {"communication", "communication.wait"} <= set(several["spans"])
        overlapped = case[0] == "large" and where.startswith("ddp")
        assert ("communication.total" in several["spans"]) == overlapped
        assert max(several["samples"]) < one["samples"][0]


def test_one_rank_of_mpi_computes_what_one_process_computes(alone):
    (one,) = worlds.train("mpi-n1r1t1", CASES[:1])
    np.testing.assert_allclose(one["losses"], alone[0]["losses"], rtol=1e-10, atol=0)
    assert one["samples"] == alone[0]["samples"]


def test_ranks_that_all_do_every_sample_by_mistake_compute_the_same(alone):
    wanted = [
        one for case, one in zip(CASES, alone, strict=True) if case[0] in {case[0] for case in UNSHARDED}
    ]
    for one, several in zip(wanted, trained("mpi-n1r3t1")[len(CASES) :], strict=True):
        np.testing.assert_allclose(several["losses"], one["losses"], rtol=1e-10, atol=0)
        assert several["samples"] == 3 * one["samples"]


@pytest.mark.parametrize(
    "launched, wanted",
    [
        ("cpu-n1r1t1", "mpi-n1r2t1"),
        ("mpi-n1r2t1", "mpi-n1r3t1"),
        ("mpi-n1r2t1", "cpu-n1r1t1"),
        ("mpi-n1r2t1", "mpi-n2r2t1"),
    ],
)
def test_a_world_of_another_size_is_refused(launched, wanted):
    script = (
        "from ketscale.parallel import world; from tests.toys import run_at; "
        f"run = run_at('{wanted}'); w = world.open_world(run); world.check_nodes(run, w.gather('here'))"
    )
    done = worlds.start(launched, f'{worlds.sys.executable} -c "{script}"')
    assert done.returncode != 0
    assert "rank(s), but this process" in done.stderr or "asks for 2 node(s)" in done.stderr
