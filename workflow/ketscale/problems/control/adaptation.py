"""Adaptation to tasks by gradient steps, and the surrogate losses whose gradients are meta-gradients.

First- and second-order MAML: Finn, Abbeel and Levine, arXiv:1703.03400. Reptile: Nichol, Achiam and Schulman,
arXiv:1803.02999, whose gradient is the difference of the weights before and after, over the inner rate. All are sums
over tasks, so ranks that share the tasks compute the same.

All tensors may have a leading dimension, as in `policy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from ketscale.problems.control.policy import Layers, Network, Update, linear
from ketscale.problems.control.settings import Adaptation

# The losses (n,) of tasks' controls (n, segments, controls); each depends on its own task alone.
Losses = Callable[[torch.Tensor], torch.Tensor]


class Inner(NamedTuple):
    """The inner loop: the number of gradient steps on each task's own weights, and their rate."""

    steps: int
    rate: float


def stepped(
    network: Network,
    layers: Layers,
    tasks: torch.Tensor,
    updates: Sequence[Update],
    rate: float,
    losses: Losses,
    differentiable: bool = False,
) -> list[Update]:
    """The tasks' updates with one more gradient step; if `differentiable`, they can be differentiated by the layers."""
    with torch.enable_grad():
        found = network.evaluated(layers, tasks, updates, rate)
        slopes = torch.autograd.grad(losses(found.controls).sum(), found.outputs, create_graph=differentiable)
    inputs = found.inputs if differentiable else [part.detach() for part in found.inputs]
    updates = updates or [Update.none(*pair) for pair in zip(inputs, slopes, strict=True)]
    return [update.then(*pair) for update, *pair in zip(updates, inputs, slopes, strict=True)]


def meta_loss(
    kind: Adaptation,
    network: Network,
    live: Layers,
    tasks: torch.Tensor,
    inner: Inner,
    support: Losses,
    query: Losses,
) -> torch.Tensor:
    """The sum over tasks (n, inputs) of the query losses after adaptation, whose gradient is the sum of meta-gradients.

    fomaml: the query loss's gradient at the adapted weights. maml: its gradient by the weights before adaptation.
    reptile: the sum of the inner gradients. multi-task: there is no adaptation. live: the network's layers.
    """
    fixed = [(weight.detach(), bias.detach()) for weight, bias in live]
    updates: list[Update] = []
    for _ in range(0 if kind == "multi-task" else inner.steps):
        updates = stepped(
            network, live if kind == "maml" else fixed, tasks, updates, inner.rate, support, kind == "maml"
        )
    if kind != "reptile":
        # The updates are constants but for maml, so the gradient passes through the adapted weights unchanged.
        return query(network.evaluated(live, tasks, updates, inner.rate).controls).sum(-1)
    with torch.no_grad():
        loss = query(network.evaluated(fixed, tasks, updates, inner.rate).controls).sum(-1)
    along = torch.stack(
        [
            (linear(update.inputs.flatten(-3, -2), *layer) * update.slopes.flatten(-3, -2)).sum((-2, -1))
            for update, layer in zip(updates, live, strict=True)
        ]
    ).sum(0)
    return loss + (along - along.detach())


def course(
    network: Network, live: Layers, tasks: torch.Tensor, inner: Inner, support: Losses
) -> Iterator[torch.Tensor]:
    """The controls (n, segments, controls) after 0, 1, ... steps of adaptation, without gradients."""
    layers = [(weight.detach(), bias.detach()) for weight, bias in live]
    updates: list[Update] = []
    for step in range(inner.steps + 1):
        if step:
            updates = stepped(network, layers, tasks, updates, inner.rate, support)
        with torch.no_grad():
            controls = network.evaluated(layers, tasks, updates, inner.rate).controls
        yield controls
