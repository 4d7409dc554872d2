"""What one measured speedup S says about p workers."""

from __future__ import annotations


def strong_efficiency(speedup: float, workers: int) -> float:
    """E = S / p at a fixed global batch; 1 is the ideal (Amdahl 1967)."""
    return speedup / workers


def karp_flatt(speedup: float, workers: int) -> float | None:
    """Experimental serial fraction e = (1/S - 1/p) / (1 - 1/p) (Karp & Flatt 1990); None for p = 1."""
    if workers == 1:
        return None
    return (1 / speedup - 1 / workers) / (1 - 1 / workers)
