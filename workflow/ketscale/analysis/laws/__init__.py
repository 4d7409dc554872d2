"""Scaling laws: fitted to runs by seed, tested, and refused where the runs cannot decide.

Imports nothing heavy: Snakemake imports this at every start.
"""

from __future__ import annotations

from ketscale.analysis.laws.known import karp_flatt

__all__ = ["karp_flatt"]
