"""Adam, gradient descent and the plateau schedule, on torch's functional kernels.

The classes of torch.optim import the compiler (torch._dynamo) at their first step, which takes two seconds: longer
than most runs train. The functional Adam does not, and does the same arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.adam import adam

from ketscale.config import Protocol

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class Adam:
    """Adam with L2 weight decay (Kingma, Ba, arXiv 1412.6980); the same as torch.optim.Adam with its defaults."""

    def __init__(self, parameters: Sequence[nn.Parameter], learning_rate: float, weight_decay: float) -> None:
        self.parameters: list[torch.Tensor] = list(parameters)
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self._fused = not any(p.is_complex() for p in self.parameters)
        self._means = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]
        self._squares = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]
        # The fused kernels need one counter per parameter, on its device.
        self._steps = [torch.zeros((), device=p.device if self._fused else "cpu") for p in self.parameters]

    def clear_gradients(self) -> None:
        """Forget the gradients of the last step."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter by its gradient."""
        adam(
            self.parameters,
            [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters],
            self._means,
            self._squares,
            [],
            self._steps,
            fused=self._fused,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
            eps=EPSILON,
            maximize=False,
            has_complex=not self._fused,
        )

    def state_dict(self) -> dict[str, Any]:
        """Moments, step counts and learning rate."""
        return {
            "learning_rate": self.learning_rate,
            "means": self._means,
            "squares": self._squares,
            "steps": self._steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.learning_rate = state["learning_rate"]
        for mine, theirs in (
            (self._means, state["means"]),
            (self._squares, state["squares"]),
            (self._steps, state["steps"]),
        ):
            for tensor, value in zip(mine, theirs, strict=True):
                tensor.copy_(value)


class GradientDescent:
    """theta <- theta - learning rate * gradient, with L2 weight decay added to the gradient."""

    def __init__(self, parameters: Sequence[nn.Parameter], learning_rate: float, weight_decay: float) -> None:
        self.parameters: list[torch.Tensor] = list(parameters)
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay

    def clear_gradients(self) -> None:
        """Forget the gradients of the last step."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter by its gradient."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                gradient = parameter.grad
                if self.weight_decay:
                    gradient = gradient + self.weight_decay * parameter
                parameter.sub_(gradient, alpha=self.learning_rate)

    def state_dict(self) -> dict[str, Any]:
        """The learning rate."""
        return {"learning_rate": self.learning_rate}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.learning_rate = state["learning_rate"]


Optimiser = Adam | GradientDescent


def create(protocol: Protocol, parameters: Sequence[nn.Parameter]) -> Optimiser:
    """The optimiser of a protocol. For l-bfgs, which has its own loop (see `lbfgs`), it is never stepped."""
    kind = GradientDescent if protocol.optimiser == "gradient-descent" else Adam
    return kind(parameters, protocol.learning_rate, protocol.weight_decay)


class Plateau:
    """Multiplies the learning rate by `factor` when a loss has not improved for more than `patience` epochs.

    A loss has improved if it is lower than the best so far by more than 1e-4 of it, as in torch's ReduceLROnPlateau.
    """

    THRESHOLD = 1e-4

    def __init__(self, optimiser: Optimiser, factor: float, patience: int) -> None:
        self.optimiser, self.factor, self.patience = optimiser, factor, patience
        self._best, self._waited = math.inf, 0

    def step(self, loss: float) -> None:
        """Take the loss of an epoch into account."""
        if loss < self._best * (1 - self.THRESHOLD):
            self._best, self._waited = loss, 0
            return
        self._waited += 1
        if self._waited > self.patience:
            self.optimiser.learning_rate *= self.factor
            self._waited = 0

    def state_dict(self) -> dict[str, Any]:
        """The best loss and the number of epochs since."""
        return {"best": self._best, "waited": self._waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self._best, self._waited = state["best"], state["waited"]
