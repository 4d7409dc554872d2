"""L-BFGS over ranks: one trajectory whatever their number (fp64: 1e-10), and ranks that stop together."""

import numpy as np
import pytest

from tests.process.parallel import worlds

LBFGS = {"optimiser": "l-bfgs"}
# Linear, linear with tasks of parameter-shift, nonlinear with complex parameters and with a penalty, and separable. In its fifth
# step the search of `fidelity` makes 1e-12 of the rounding of 1e-16, and more in each later one: chaos, not error.
CASES = [
    ("without dropout", 37, 8, LBFGS),
    ("sentences", 7, 6, {**LBFGS, "parallel": "tasks"}),
    ("fidelity", 11, 4, LBFGS),
    ("columns", 4, 8, LBFGS),
    ("grape", 5, 8, LBFGS),
]
PLACES = ["mpi-n1r3t1", "ddp-cpu-n1r3t1"]


@pytest.fixture(scope="module")
def alone():
    return worlds.train("cpu-n1r1t1", CASES)


@pytest.mark.parametrize("where", PLACES)
def test_the_trajectory_is_that_of_one_rank(where, alone):
    for case, one, several in zip(CASES, alone, worlds.train(where, CASES), strict=True):
        assert len(one["losses"]) > 3 and one["losses"][-1] < one["losses"][0]
        np.testing.assert_allclose(several["losses"], one["losses"], rtol=0, atol=1e-10, err_msg=str(case))
        np.testing.assert_allclose(
            several["parameters"], one["parameters"], rtol=0, atol=1e-10, err_msg=str(case)
        )


@pytest.mark.parametrize("where", ["mpi-n1r2t1", "ddp-cpu-n1r2t1"])
def test_a_request_that_one_rank_has_heard_stops_all_at_the_same_iteration(where):
    done = worlds.start(where, f"{worlds.sys.executable} -m tests.process.parallel.stop_one_rank {where}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("stopped at step 3; l-bfgs has no checkpoints") == 2, done.stdout + done.stderr
