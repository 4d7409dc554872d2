"""Whether a model stacks is found out from one step: its numbers with vmap must be those that it has alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from ketscale.problems.supervised import Classification
from ketscale.training.together import why_not
from tests.toys import classification, protocol_of

PROTOCOL = protocol_of({})
BATCH = torch.arange(8)


def of(model: Callable[[], nn.Module], seed: int, dtype: torch.dtype = torch.float64) -> Classification:
    """The toy classification with another model, whose weights are those of a seed."""
    problem = classification(seed)
    torch.manual_seed(seed)
    parts = {name: problem.get_buffer(f"rows_{name}") for name in problem.splits}
    return Classification(
        model(), problem.get_buffer("inputs"), problem.get_buffer("targets"), parts, seed
    ).to(dtype)


def reason_of(model: Callable[[], nn.Module], dtype: torch.dtype = torch.float64) -> str:
    return why_not([of(model, seed, dtype) for seed in (0, 1)], PROTOCOL, BATCH, "test")


class Perceptron(nn.Module):
    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, width), nn.Tanh(), nn.Linear(width, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.more(self.layers(x))

    def more(self, logits: torch.Tensor) -> torch.Tensor:
        return logits


class Choosing(Perceptron):
    def more(self, logits: torch.Tensor) -> torch.Tensor:
        return logits if logits.sum().item() > 0 else -logits


class Counting(Perceptron):
    """Python's numbers differ from call to call, so that they are no function of weights and inputs."""

    calls, training_too = 0, True

    def more(self, logits: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return logits * self.calls if self.training_too or not self.training else logits


class Evaluating(Counting):
    training_too = False


def test_a_network_stacks_in_both_precisions() -> None:
    assert reason_of(Perceptron, torch.float32) == reason_of(Perceptron, torch.float64) == ""


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Choosing, "does not take it: RuntimeError: "),
        (lambda: nn.Sequential(nn.BatchNorm1d(12), nn.Linear(12, 3)), "does not take it: RuntimeError: "),
        (Counting, "gives it other numbers"),
        (Evaluating, "gives it other numbers"),
        (lambda: Perceptron(6 + int(torch.randint(1, 9, ()))), "other shapes cannot be stacked"),
    ],
    ids=["item", "statistics", "counter", "counter in evaluation", "shapes"],
)
def test_what_does_not_stack_says_why(model: Callable[[], nn.Module], why: str) -> None:
    assert why in reason_of(model)
