"""Simulators of this package as subjects: what a model pays for them, autograd included."""

from __future__ import annotations

from collections.abc import Callable

import torch
from msgspec import structs

from ketscale.bench.cases import Call, Case
from ketscale.engines.circuits.circuit import Angles
from ketscale.engines.circuits.factory import build_simulator
from ketscale.engines.circuits.settings import CircuitSimulator


class Own:
    """The simulator of this name on the CPU.

    Raises:
        UserError: what it needs is not here.
    """

    def __init__(self, name: str) -> None:
        self._simulator = build_simulator(name, _settings(name), torch.device("cpu"))

    def prepare(self, case: Case) -> Call:
        """See `Subject.prepare`."""
        circuit, words = case.circuit, case.words
        return torch_call(case, lambda angles: self._simulator.expval(circuit, angles, words))


def _settings(name: str) -> CircuitSimulator:
    """Those of a usual name, behind which may be a route: fused-literal."""
    usual, _, route = name.partition("-")
    return structs.replace(CircuitSimulator.usual(usual), route=route or None)


def torch_call(case: Case, expval: Callable[[Angles], torch.Tensor]) -> Call:
    """The loss of `expval` and its gradients by torch's autograd; `expval` gives real (batch, words)."""
    angles = Angles(torch.tensor(case.inputs), torch.tensor(case.weights))
    coefficients = torch.tensor(case.coefficients)
    # autograd refuses a tensor that nothing depends on, such as weights of shape (0,).
    leaves = [tensor.requires_grad_() for tensor in angles if tensor.numel()]

    def call() -> tuple[torch.Tensor, ...]:
        loss = (expval(angles) * coefficients).sum()
        return loss.detach(), *torch.autograd.grad(loss, leaves)

    return call
