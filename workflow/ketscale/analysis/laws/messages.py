"""The all-reduce of a step's gradients: which span of a record times it, and how its time grows with ranks and bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ketscale.grid import BACKENDS, ONE_MESSAGE
from ketscale.measure.form import Quartiles

# If a reduction overlaps the backward pass, this is the whole of it; the span without `.total` is its exposed part.
SPANS = ("communication.total", "communication")
# Gloo's all-reduce is a ring whatever its size (gloo/allreduce.cc), so that its rounds grow with the ranks.
_RINGS = ("ddp-cpu",)


def in_parts(backend: str, size: int) -> bool:
    """Whether a gradient of so many bytes is sent in several messages, while the backward pass goes on."""
    return BACKENDS[backend].launcher == "torchrun" and size > ONE_MESSAGE


def seconds(spans: Mapping[str, Quartiles], backend: str, size: int) -> float | None:
    """How long one all-reduce of a whole gradient of `size` bytes took, from a record's spans; None if none says so."""
    if in_parts(backend, size):
        return None
    return next((spans[name].median_s for name in SPANS if name in spans), None)


def terms(backend: str, ranks: int, size: int) -> tuple[float, float]:
    """What alpha and beta are multiplied by: the rounds of an all-reduce, and the bytes that each rank sends.

    R. Thakur, R. Rabenseifner and W. Gropp, Int. J. High Perform. Comput. Appl. 19, 49 (2005): log2(p) rounds, or twice
    as many, and 2 (p - 1) / p n bytes; a ring has 2 (p - 1) rounds. A factor of two of the rounds is part of alpha.
    """
    rounds = ranks - 1 if backend in _RINGS else math.ceil(math.log2(ranks))
    return float(rounds), 2 * (ranks - 1) / ranks * size
