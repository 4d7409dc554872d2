"""How ranks share a global batch."""

from __future__ import annotations

import torch


def shard(indices: torch.Tensor, rank: int, ranks: int, way: str = "balanced") -> torch.Tensor:
    """A rank's part of `indices`, which may be empty; the parts of all ranks together are `indices`.

    way: "balanced" for contiguous parts that differ by at most one sample; "strided" for every `ranks`-th sample,
        which balances the load if the cost of samples grows along the batch.
    """
    if ranks == 1:
        return indices
    if way == "strided":
        return indices[rank::ranks]
    return torch.tensor_split(indices, ranks)[rank]
