"""Dropout whose mask is a function of (seed, step, sample), so that it does not depend on the number of ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from ketscale.engines.members import at_once
from ketscale.problems import masks, randomness

MASKS = randomness.Stream("dropout")


class _Key(NamedTuple):
    seed: int | torch.Tensor
    step: randomness.Step
    samples: torch.Tensor


_key: _Key | None = None


@contextlib.contextmanager
def keyed(seed: int | torch.Tensor, step: randomness.Step, samples: torch.Tensor) -> Iterator[None]:
    """Inside the block, every `SampleDropout` draws its masks for these samples (int64 ids) at this step.

    seed: under torch.func.vmap int64 () on the CPU, each member's own.
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
        seed, step, samples = _key
        form = (self.number, x[0].numel(), self.p, x.dtype)
        if isinstance(seed, int):
            mask = _mask(seed, step, samples, *form)
        else:
            mask = at_once(lambda seeds, rows: _masks(seeds, rows, step, *form), seed, samples)
        return x * mask.reshape(x.shape)


def _mask(
    seed: int,
    step: randomness.Step,
    samples: torch.Tensor,
    number: int,
    columns: int,
    p: float,
    dtype: torch.dtype,
) -> torch.Tensor:
    return masks.scaled(MASKS.key(seed, step, number), samples, columns, p, dtype)


def _masks(seeds: torch.Tensor, samples: torch.Tensor, step: randomness.Step, *form: Any) -> torch.Tensor:
    """The masks of members with seeds (members,) and samples (members, n) of their own."""
    members = zip(seeds.tolist(), samples, strict=True)
    return torch.stack([_mask(seed, step, rows, *form) for seed, rows in members])


def name_dropouts(model: nn.Module) -> None:
    """Give every `SampleDropout` of a whole model masks of its own, derived from its path in the model ("head.2")."""
    for path, module in model.named_modules():
        if isinstance(module, SampleDropout):
            module.number = randomness.number_of(path)
