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
        drawn = randomness.current()
        if drawn is None:
            return nn.functional.dropout(x, self.p)
        if self.number is None:
            raise RuntimeError(UNNAMED)
        return _dropped(x, self.p, self.number, drawn)


def _dropped(x: torch.Tensor, p: float, number: int, drawn: randomness.DrawnFor) -> torch.Tensor:
    """Each entry of x (samples, ...) is 0 with probability p; number: distinguishes dropouts."""
    seed, step, samples, _ = drawn

    def masked(x: torch.Tensor, samples: torch.Tensor, seeds: Sequence[int]) -> torch.Tensor:
        keys = [MASKS.key(each, step, number) for each in seeds]
        columns = x.numel() // max(1, samples.numel())
        return x * masks.scaled(keys, samples, columns, p, x.dtype).reshape(x.shape)

    if isinstance(seed, int):
        return masked(x, samples, [seed])
    return at_once(lambda x, samples, seeds: masked(x, samples, seeds.tolist()), x, samples, seed)


_torchs = nn.functional.dropout


def _of_torch(
    input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    """`torch.nn.functional.dropout`, which inside `keyed` has masks of its own for each call in turn."""
    drawn = randomness.current()
    if drawn is None or not training or p == 0:
        return _torchs(input, p, training, inplace)
    dropped = _dropped(input, p, next(drawn.calls), drawn)
    return input.copy_(dropped) if inplace else dropped


def replace_torchs() -> None:
    """From now on torch's own dropout, as a user's model calls it, does inside `keyed` not depend on ranks either."""
    nn.functional.dropout = _of_torch


def name_dropouts(model: nn.Module) -> None:
    """Give every `SampleDropout` of a whole model masks of its own, derived from its path in the model ("head.2")."""
    for path, module in model.named_modules():
        if isinstance(module, SampleDropout):
            module.number = randomness.number_of(path)
