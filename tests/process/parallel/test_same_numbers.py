"""Invariant: the same numbers for every backend and number of ranks (fp64: 1e-10; sentences: 1e-12)."""

import functools

import numpy as np
import pytest

from ketscale.parallel.world import open_world
from tests.process.parallel import worker, worlds
from tests.toys import run_at

STEPS = 8
# 37 samples in batches of 16: the last batch of an epoch has 5; batch 2 on three ranks leaves one without samples.
DESCENT = [
    ("classification", 16, STEPS),
    ("classification", 2, STEPS),
    ("weighted hinge", 16, STEPS, {"optimiser": "sgd", "momentum": 0.9}),
    ("weighted", 2, STEPS, {"optimiser": "adamw", "weight_decay": 0.1}),
    ("regression", 2, STEPS),
    # So large a gradient that DistributedDataParallel sums it while the backward pass goes on.
    ("large", 2, STEPS),
    ("fidelity", 4, STEPS),
    # Every sample in every step, and tasks drawn afresh; both with a penalty, which counts once.
    ("columns", 4, STEPS),
    ("tasks", 7, STEPS),
    # Second-order meta-gradients; and parts that are minimised each by itself.
    ("meta-learning", 7, STEPS),
    ("meta-learning", 2, STEPS),
    ("grape", 5, STEPS),
]
# Linear, linear with tasks of parameter-shift, nonlinear with complex parameters and with a penalty, and separable. In its fifth
# step the search of `fidelity` makes 1e-12 of the rounding of 1e-16, and more in each later one: chaos, not error.
OF_LBFGS = {"optimiser": "l-bfgs"}
LBFGS = [
    ("without dropout", 37, 8, OF_LBFGS),
    ("sentences", 7, 6, {**OF_LBFGS, "parallel": "tasks"}),
    ("fidelity", 11, 4, OF_LBFGS),
    ("columns", 4, 8, OF_LBFGS),
    ("grape", 5, 8, OF_LBFGS),
]
# Seven ragged sentences: all at once and in batches of 3, by every sharding, and by the tasks of parameter-shift.
PLAIN = {"optimiser": "gradient-descent", "learning_rate": 0.05}
SENTENCES = [
    ("sentences", 7, STEPS, PLAIN),
    ("sentences", 7, STEPS, {**PLAIN, "sharding": "strided"}),
    ("sentences", 7, STEPS, {**PLAIN, "parallel": "tasks"}),
    ("sentences", 3, STEPS, {"sharding": "strided"}),
    ("sentences", 1, STEPS, {"parallel": "tasks"}),
]
CASES = [*DESCENT, *LBFGS, *SENTENCES]
# Every rank does every sample, by mistake: with each of the samplers, and a loss that is not linear.
UNSHARDED = [
    (*case, {"mistake": "unsharded"}) for case in DESCENT if case[0] in ("fidelity", "columns", "tasks")
]
# Gloo sums by messages of pairs where the number of ranks is a power of two.
PLACES = [
    "mpi-n1r3t1",
    "ddp-cpu-n1r2t1",
    pytest.param("ddp-cpu-n1r3t1", marks=pytest.mark.nightly),
    pytest.param("ddp-cpu-n1r4t1", marks=pytest.mark.nightly),
]


def numbers(figures):
    """All metrics that are defined, but for matrices."""
    return {name: value for name, value in figures.items() if isinstance(value, float)}


def computed(case):
    """What this process computes."""
    return worker.train(open_world(run_at("cpu-n1r1t1")), *case[:3], **dict(*case[3:]))


@pytest.fixture(scope="module")
def alone():
    return [computed(case) for case in CASES]


@functools.cache
def trained(where):
    """CASES in this place; and then UNSHARDED, in one of them."""
    return worlds.train(where, CASES + (UNSHARDED if where == "mpi-n1r3t1" else []))


@pytest.mark.parametrize("where", PLACES)
def test_ranks_compute_what_one_process_computes(where, alone):
    for case, one, several in zip(CASES, alone, trained(where)[: len(CASES)], strict=True):
        relative, absolute = (1e-10, 0) if case in DESCENT else (0, 1e-10 if case in LBFGS else 1e-12)
        for name, rtol, atol in (("losses", relative, absolute), ("parameters", 0, absolute or 1e-10)):
            np.testing.assert_allclose(several[name], one[name], rtol, atol, err_msg=str((case, name)))
        if case in LBFGS:
            assert len(one["losses"]) > 3 and one["losses"][-1] < one["losses"][0]
            continue
        assert len(one["losses"]) == case[2]
        assert numbers(several["figures"]) == pytest.approx(numbers(one["figures"]), rel=1e-10)
        assert several["right"] == one["right"]
        shares = ("classification", "weighted", "weighted hinge", "large", "sentences")
        assert (one["right"] is None) == (case[0] not in shares)
        if "parallel" not in str(case):  # ranks share tasks then, of all samples
            assert sum(several["samples"]) == one["samples"][0] > max(several["samples"])
        assert {"communication", "communication.wait"} <= set(several["spans"])
        overlapped = case[0] == "large" and where.startswith("ddp")
        assert ("communication.total" in several["spans"]) == overlapped
        # The history has the gradient before and after the reduction.
        for (norm, own), (norm_alone, own_alone) in zip(several["norms"], one["norms"], strict=True):
            assert norm == pytest.approx(norm_alone) and own_alone == norm_alone
            assert case != SENTENCES[0] or (0 < own < 2 * norm and own != pytest.approx(norm, rel=1e-6))


def test_sharding_does_not_change_the_trajectory(alone):
    balanced, *others = (np.array(case["parameters"]) for case in alone[-5:-2])
    for other in others:
        np.testing.assert_allclose(other, balanced, rtol=0, atol=1e-12)


@pytest.mark.nightly
def test_one_rank_of_mpi_computes_what_one_process_computes(alone):
    (one,) = worlds.train("mpi-n1r1t1", CASES[:1])
    np.testing.assert_allclose(one["losses"], alone[0]["losses"], rtol=1e-10, atol=0)
    assert one["samples"] == alone[0]["samples"]


def test_ranks_that_all_do_every_sample_by_mistake_compute_the_same(alone):
    for case, several in zip(UNSHARDED, trained("mpi-n1r3t1")[len(CASES) :], strict=True):
        one = alone[CASES.index(case[:3])]
        np.testing.assert_allclose(several["losses"], one["losses"], rtol=1e-10, atol=0)
        assert several["samples"] == 3 * one["samples"]
