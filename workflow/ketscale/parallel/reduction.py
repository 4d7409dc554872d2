"""The sum of all ranks' gradients in one message, after the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ketscale.measure.spans import active, span


def reduce_flat(
    gradients: torch.Tensor, add: Callable[[torch.Tensor], Any], meet: Callable[[], Any]
) -> torch.Tensor:
    """Replace the gradients, real (members, numbers), by their sum over ranks; the norms of this rank's own (members,).

    In a sampled step the ranks first meet, so that waiting for the slowest is counted separately.

    Args:
        add: sums a contiguous tensor over ranks in place.
        meet: waits for every rank.
    """
    own = torch.linalg.vector_norm(gradients, dim=1)
    if active() is not None:
        with span("communication.wait"):
            meet()
    with span("communication"):
        add(gradients)
    return own
