"""How a global batch is shared by ranks."""

from __future__ import annotations

import torch


def shard(indices: torch.Tensor, rank: int, ranks: int, way: str = "balanced") -> torch.Tensor:
    """A rank's part of `indices`, which may be empty; together the parts are all of them.

    way: "balanced" for contiguous parts that differ by at most one sample, "strided" for every `ranks`-th sample,
        which evens out samples whose cost grows along the batch.
    """
    if way == "strided":
        return indices[rank::ranks]
    return torch.tensor_split(indices, ranks)[rank]
