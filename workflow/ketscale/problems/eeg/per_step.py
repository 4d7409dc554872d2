"""The wrapper of models that treat every time step of a series separately: all steps are one batch."""

from __future__ import annotations

import torch
from torch import nn

from ketscale.problems.dropout import SampleDropout
from ketscale.problems.shapes import check_inputs


class PerStep(nn.Module):
    """Series (batch, channels, steps) -> logits (batch, outputs).

    Every step is a row of channels. It passes dropout, Linear(channels, width) and `core`. `over_time` sums the
    steps, and a last linear layer gives the logits.

    Args:
        inputs: channels and steps.
        core: (rows, width) -> (rows, values).
        over_time: (batch, steps, values) -> (batch, values).

    Raises:
        UserError: when called, the inputs have another shape than (batch, *inputs).
    """

    def __init__(
        self,
        inputs: tuple[int, int],
        width: int,
        core: nn.Module,
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
        rows = self.dropout(x).transpose(1, 2).flatten(0, 1)
        values = self.core(self.embed(rows))
        return self.classifier(self.over_time(values.unflatten(0, (batch, steps))))
