"""Dropout whose mask is a function of (seed, step, sample), so that it does not depend on the number of ranks."""

from __future__ import annotations

import torch
from torch import nn

from ketscale.engines import randomness
from ketscale.engines.members import at_once
from ketscale.layers import masks

MASKS = randomness.RandomStream("dropout")
UNNAMED = "a dropout has no masks of its own: call name_dropouts(model) first"


class SampleDropout(nn.Module):
    """Dropout for tensors (samples, ...), with masks of its own for each instance that `name_dropouts` has named.

    Outside `keyed` (in a notebook, say) it is torch's own dropout.

    Raises:
        RuntimeError: in training mode, it is called inside `keyed` before `name_dropouts`.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.number: int | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Zero each entry with probability p in training mode and scale the rest by 1 / (1 - p)."""
        if not self.training or self.p == 0:
            return x
        drawn = randomness.current()
        if drawn is None:
            return nn.functional.dropout(x, self.p)
        if self.number is None:
            raise RuntimeError(UNNAMED)
        number, (seed, step, samples, _) = self.number, drawn
        if isinstance(seed, int):
            return masks.times(x, samples, [MASKS.key(seed, step, number)], self.p)

        def of_members(x: torch.Tensor, samples: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
            keys = [MASKS.key(seed, step, number) for seed in seeds.tolist()]
            return masks.times(x, samples, keys, self.p)

        return at_once(of_members, x, samples, seed)


def name_dropouts(model: nn.Module) -> None:
    """Give every `SampleDropout` of a whole model masks of its own, derived from its path in the model ("head.2")."""
    for path, module in model.named_modules():
        if isinstance(module, SampleDropout):
            module.number = randomness.number_of(path)
