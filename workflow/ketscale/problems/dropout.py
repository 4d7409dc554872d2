"""Dropout whose mask is a function of (seed, step, sample), so that it does not depend on the number of ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from ketscale.problems import randomness

MASKS = randomness.Stream("dropout")


class _Key(NamedTuple):
    seed: int | torch.Tensor
    step: randomness.Step
    samples: torch.Tensor


_key: _Key | None = None


@contextlib.contextmanager
def keyed(seed: int | torch.Tensor, step: randomness.Step, samples: torch.Tensor) -> Iterator[None]:
    """Inside the block, every `SampleDropout` draws its masks for these samples (int64 ids) at this step.

    seed: under torch.func.vmap int64 (), each member's own.
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
        columns = x[0].numel()
        if isinstance(seed, int):
            kept = randomness.kept(MASKS.key(seed, step, self.number), samples, columns, self.p)
        else:
            kept = _Kept.apply(seed, samples, int(step), self.number, columns, self.p)
        return x * kept.to(x.dtype).mul_(1 / (1 - self.p)).view_as(x)


class _Kept(torch.autograd.Function):
    """`randomness.kept` with a seed for each member of torch.func.vmap: one call for all of them."""

    @staticmethod
    def forward(
        seed: torch.Tensor, samples: torch.Tensor, step: int, number: int, columns: int, p: float
    ) -> torch.Tensor:
        keys = (MASKS.key(one, step, number) for one in seed.reshape(-1).tolist())
        key = randomness.keys(keys, samples.device).view(*seed.shape, 1)
        return randomness.kept(key, samples, columns, p)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], seed: torch.Tensor, samples: torch.Tensor, *rest: Any
    ) -> tuple[torch.Tensor, int]:
        seeds, rows = (
            each.expand(info.batch_size, *each.shape) if dim is None else each.movedim(dim, 0)
            for each, dim in zip((seed, samples), in_dims, strict=False)
        )
        return _Kept.apply(seeds, rows, *rest), 0


def name_dropouts(model: nn.Module) -> None:
    """Give every `SampleDropout` of a whole model masks of its own, derived from its path in the model ("head.2")."""
    for path, module in model.named_modules():
        if isinstance(module, SampleDropout):
            module.number = randomness.number_of(path)
