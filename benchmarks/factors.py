"""A case of circuits, and how much faster `fused` is in it."""

from __future__ import annotations

from typing import NamedTuple


class CircuitCase(NamedTuple):
    """A circuit and a batch size.

    words: so many random Pauli words with the same coefficients for all samples; 0 for the circuit's own.
    shots: so many for each sample; 0 for exact values.
    """

    ansatz: str
    qubits: int
    batch: int
    layers: int
    words: int = 0
    shots: int = 0

    def __str__(self) -> str:
        return f"{self.ansatz} {self.qubits}q x {self.batch}"


class Factors(NamedTuple):
    """A case where `fused` and a peer were timed.

    speedup: time of the fastest peer over that of `fused`.
    """

    case: CircuitCase
    peer: str
    speedup: float
