"""`ketscale bench table`: shots."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.circuits import CircuitCase, create, loss_of, vector
from ketscale.errors import UserError

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["qulacs", "qnode-fused", "fused"])
def test_a_value_of_shots_is_drawn_around_the_exact_one(name: str) -> None:
    case = CircuitCase("strongly_entangling", 2, 2, 1)
    try:
        sampled = create(name, CPU).prepare(loss_of(case._replace(shots=4000), np.float64))
    except UserError as missing:
        pytest.skip(str(missing))
    result = {vector(sampled())[0] for _ in range(2)}
    exact = vector(create("kronecker", CPU).prepare(loss_of(case, np.float64))())[0]
    spread = np.abs(loss_of(case, np.float64).coefficients).sum() / 4000**0.5
    assert len(result) == 2 and all(abs(value - exact) < 6 * spread for value in result)
