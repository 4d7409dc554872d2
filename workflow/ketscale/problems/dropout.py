"""Dropout whose mask is a function of (seed, step, sample), so that numbers do not depend on ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from ketscale.problems import randomness


class _Key(NamedTuple):
    seed: int
    step: int
    samples: torch.Tensor


_key: _Key | None = None


@contextlib.contextmanager
def keyed(seed: int, step: int, samples: torch.Tensor) -> Iterator[None]:
    """Draw the masks of every `SampleDropout` inside the block for these samples (int64 ids) at this step."""
    global _key
    previous, _key = _key, _Key(seed, step, samples)
    try:
        yield
    finally:
        _key = previous


class SampleDropout(nn.Module):
    """Dropout over tensors (samples, ...); `stream` tells the dropouts of one model apart.

    Outside `keyed` (a notebook, say) it is torch's own dropout.
    """

    def __init__(self, p: float, stream: int) -> None:
        super().__init__()
        self.p = p
        self.stream = stream

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Zero each entry with probability p in training mode and scale the rest by 1 / (1 - p)."""
        if not self.training or self.p == 0:
            return x
        if _key is None:
            return nn.functional.dropout(x, self.p)
        key = randomness.fold(_key.seed, _key.step, self.stream)
        kept = randomness.kept(key, _key.samples, x[0].numel(), self.p)
        return x * kept.to(x.dtype).mul_(1 / (1 - self.p)).view_as(x)
