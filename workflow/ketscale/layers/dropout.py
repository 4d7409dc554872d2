"""Dropout whose mask is a function of (seed, step, sample), so that it does not depend on the number of ranks."""

from __future__ import annotations

from collections.abc import Sequence

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
        current = randomness.current()
        if current is None:
            return nn.functional.dropout(x, self.p)
        if self.number is None:
            raise RuntimeError(UNNAMED)
        number, p, (seed, step, samples, _) = self.number, self.p, current

        def masked(x: torch.Tensor, samples: torch.Tensor, seeds: Sequence[int]) -> torch.Tensor:
            keys = [MASKS.key(each, step, number) for each in seeds]
            columns = x.numel() // max(1, samples.numel())
            return x * masks.scaled(keys, samples, columns, p, x.dtype).reshape(x.shape)

        if isinstance(seed, int):
            return masked(x, samples, [seed])
        return at_once(lambda x, samples, seeds: masked(x, samples, seeds.tolist()), x, samples, seed)


def name_dropouts(model: nn.Module) -> None:
    """Give every `SampleDropout` of a whole model masks of its own, derived from its path in the model ("head.2")."""
    for path, module in model.named_modules():
        if isinstance(module, SampleDropout):
            module.number = randomness.number_of(path)
