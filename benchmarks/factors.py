"""A case of circuits, and how much faster `fused` is in it."""

from __future__ import annotations

from typing import NamedTuple


class CircuitCase(NamedTuple):
    """A circuit and a batch size."""

    ansatz: str
    qubits: int
    batch: int
    layers: int

    def __str__(self) -> str:
        return f"{self.ansatz} {self.qubits}q x {self.batch}"


class Factors(NamedTuple):
    """A case where `fused` and a peer were timed.

    speedup: time of the fastest peer over that of `fused`.
    algebra: what `fused` gains over its own literal route; None where that was not timed.
    kernel: what the literal route gains over the fastest peer. algebra * kernel = speedup.
    """

    case: CircuitCase
    peer: str
    speedup: float
    algebra: float | None
    kernel: float | None
