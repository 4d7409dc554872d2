"""Sentences over ranks: one trajectory whatever their number (fp64: 1e-12), for every way to share the work."""

import functools

import numpy as np
import pytest

from tests.process.parallel import worlds

STEPS = 12
DESCENT = {"optimiser": "gradient-descent", "learning_rate": 0.05}
# Seven ragged sentences: all at once and in batches of 3, by every sharding, and by the tasks of parameter-shift.
CASES = [
    ("sentences", 7, STEPS, DESCENT),
    ("sentences", 7, STEPS, {**DESCENT, "sharding": "strided"}),
    ("sentences", 7, STEPS, {**DESCENT, "parallel": "tasks"}),
    ("sentences", 3, STEPS, {"sharding": "strided"}),
    ("sentences", 1, STEPS, {"parallel": "tasks"}),
]


@functools.cache
def trained(where):
    return worlds.train(where, CASES)


@pytest.fixture(scope="module")
def alone():
    return trained("cpu-n1r1t1")


@pytest.mark.parametrize("where", ["mpi-n1r2t1", "mpi-n1r4t1", "ddp-cpu-n1r2t1"])
def test_the_trajectory_is_that_of_one_rank(where, alone):
    for case, one, several in zip(CASES, alone, trained(where), strict=True):
        np.testing.assert_allclose(several["losses"], one["losses"], rtol=0, atol=1e-12, err_msg=str(case))
        np.testing.assert_allclose(
            several["parameters"], one["parameters"], rtol=0, atol=1e-12, err_msg=str(case)
        )
        assert several["figures"] == pytest.approx(one["figures"], abs=1e-12)


def test_sharding_does_not_change_the_trajectory(alone):
    balanced, strided, tasks = (case["parameters"] for case in alone[:3])
    np.testing.assert_allclose(strided, balanced, rtol=0, atol=1e-12)
    np.testing.assert_allclose(tasks, balanced, rtol=0, atol=1e-12)


def test_the_loss_falls(alone):
    assert alone[0]["losses"][-1] < alone[0]["losses"][0]


@pytest.mark.parametrize("where", ["mpi-n1r2t1", "ddp-cpu-n1r2t1"])
def test_the_history_has_the_gradient_before_and_after_the_reduction(where, alone):
    norms, norms_alone = trained(where)[0]["norms"], alone[0]["norms"]
    for (norm, own), (norm_alone, own_alone) in zip(norms, norms_alone, strict=True):
        assert norm == pytest.approx(norm_alone) and own_alone == norm_alone
        # Rank 0 has four of seven sentences.
        assert 0 < own < 2 * norm and own != pytest.approx(norm, rel=1e-6)
