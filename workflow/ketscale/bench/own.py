"""Simulators of this package as subjects: what a model pays for them, autograd included."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ketscale.bench.problem import Call, Problem
from ketscale.engines.circuits.circuit import Angles
from ketscale.engines.circuits.factory import build_simulator

FUSED = {"device": "fused", "gradient": "adjoint", "batching": "broadcast"}
SETTINGS: dict[str, dict[str, str]] = {
    "fused": FUSED,
    "fused-literal": {**FUSED, "route": "literal"},
    "fused-sweep": {**FUSED, "route": "sweep"},
    "fused-matrix": {**FUSED, "route": "matrix"},
    "default.qubit": {"device": "default.qubit", "gradient": "backprop", "batching": "broadcast"},
    "lightning.qubit": {"device": "lightning.qubit", "gradient": "adjoint", "batching": "loop"},
}


class Own:
    """The simulator of this name on the CPU.

    Raises:
        UserError: what it needs is not here.
    """

    def __init__(self, name: str) -> None:
        self._simulator = build_simulator(name, {**SETTINGS[name], "placement": "model"}, torch.device("cpu"))

    def prepare(self, problem: Problem) -> Call:
        """See `Subject.prepare`."""
        circuit, words = problem.circuit, problem.words
        return torch_call(problem, lambda angles: self._simulator.expval(circuit, angles, words))


def torch_call(problem: Problem, expval: Callable[[Angles], torch.Tensor]) -> Call:
    """The loss of `expval` and its gradients by torch's autograd; `expval` gives real (batch, words)."""
    angles = Angles(torch.tensor(problem.inputs), torch.tensor(problem.weights))
    coefficients = torch.tensor(problem.coefficients)
    # autograd refuses a tensor that nothing depends on, such as weights of shape (0,).
    leaves = [tensor.requires_grad_() for tensor in angles if tensor.numel()]

    def call() -> tuple[torch.Tensor, ...]:
        loss = (expval(angles) * coefficients).sum()
        return loss.detach(), *torch.autograd.grad(loss, leaves)

    return call
