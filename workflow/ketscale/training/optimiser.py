"""Clipping, Adam, gradient descent and schedules.

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
THRESHOLD = 1e-4


class _Descent:
    """Updates the members of a `Flat`, each as its protocol says.

    Attributes:
        learning_rates, weight_decays, momenta: those of each member.
        clip_norms: the norm that its gradient is clipped to, None for any; as torch.nn.utils.clip_grad_norm_ does.
        memory: what it keeps from step to step by name, a row for each member.
    """

    def __init__(self, flat: Flat, protocols: Sequence[Protocol]) -> None:
        self.flat = flat
        self.learning_rates = [protocol.learning_rate or 0.0 for protocol in protocols]
        self.weight_decays = [protocol.weight_decay for protocol in protocols]
        self.clip_norms = [protocol.clip_norm for protocol in protocols]
        self.momenta = [protocol.momentum for protocol in protocols]
        self.memory: dict[str, torch.Tensor] = {}

    def state_dict(self, member: int = 0) -> dict[str, Any]:
        """A member's learning rate and memory; copies."""
        return {
            "learning_rate": self.learning_rates[member],
            **{name: rows[member].clone() for name, rows in self.memory.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any], member: int = 0) -> None:
        """Go on from a member's `state_dict`, which may come from a group of another size."""
        self.learning_rates[member] = state["learning_rate"]
        for name, rows in self.memory.items():
            if rows[member].shape != state[name].shape:
                raise ValueError(
                    f"{name} of {list(state[name].shape)} numbers for {list(rows[member].shape)}"
                )
            rows[member].copy_(state[name])

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
        self.memory = {"means": self._means, "squares": self._squares, "steps": self._steps}

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
        """The arguments of `updates.adam` for each row."""
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
        for member, (rate, decay) in enumerate(zip(self.learning_rates, self.weight_decays, strict=True)):
            values, gradients, means, squares, steps = ([rows[member]] for rows in (*self._rows, self._steps))
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


class AdamW(Adam):
    """Adam whose weight decay passes by the moments (Loshchilov, Hutter, arXiv 1711.05101); the same as torch.optim.AdamW."""

    def __init__(self, flat: Flat, protocols: Sequence[Protocol]) -> None:
        super().__init__(flat, protocols)
        self._decays, self.weight_decays = self.weight_decays, [0.0] * len(protocols)

    @torch.no_grad()
    def step(self, norms: torch.Tensor) -> None:
        """Update every member's values by its gradients, whose norms (members,) these are."""
        for values, rate, decay in zip(self.flat.values, self.learning_rates, self._decays, strict=True):
            if decay:
                values.mul_(1 - rate * decay)
        super().step(norms)


class GradientDescent(_Descent):
    """Steps along a velocity, momentum * velocity + gradient, with L2 weight decay in the gradient; as torch.optim.SGD."""

    def __init__(self, flat: Flat, protocols: Sequence[Protocol]) -> None:
        super().__init__(flat, protocols)
        if any(self.momenta):
            self.memory["velocities"] = torch.zeros_like(flat.values)

    @torch.no_grad()
    def step(self, norms: torch.Tensor) -> None:
        """Update every member's values by its gradients, whose norms (members,) these are."""
        self._clip(norms)
        settings = zip(self.learning_rates, self.weight_decays, self.momenta, strict=True)
        for member, (rate, decay, momentum) in enumerate(settings):
            values, step = self.flat.values[member], self.flat.gradients[member]
            if decay:
                step = step + decay * values
            if self.memory:
                step = self.memory["velocities"][member].mul_(momentum).add_(step)
            values.sub_(step, alpha=rate)


Optimiser = Adam | GradientDescent


def create(protocols: Sequence[Protocol], flat: Flat) -> Optimiser:
    """The optimiser of the members' protocols, which have the same `optimiser`.

    For l-bfgs, which has its own loop (see `lbfgs`), it is never stepped.
    """
    kinds: dict[str, type[Optimiser]] = {
        "adamw": AdamW,
        "sgd": GradientDescent,
        "gradient-descent": GradientDescent,
    }
    return kinds.get(protocols[0].optimiser, Adam)(flat, protocols)


class Schedule:
    """What a learning rate is after each epoch: on a plateau as torch's ReduceLROnPlateau has it (a loss has improved if it
    is lower than the best so far by more than `THRESHOLD` of it), or along half a cosine as CosineAnnealingLR.

    Attributes:
        state: the best loss and the number of epochs since, from which a resumed training continues.
    """

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self.state: dict[str, float] = {"best": math.inf, "waited": 0}

    def step(self, rate: float, epoch: int, loss: float) -> float:
        """The learning rate after an epoch, with this rate before and this loss on validation data."""
        plateau, cosine = self._protocol.plateau, self._protocol.cosine
        if cosine and self._protocol.epochs:
            share = (1 + math.cos(math.pi * (epoch + 1) / self._protocol.epochs)) / 2
            return cosine.minimum + ((self._protocol.learning_rate or 0.0) - cosine.minimum) * share
        if loss < self.state["best"] * (1 - THRESHOLD):
            self.state = {"best": loss, "waited": 0}
            return rate
        self.state["waited"] += 1
        if not plateau or self.state["waited"] <= plateau.patience:
            return rate
        self.state["waited"] = 0
        return rate * plateau.factor
