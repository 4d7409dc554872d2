"""Dropout whose mask is a function of (seed, step, sample), so that it does not depend on the number of ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from ketscale.problems import randomness

MASKS = randomness.Stream("dropout")


class _Key(NamedTuple):
    seed: randomness.Seed
    step: randomness.Step
    samples: torch.Tensor


_key: _Key | None = None


@contextlib.contextmanager
def keyed(seed: randomness.Seed, step: randomness.Step, samples: torch.Tensor) -> Iterator[None]:
    """Inside the block, every `SampleDropout` draws its masks for these samples (int64 ids) at this step.

    With `Seeds` it works in a function that torch.func.vmap maps: each member has the masks that it would have alone.
    """
    global _key
    previous, _key = _key, _Key(seed, step, samples)
    try:
        yield
    finally:
        _key = previous


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
        if _key is None:
            return nn.functional.dropout(x, self.p)
        if self.number is None:
            raise RuntimeError("a dropout has no masks of its own: call name_dropouts(model) first")
        key = MASKS.key(_key.seed, _key.step, self.number)
        kept = randomness.kept(key, _key.samples, x[0].numel(), self.p)
        return x * kept.to(x.dtype).mul_(1 / (1 - self.p)).view_as(x)


def name_dropouts(model: nn.Module) -> None:
    """Give every `SampleDropout` of a whole model masks of its own, derived from its path in the model ("head.2")."""
    for path, module in model.named_modules():
        if isinstance(module, SampleDropout):
            module.number = randomness.number_of(path)
