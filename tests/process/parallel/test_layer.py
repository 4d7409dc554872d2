"""A layer under DistributedDataParallel has the gradient of all ranks' samples."""

import math
import sys

import numpy as np
import pytest
import torch

from tests.process.parallel import worlds


def test_two_ranks_have_the_gradient_of_one():
    done = worlds.start("ddp-cpu-n1r2t1", f"{sys.executable} -m tests.process.parallel.layer")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    ranks, weight, slope = map(float, line.split()[1:])
    torch.manual_seed(0)
    assert ranks == 2 and weight == torch.rand(1, dtype=torch.float64).item() * 2 * math.pi
    assert slope == pytest.approx(-np.sin(np.linspace(0, 1, 8) + weight).mean(), rel=1e-12)
