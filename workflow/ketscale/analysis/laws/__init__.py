"""Scaling laws: fitted to runs by seed, tested, and refused where the runs cannot decide."""
