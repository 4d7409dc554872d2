"""Models whose controls are a network's, and can be adapted to each task of a batch at once: `policy` and `robust_grape`.

A task's inner steps change the weights of each layer by a sum of outer products, one a step, since the task is one
input. So they are kept as two vectors a step and layer (`Update`), never as a copy of the weights.

All tensors may have a leading dimension of runs that train together, each with its own weights and tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import nn
from torch.nn import functional


class Update(NamedTuple):
    """The change of a layer by tasks' inner steps: the sum over steps k of `slopes` (n, k, out) times `inputs` (n, k, in).

    The layer's weight has changed by minus the rate times this sum, its bias by minus the rate times the summed slopes.
    """

    inputs: torch.Tensor
    slopes: torch.Tensor

    def applied(self, outputs: torch.Tensor) -> torch.Tensor:
        """Its contribution to the layer's output for inputs (n, in), divided by minus the rate."""
        weights = self.inputs @ outputs[..., None] + 1
        return (weights.mT @ self.slopes)[..., 0, :]

    @classmethod
    def none(cls, inputs: torch.Tensor, slopes: torch.Tensor) -> Update:
        """The update before any step, of a layer with such inputs (n, in) and slopes (n, out)."""
        return cls(*(part.new_empty(*part.shape[:-1], 0, part.shape[-1]) for part in (inputs, slopes)))

    def then(self, inputs: torch.Tensor, slopes: torch.Tensor) -> Update:
        """The update with one more step."""
        return Update(
            *(
                torch.cat([old, new[..., None, :]], -2)
                for old, new in zip(self, (inputs, slopes), strict=True)
            )
        )


class Evaluated(NamedTuple):
    """Controls (n, segments, controls) of tasks, with the inputs and outputs (before tanh) of each layer, (n, width)."""

    controls: torch.Tensor
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]


Layers = Sequence[tuple[torch.Tensor, torch.Tensor]]


def linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """A layer's outputs (n, out) for inputs (n, in)."""
    if weight.ndim == 2:
        return functional.linear(inputs, weight, bias)
    return torch.baddbmm(bias[..., None, :], inputs, weight.mT)


class Network(nn.Module):
    """Layers with tanh between them, whose outputs are the controls in units of `amplitude`, clamped to `limit`."""

    def __init__(self, segments: int, controls: int, amplitude: float, limit: float) -> None:
        super().__init__()
        self.shape = (segments, controls)
        self.amplitude, self.limit = amplitude, limit

    def layers(self) -> Layers:
        """Weight (out, in) and bias (out,) of each layer."""
        raise NotImplementedError

    def features(self, tasks: torch.Tensor) -> torch.Tensor:
        """The first layer's inputs for tasks (n, inputs)."""
        raise NotImplementedError

    def forward(self, tasks: torch.Tensor) -> torch.Tensor:
        """Controls (n, segments, controls) for tasks (n, inputs), before any adaptation."""
        return self.evaluated(self.layers(), tasks).controls

    def evaluated(
        self, layers: Layers, tasks: torch.Tensor, updates: Sequence[Update] = (), rate: float = 0.0
    ) -> Evaluated:
        """The controls of tasks (n, inputs) with these layers and, for each layer, the tasks' own updates.

        If gradients are enabled, the controls can be differentiated by the layers' outputs, even if the layers need no gradient.
        """
        value, inputs, outputs = self.features(tasks), [], []
        for number, (weight, bias) in enumerate(layers):
            value = value.tanh() if number else value
            inputs.append(value)
            value = linear(value, weight, bias)
            if updates:
                value = value - rate * updates[number].applied(inputs[-1])
            if torch.is_grad_enabled() and not value.requires_grad:
                value.requires_grad_()
            outputs.append(value)
        amplitudes = (self.amplitude * value).clamp(-self.limit, self.limit)
        return Evaluated(amplitudes.unflatten(-1, self.shape), inputs, outputs)


class Policy(Network):
    """Tasks (n, inputs) -> 128 -> 128 -> 128 -> controls (n, segments, controls), with tanh between the layers.

    The weights are orthogonal with gain 0.5 at the start, the biases 0: the published network at 20 segments and 2
    controls, with 38,696 trainable parameters.

    inputs: raw: a task's values as they are, as published; normalised: scaled from their ranges `low` to `high` to -1..1.
        amplitude: of the controls, for an output of 1. limit: of their magnitude.
    """

    def __init__(
        self,
        segments: int = 20,
        inputs: Literal["raw", "normalised"] = "raw",
        low: Sequence[float] = (0.5, 1e-3, 100.0),
        high: Sequence[float] = (2.0, 1e-2, 1000.0),
        controls: int = 2,
        amplitude: float = 2.0,
        limit: float = 10.0,
        width: int = 128,
        depth: int = 3,
    ) -> None:
        super().__init__(segments, controls, amplitude, limit)
        self.normalised = inputs == "normalised"
        for name, values in (("low", low), ("high", high)):
            self.register_buffer(name, torch.tensor(list(values)), persistent=False)
        widths = [len(low), *[width] * depth, segments * controls]
        weights = [0.5 * _orthogonal(after, before) for before, after in pairwise(widths)]
        self.weights = nn.ParameterList(map(nn.Parameter, weights))
        self.biases = nn.ParameterList(torch.zeros(width) for width in widths[1:])

    def layers(self) -> Layers:
        """See `Network.layers`."""
        return list(zip(self.weights, self.biases, strict=True))

    def features(self, tasks: torch.Tensor) -> torch.Tensor:
        """See `Network.features`."""
        if not self.normalised:
            return tasks
        low, high = self.get_buffer("low"), self.get_buffer("high")
        return 2 * (tasks - low) / (high - low) - 1


def _orthogonal(rows: int, columns: int) -> torch.Tensor:
    """A random orthogonal matrix, whatever the number of threads; those of `nn.init.orthogonal_` depend on it.

    The rounding of the QR factorisation depends on it. In double precision it does not reach the digits that are kept.
    """
    normal = torch.randn(rows, columns)
    q, r = torch.linalg.qr((normal if rows >= columns else normal.T).double())
    q = q * r.diagonal().sign()
    return (q if rows >= columns else q.T).to(normal.dtype).contiguous()


class RobustPulse(Network):
    """One pulse for all tasks: a layer without inputs, whose bias (segments * controls,) starts from U(-1, 1)."""

    def __init__(
        self, segments: int = 20, controls: int = 2, amplitude: float = 2.0, limit: float = 10.0
    ) -> None:
        super().__init__(segments, controls, amplitude, limit)
        self.pulse = nn.Parameter(2 * torch.rand(segments * controls) - 1)

    def layers(self) -> Layers:
        """See `Network.layers`."""
        return [(self.pulse.new_empty(len(self.pulse), 0), self.pulse)]

    def features(self, tasks: torch.Tensor) -> torch.Tensor:
        """Nothing, (n, 0)."""
        return tasks[..., :0]
