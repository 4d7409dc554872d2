"""Dropout masks, scaled: compiled on a CPU, where a mask by torch's operators takes longer than a small layer."""

from __future__ import annotations

import struct
from array import array
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
    scale = 1 / (1 - p)
    if not isinstance(key, int) or not samples.is_cpu or dtype not in (torch.float32, torch.float64):
        return randomness.kept(key, samples, columns, p).to(dtype).mul_(scale)
    double, vectors = dtype == torch.float64, -(-columns // LANES)
    mask = torch.empty(len(samples), vectors * LANES, dtype=dtype)
    samples = samples.contiguous()
    if len(samples):
        arguments = array(
            "q",
            (
                mask.data_ptr(),
                samples.data_ptr(),
                len(samples),
                vectors,
                randomness.signed(key),
                randomness.least(p),
                0,
            ),
        )
        struct.pack_into("d" if double else "f", arguments, 8 * (len(arguments) - 1), scale)
        _library().on_one_thread["double" if double else "single"](arguments.buffer_info()[0])
    return mask[:, :columns]


# The files whose changes make the compiled code outdated.
SOURCES = (Path(mask_kernels.__file__), Path(randomness.__file__))


@cache
def _library() -> Library:
    return Library(Recipe("masks", ("single", "double"), mask_kernels.module, SOURCES))
