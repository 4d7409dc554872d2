"""The wrapper of models that treat every time step of a series separately: all steps are one batch.

Linear layers that follow each other are evaluated as one: the embedding and the core's first layer, and, since a sum
over time is linear too, what follows the circuits only after the sum. Parameters and results are those of the layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn

from ketscale.engines.circuits.simulator import Simulator
from ketscale.layers.dropout import SampleDropout
from ketscale.problems.shapes import check_inputs

# (rows, k) -> (batch, k), the sum of a series' rows.
OverTime = Callable[..., torch.Tensor]


class Core(nn.Module):
    """Circuits for every row, and what follows them."""

    @property
    def entrance(self) -> nn.Linear:
        """The first layer, (rows, width) -> (rows, P), which the caller evaluates."""
        raise NotImplementedError

    def forward(self, entered: torch.Tensor, over_time: OverTime) -> torch.Tensor:
        """(batch, values) of rows (rows, P) that have passed the entrance."""
        raise NotImplementedError


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


class PerStep(nn.Module):
    """Series (batch, channels, steps) -> logits (batch, outputs).

    Every step is a row of channels. It passes dropout, Linear(channels, width) and `core`. `over_time` sums the
    steps, and a last linear layer gives the logits.

    Args:
        inputs: channels and steps.
        core: takes rows of `width` numbers and gives `values`.
        over_time: (batch, steps, k) -> (batch, k).

    Raises:
        UserError: when called, the inputs have another shape than (batch, *inputs).
    """

    def __init__(
        self,
        inputs: tuple[int, int],
        width: int,
        core: Core,
        over_time: nn.Module,
        values: int,
        outputs: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.inputs = inputs
        self.dropout = SampleDropout(dropout)
        self.embed = nn.Linear(inputs[0], width)
        self.core = core
        self.over_time = over_time
        self.classifier = nn.Linear(values, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of series."""
        check_inputs(self, x, *self.inputs)
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


class AnglesPerStep(PerStep):
    """`PerStep` of a core whose rows become the angles of its circuits.

    CORE: the core's class, made of qubits, layers, simulator and literal. OVER_TIME: the class of the sum over time.
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
        literal: bool = False,
    ) -> None:
        core = self.CORE(qubits, layers, simulator, literal)
        super().__init__(inputs, core.width, core, self.OVER_TIME(inputs[1]), 3 * qubits, outputs, dropout)
