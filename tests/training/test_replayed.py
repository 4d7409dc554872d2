"""Which training steps a GPU may repeat as CUDA graphs; that they train the same is tested on one (tests/gpu/test_steps.py)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import steps
from benchmarks.steps import ModelCase
from ketscale.engines.circuits.factory import build_simulator
from ketscale.engines.circuits.settings import CircuitSimulator
from ketscale.parallel.single import Single
from ketscale.problems.vectors.vqc import VQC
from ketscale.training.replayed import may_replay
from ketscale.training.step import Stepper
from tests.gpu.test_steps import CELLS, arm
from tests.toys import protocol_of, run_at
from tests.training.test_direct import posed

CPU = torch.device("cpu")


@pytest.mark.parametrize("case", CELLS, ids=lambda case: case.model)
def test_models_of_ours_may_with_fused_or_without_circuits(case: ModelCase) -> None:
    assert steps.posed(case, arm(case), CPU)[0].replays


@pytest.mark.parametrize("simulator", ["default.qubit", "closed-form"])
def test_what_copies_from_the_host_may_not(simulator: str) -> None:
    case = (
        ModelCase("vqc", 4, 8)
        if simulator == "default.qubit"
        else ModelCase("superposition_transformer", 4, 8)
    )
    assert not steps.posed(case, simulator, CPU)[0].replays


def vqc(**settings: Any) -> VQC:
    given = {
        "device": "fused",
        "gradient": "adjoint",
        "batching": "broadcast",
        "placement": "model",
    } | settings
    simulator = build_simulator("s", CircuitSimulator(**given), torch.device("cuda"))
    return VQC(qubits=3, layers=1, inputs=12, outputs=3, simulator=simulator)


@pytest.mark.parametrize(
    ("settings", "may"), [({}, True), ({"placement": "cpu"}, False), ({"batching": "loop"}, False)]
)
def test_circuits_may_where_the_model_is(settings: dict[str, str], may: bool) -> None:
    assert posed(vqc(**settings)).replays is may


class Own(nn.Linear):
    """It may do anything in its forward pass."""


def test_a_model_of_ones_own_may_not() -> None:
    assert not posed(nn.Sequential(Own(12, 3))).replays
    assert posed(nn.Sequential(nn.Linear(12, 3))).replays


def test_a_backbone_may_not() -> None:
    problem = posed(nn.Linear(12, 3))
    problem.backbone = nn.Identity()
    assert not problem.replays


def test_on_a_cpu_nothing_is_replayed() -> None:
    taken = Stepper(posed("vqc").train(), Single(run_at("cpu-n1r1t1")), protocol_of({"steps": 9}))
    for number in range(5):
        taken.take(torch.arange(8), number)
    assert taken.replayed == 0


def test_a_problem_with_a_hook_may_not() -> None:
    problem = posed("vqc")
    assert may_replay(problem)
    problem.model.register_forward_hook(lambda *_: None)
    assert not may_replay(problem)
