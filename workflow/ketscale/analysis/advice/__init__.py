"""Advice before runs start: `plan`, which of them first on a budget; `recommend`, on which layout.

`trials` trains candidates of the latter for some steps.
"""
