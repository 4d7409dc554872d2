"""How a global batch is shared by ranks."""

from __future__ import annotations

import torch


def shard(indices: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """The contiguous part of `indices` for a rank; parts differ by at most one sample and may be empty."""
    return torch.tensor_split(indices, ranks)[rank]
