"""The wrapper of models that treat every time step of a series separately: all steps are one batch.

Linear layers that follow each other are evaluated as one: the embedding and the core's first layer, and, since a sum
over time is linear too, what follows the circuits only after the sum. Parameters and results are those of the layers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

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
