"""Clipping, Adam, gradient descent and the plateau schedule.

The classes of torch.optim import the compiler (torch._dynamo) at their first step, which takes two seconds: longer
than most runs train. The fused kernel that they call, called here on a GPU, does not. On a CPU our own is faster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ketscale.config import Protocol
from ketscale.private_torch import fused_adam_step
from ketscale.training import updates
from ketscale.training.flat import Flat
from ketscale.training.updates import TINY

BETAS = (0.9, 0.999)
EPSILON = 1e-8


def _given(learning_rate: float | None) -> float:
    """The learning rate of a protocol, which has one if it has steps."""
    assert learning_rate is not None
    return learning_rate


class _Descent:
    """Updates the members of a `Flat`, each as its protocol says.

    Attributes:
        learning_rates, weight_decays: those of each member.
        clip_norms: the norm that its gradient is clipped to, None for any; as torch.nn.utils.clip_grad_norm_ does.
    """

    def __init__(self, flat: Flat, protocols: Sequence[Protocol]) -> None:
        self.flat = flat
        self.learning_rates = [_given(protocol.learning_rate) for protocol in protocols]
        self.weight_decays = [protocol.weight_decay for protocol in protocols]
        self.clip_norms = [protocol.clip_norm for protocol in protocols]

    def _clip(self, norms: torch.Tensor) -> None:
        """Clip the gradients, whose norms these are."""
        limits = [limit or math.inf for limit in self.clip_norms]
        if min(limits) == math.inf:
            return
        # A captured CUDA graph cannot copy from the host, but it has numbers.
        alike = len(set(limits)) == 1
        scales = (norms + TINY).reciprocal_().mul_(limits[0] if alike else norms.new_tensor(limits))
        self.flat.gradients.mul_(scales.clamp_(max=1.0).unsqueeze(1))


class Adam(_Descent):
    """Adam with L2 weight decay (Kingma, Ba, arXiv 1412.6980); the same as torch.optim.Adam with its defaults."""

    def __init__(self, flat: Flat, protocols: Sequence[Protocol]) -> None:
        super().__init__(flat, protocols)
        self._means = torch.zeros_like(flat.values)
        self._squares = torch.zeros_like(flat.values)
        # torch's kernels need one counter per row, on its device.
        self._steps = torch.zeros(len(flat.values), device=flat.values.device)

    @property
    def _rows(self) -> tuple[torch.Tensor, ...]:
        """What is updated, and the gradients, in the order of the kernels."""
        return self.flat.values, self.flat.gradients, self._means, self._squares

    def step(self, norms: torch.Tensor) -> None:
        """Update every member's values by its gradients, whose norms (members,) these are."""
        self._steps += 1
        # In either case a row gets the same numbers whatever other rows there are.
        if self.flat.values.is_cpu:
            updates.adam(self._rows, norms, self._settings())
        else:
            self._step_by_torch(norms)

    def _settings(self) -> list[float]:
        """What `updates.adam` takes for each row."""
        mean, square = BETAS
        settings: list[float] = []
        for member, step in enumerate(self._steps.tolist()):
            rate = self.learning_rates[member] / (1 - mean**step)
            root = (1 - square**step) ** -0.5
            limit = self.clip_norms[member] or math.inf
            settings += (limit, self.weight_decays[member], mean, square, rate, root, EPSILON)
        return settings

    @torch.no_grad()
    def _step_by_torch(self, norms: torch.Tensor) -> None:
        self._clip(norms)
        for (rate, decay), members in _alike(self.learning_rates, self.weight_decays).items():
            values, gradients, means, squares, steps = (
                [rows[member] for member in members] for rows in (*self._rows, self._steps)
            )
            fused_adam_step(
                values,
                gradients,
                means,
                squares,
                [],
                steps,
                amsgrad=False,
                beta1=BETAS[0],
                beta2=BETAS[1],
                lr=rate,
                weight_decay=decay,
                eps=EPSILON,
                maximize=False,
            )

    def state_dict(self, member: int = 0) -> dict[str, Any]:
        """A member's moments (numbers,), number of steps and learning rate; copies."""
        return {
            "learning_rate": self.learning_rates[member],
            "means": self._means[member].clone(),
            "squares": self._squares[member].clone(),
            "steps": self._steps[member].clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any], member: int = 0) -> None:
        """Go on from a member's `state_dict`, which may come from a group of another size."""
        self.learning_rates[member] = state["learning_rate"]
        for mine, theirs in (
            (self._means, state["means"]),
            (self._squares, state["squares"]),
            (self._steps, state["steps"]),
        ):
            if mine[member].shape != theirs.shape:
                raise ValueError(f"moments of {list(theirs.shape)} numbers for {list(mine[member].shape)}")
            mine[member].copy_(theirs)


class GradientDescent(_Descent):
    """theta <- theta - learning rate * gradient, with L2 weight decay added to the gradient."""

    @torch.no_grad()
    def step(self, norms: torch.Tensor) -> None:
        """Update every member's values by its gradients, whose norms (members,) these are."""
        self._clip(norms)
        rows = zip(
            self.flat.values, self.flat.gradients, self.learning_rates, self.weight_decays, strict=True
        )
        for values, gradients, rate, decay in rows:
            values.sub_(gradients + decay * values if decay else gradients, alpha=rate)

    def state_dict(self, member: int = 0) -> dict[str, Any]:
        """A member's learning rate."""
        return {"learning_rate": self.learning_rates[member]}

    def load_state_dict(self, state: Mapping[str, Any], member: int = 0) -> None:
        """Go on from a member's `state_dict`."""
        self.learning_rates[member] = state["learning_rate"]


Optimiser = Adam | GradientDescent


def create(protocols: Sequence[Protocol], flat: Flat) -> Optimiser:
    """The optimiser of the members' protocols, which have the same `optimiser`.

    For l-bfgs, which has its own loop (see `lbfgs`), it is never stepped.
    """
    kind = GradientDescent if protocols[0].optimiser == "gradient-descent" else Adam
    return kind(flat, protocols)


def _alike(*settings: Sequence[float]) -> dict[tuple[float, ...], list[int]]:
    """The members that share their settings."""
    found: dict[tuple[float, ...], list[int]] = {}
    for member, values in enumerate(zip(*settings, strict=True)):
        found.setdefault(values, []).append(member)
    return found


class PlateauSchedule:
    """Lowers a learning rate to `factor` times it when a loss has not improved for more than `patience` epochs.

    A loss has improved if it is lower than the best so far by more than 1e-4 of it, as in torch's ReduceLROnPlateau.
    """

    THRESHOLD = 1e-4

    def __init__(self, factor: float, patience: int) -> None:
        self.factor, self.patience = factor, patience
        self._best, self._waited = math.inf, 0

    def step(self, loss: float) -> float:
        """Take the loss of an epoch into account; what to multiply the learning rate by from now on."""
        if loss < self._best * (1 - self.THRESHOLD):
            self._best, self._waited = loss, 0
            return 1.0
        self._waited += 1
        if self._waited <= self.patience:
            return 1.0
        self._waited = 0
        return self.factor

    def state_dict(self) -> dict[str, Any]:
        """The best loss and the number of epochs since."""
        return {"best": self._best, "waited": self._waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self._best, self._waited = state["best"], state["waited"]
