"""Ranks: how they share a batch and sum numbers."""
