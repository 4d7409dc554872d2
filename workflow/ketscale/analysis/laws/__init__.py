"""Scaling laws: fitted to runs by seed, tested, and refused where the runs cannot decide.

Imports nothing heavy: Snakemake imports this at every start.
"""

from __future__ import annotations

from ketscale.analysis.laws.known import karp_flatt
from ketscale.analysis.laws.line import Growth, Line, fit_growth, fit_line

__all__ = ["Growth", "Line", "fit_growth", "fit_line", "karp_flatt"]
