"""Advice before runs start: `plan`, which of them first on a budget; `recommend`, on which layout.

`priority` orders runs, `limits` says what to ask of SLURM, and `judge` how far off the cost model is.
"""
