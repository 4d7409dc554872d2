"""Advice before runs start: `plan`, which of them first on a budget; `recommend`, on which layout.

`priority` orders runs, `trials` trains candidates for some steps, and `scaled` tells of runs that are planned by a model.
"""
