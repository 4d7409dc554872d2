"""Advice before runs start: `plan`, which of them first on a budget; `recommend`, on which layout.

`priority` orders runs, and `judge` says how far off the cost model is.
"""
