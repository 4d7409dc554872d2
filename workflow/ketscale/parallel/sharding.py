"""How a global batch is shared by ranks."""

from __future__ import annotations

import torch

# balanced: contiguous parts that differ by at most one sample; strided: every so-manieth sample, which evens out
# samples that grow along the batch.
WAYS = ("balanced", "strided")


def shard(indices: torch.Tensor, rank: int, ranks: int, way: str = "balanced") -> torch.Tensor:
    """A rank's part of `indices`, which may be empty; together the parts are all of them."""
    if way == "strided":
        return indices[rank::ranks]
    return torch.tensor_split(indices, ranks)[rank]
