"""The tables that the compiled code of gates on columns reads, and the sizes that it is written for.

Columns are in the lanes of vectors: a tile is a few vectors of columns, and its state is (d**n, vectors, 2, lanes), real
and imaginary parts side by side. Code is written for d alone. Where a gate acts is in a table of strides, so that one
code serves all lattices of d levels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch

from ketscale.engines.pulses.placement import Place, Sequence

# Entries of a row of the table before the offsets: the number of sites; then counts and strides of the three loops over
# the amplitudes of the other sites, outermost first. Strides and offsets count complex vectors.
HEAD = 6
SITES, OUTER, OUTER_STRIDE, MIDDLE, MIDDLE_STRIDE, INNER = range(HEAD)

# The state of a tile and its cotangent take at most so many bytes, if they can: most of a first-level cache.
TILE_BYTES = 32 * 1024


class GatesPlan(NamedTuple):
    """levels: d."""

    levels: int

    @property
    def row(self) -> int:
        """Entries of a row of the table."""
        return HEAD + self.levels**2


def vectors(dimension: int, columns: int, lanes: int) -> int:
    """How many vectors of columns a tile has."""
    fitting = TILE_BYTES // (2 * 2 * 8 * lanes * dimension)
    return max(1, min(fitting, -(-columns // lanes)))


@lru_cache(maxsize=64)
def table(sequence: Sequence, vectors: int) -> torch.Tensor:
    """Where the gates of each place act, int64 (places, row)."""
    return torch.tensor([_row(sequence, place, vectors) for place in sequence.places])


def _row(sequence: Sequence, place: Place, vectors: int) -> list[int]:
    d, n = sequence.levels, sequence.sites
    stride = {site: d ** (n - 1 - site) * vectors for site in place}
    first, last = min(place), max(place)
    middle = (d ** (last - first - 1), d * stride[last]) if last > first else (1, 0)
    offsets = [0]
    for site in place:
        offsets = [offset + level * stride[site] for offset in offsets for level in range(d)]
    head = [len(place), d**first, d * stride[first], *middle, stride[last]]
    return head + offsets + [0] * (d * d - len(offsets))
