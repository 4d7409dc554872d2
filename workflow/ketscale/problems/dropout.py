"""Dropout whose mask is a function of (seed, step, sample), so that it does not depend on the number of ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from ketscale.engines.members import leading
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
            mask = _Mask.apply(seed, step, samples, *form)
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


class _Mask(torch.autograd.Function):
    """A mask under torch.func.vmap, whose members have seeds and samples of their own."""

    @staticmethod
    def forward(seed: torch.Tensor, step: randomness.Step, samples: torch.Tensor, *rest: Any) -> torch.Tensor:
        return _mask(int(seed), step, samples, *rest)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        seed: torch.Tensor,
        step: randomness.Step,
        samples: torch.Tensor,
        *rest: Any,
    ) -> tuple[torch.Tensor, int]:
        seeds = leading(info, seed, in_dims[0]).tolist()
        rows = leading(info, samples, in_dims[2])
        return torch.stack([_mask(one, step, row, *rest) for one, row in zip(seeds, rows, strict=True)]), 0


def name_dropouts(model: nn.Module) -> None:
    """Give every `SampleDropout` of a whole model masks of its own, derived from its path in the model ("head.2")."""
    for path, module in model.named_modules():
        if isinstance(module, SampleDropout):
            module.number = randomness.number_of(path)
