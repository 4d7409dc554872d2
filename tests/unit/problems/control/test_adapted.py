"""A trained network's pulses for tasks of one's own are those of its run."""

from __future__ import annotations

import pytest
import torch

from ketscale.engines.dynamics.propagators import propagator
from ketscale.problems.control.adapted import adapted
from ketscale.problems.control.meta_learning import Inner, MetaLearning
from ketscale.problems.control.policy import Network, Policy, RobustPulse
from ketscale.problems.control.problem import Objective
from ketscale.problems.control.workloads import QubitSpectrum

# Two of a task's four values vary, and they are not neighbours.
WORKLOAD = QubitSpectrum(strength=(3.0, 3.0), cutoff=(20.0, 20.0), detuning=(-2.0, 2.0), test=4)
NETWORKS = {
    "policy": lambda: Policy(4, "normalised", low=(0.5, -2.0), high=(2.0, 2.0), width=6, depth=2),
    "pulse": lambda: RobustPulse(4),
}


@pytest.mark.parametrize(
    "network, dtype", [("policy", torch.float64), ("policy", torch.float32), ("pulse", torch.float64)]
)
def test_adapted_pulses_are_those_of_the_runs_outputs(network: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    model: Network = NETWORKS[network]()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    objective = Objective(WORKLOAD, propagator("exact"))
    problem = MetaLearning(model, objective, "fomaml", Inner(3, 0.5), seed=0, arguments={}).to(dtype)
    kept = problem.predictions("test", problem.outputs("test", torch.arange(4)))
    tasks = problem.distribution.fixed("test", torch.arange(4), torch.float64).inputs
    found = adapted(model, WORKLOAD, tasks.tolist(), steps=3, rate=0.5)
    assert found.pulses.dtype == dtype and not found.pulses.requires_grad
    close = {"rtol": 0, "atol": 1e-12 if dtype == torch.float64 else 1e-5}
    torch.testing.assert_close(found.pulses, kept["pulses"], **close)
    torch.testing.assert_close(found.overlaps, kept["overlaps"][:, :4], **close)
    assert (found.overlaps[:, 3] > found.overlaps[:, 0]).all()
    assert all(torch.equal(tensor.float(), before[name]) for name, tensor in model.state_dict().items())


def test_without_steps_it_is_the_models_own_pulse() -> None:
    model, tasks = NETWORKS["policy"](), torch.rand(3, 2)
    found = adapted(model, WORKLOAD, tasks, steps=0)
    assert torch.equal(found.pulses, model(tasks).detach()) and found.overlaps.shape == (3, 1)
