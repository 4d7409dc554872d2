"""Advice before runs start: `plan`, which of them first on a budget; `recommend`, on which layout."""
