"""The wrapper of models that treat every time step of a series separately: all steps are one batch; and their weighted sums.

Linear layers that follow each other are evaluated as one: the embedding and the core's first layer, and, since a sum
over time is linear too, what follows the circuits only after the sum. Parameters and results are those of the layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn

from ketscale.engines.circuits.simulator import Simulator
from ketscale.layers.complex_weights import ComplexWeights
from ketscale.layers.dropout import SampleDropout

# (rows, k) -> (batch, k), the sum of a series' rows.
OverTime = Callable[..., torch.Tensor]


class AngleHead(nn.Module):
    """Rows of numbers as a circuit's angles: (rows, P) -> (rows, P) angles in radians: sigmoid(x) * turn plus P learned offsets.

    x: rows that have passed `linear`, a layer (P, P) that the caller joins with the one before it.
    """

    def __init__(self, width: int, turn: float, offsets: torch.Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.offsets = nn.Parameter(offsets)
        self.turn = turn

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The angles."""
        return torch.add(self.offsets, torch.sigmoid(x), alpha=self.turn)


class Core(nn.Module):
    """Circuits for every row, and what follows them; its `forward(entered, over_time)` gives (batch, values).

    entered: rows (rows, P) that have passed the entrance. over_time: see `OverTime`.
    """

    angles: AngleHead

    @property
    def entrance(self) -> nn.Linear:
        """The first layer, (rows, width) -> (rows, P), which the caller evaluates: the one before the angles."""
        return self.angles.linear


class PerStep(nn.Module):
    """Series (batch, channels, steps) -> logits (batch, outputs).

    Every step is a row of channels. It passes dropout, Linear(channels, width) and the core. The steps are summed, and a
    last linear layer gives the logits.

    CORE: the core's class, made of qubits, layers and simulator; it takes rows of `width` numbers and gives 3 for each
    qubit. OVER_TIME: the class of the sum over time, (batch, steps, k) -> (batch, k), made of the number of steps.
    inputs: channels and steps.
    """

    CORE: ClassVar[type[Any]]
    OVER_TIME: ClassVar[type[Any]]

    def __init__(
        self,
        qubits: int = 6,
        layers: int = 2,
        simulator: Simulator | str | None = None,
        inputs: tuple[int, int] = (64, 249),
        outputs: int = 2,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        channels, steps = inputs
        # In this order, since each draws its first weights.
        core, over_time = self.CORE(qubits, layers, simulator), self.OVER_TIME(steps)
        self.dropout = SampleDropout(dropout)
        self.embed = nn.Linear(channels, core.width)
        self.core = core
        self.over_time = over_time
        self.classifier = nn.Linear(3 * qubits, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of series."""
        batch, _, steps = x.shape

        def over_time(values: torch.Tensor, *last: nn.Linear) -> torch.Tensor:
            summed: torch.Tensor = self.over_time(values.unflatten(0, (batch, steps)), *last)
            return summed

        first, second = self.embed, self.core.entrance
        weight = second.weight @ first.weight
        bias = torch.addmv(second.bias, second.weight, first.bias)
        # A product for each sample takes steps for rows without a transposed copy of the data.
        entered = torch.baddbmm(bias, self.dropout(x).transpose(1, 2), weight.T.expand(batch, -1, -1))
        return self.classifier(self.core(entered.flatten(0, 1), over_time))


class ComplexSum(nn.Module):
    """Steps (batch, steps, m) -> modulus (batch, m) of their sum with weights w / sum |w|.

    The weights w are complex; their real and imaginary parts start uniform in [0, 1).

    last: a linear layer of every step, if there is one. It passes the sum instead, which is the same.
    """

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.weights = ComplexWeights(torch.rand(steps), torch.rand(steps))

    def forward(self, x: torch.Tensor, last: nn.Linear | None = None) -> torch.Tensor:
        """The modulus of the weighted sum."""
        pairs = self.weights.pairs
        scaled = pairs / torch.linalg.vector_norm(pairs, dim=1).sum()
        # One real product for both parts, (2, steps) times (steps, m) for each sample; `@` would copy x.
        parts = scaled.T.expand(len(x), -1, -1).bmm(x)
        if last is not None:
            # The weights of the steps do not add up to 1, so neither do those of the biases.
            parts = nn.functional.linear(parts, last.weight) + scaled.sum(0)[:, None] * last.bias
        # Over parts that lie apart torch takes twenty times as long.
        return torch.linalg.vector_norm(parts.transpose(1, 2).contiguous(), dim=2)


class SoftmaxSum(nn.Module):
    """Steps (batch, steps, m) -> their mean (batch, m) with softmax weights, which start equal."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.full((steps,), 1 / steps))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The weighted mean."""
        return self.weights.softmax(0) @ x


class Mixture(nn.Module):
    """Mixes three branches' expectation values with weights |w| / sum |w|, between linear layers.

    Each branch has a Linear(m, m) of its own before the mixing; one more follows it. The w are real and start at 1.
    """

    def __init__(self, values: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(values, values) for _ in range(3))
        self.weights = nn.Parameter(torch.ones(3))
        self.out = nn.Linear(values, values)

    def forward(self, *branches: torch.Tensor) -> torch.Tensor:
        """(rows, m) from three branches (rows, m); a branch that does not depend on the row may be (1, m)."""
        weights = self.weights.abs() / self.weights.abs().sum()
        mixed = sum(
            weight * linear(branch)
            for weight, linear, branch in zip(weights, self.branches, branches, strict=True)
        )
        return self.out(mixed)
