"""Dropout masks, scaled: compiled on a CPU, where a mask by torch's operators takes longer than a small layer."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from ketscale.engines.compiled.library import Library, Recipe
from ketscale.problems import mask_kernels, randomness
from ketscale.problems.mask_kernels import LANES


def scaled(
    key: randomness.Key, samples: torch.Tensor, columns: int, p: float, dtype: torch.dtype
) -> torch.Tensor:
    """`randomness.kept` times 1 / (1 - p), (len(samples), columns): the same on every device."""
    if not isinstance(key, int) or not _compiled(samples, dtype):
        return randomness.kept(key, samples, columns, p).to(dtype).mul_(1 / (1 - p))
    return of_runs([key], samples.unsqueeze(0), columns, p, dtype).squeeze(0)


def of_runs(
    keys: Sequence[randomness.Key], samples: torch.Tensor, columns: int, p: float, dtype: torch.dtype
) -> torch.Tensor:
    """`scaled` for runs with keys and samples (runs, n) of their own: (runs, n, columns)."""
    numbers = [key for key in keys if isinstance(key, int)]
    if len(numbers) < len(keys) or not _compiled(samples, dtype):
        each = zip(keys, samples, strict=True)
        return torch.stack([scaled(key, own, columns, p, dtype) for key, own in each])
    vectors = -(-columns // LANES)
    mask = torch.empty(*samples.shape, vectors * LANES, dtype=dtype)
    if mask.numel():
        call(_library(), "double" if dtype == torch.float64 else "single", (mask,), samples, numbers, p)
    return mask[..., :columns]


def _compiled(samples: torch.Tensor, dtype: torch.dtype) -> bool:
    return samples.is_cpu and dtype in (torch.float32, torch.float64)


def call(
    library: Library,
    name: str,
    tensors: Sequence[torch.Tensor],
    samples: torch.Tensor,
    keys: Sequence[int],
    p: float,
    *numbers: int,
) -> None:
    """Call a function whose arguments are tensors, all float32 or all float64, numbers, and then `mask_kernels.DRAWN`.

    tensors: the first is (..., columns), of whole vectors. samples: int64 (n,), or (runs, n). keys: of each
    run.
    """
    samples, first = samples.contiguous(), tensors[0]
    signed = array("q", map(randomness.signed, keys))
    # fmt: off
    arguments = array("q", (
        *[tensor.data_ptr() for tensor in tensors], *numbers, len(keys), samples.shape[-1], first.shape[-1] // LANES,
        samples.data_ptr(), signed.buffer_info()[0], randomness.least(p), 0,
    ))
    # fmt: on
    struct.pack_into(
        "d" if first.dtype == torch.float64 else "f", arguments, 8 * (len(arguments) - 1), 1 / (1 - p)
    )
    library.on_one_thread[name](arguments.buffer_info()[0])


# The files whose changes make the compiled code outdated.
SOURCES = (Path(mask_kernels.__file__), Path(randomness.__file__))


@cache
def _library() -> Library:
    return Library(Recipe("masks", ("single", "double"), mask_kernels.module, SOURCES))
