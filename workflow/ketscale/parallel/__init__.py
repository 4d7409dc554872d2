"""Ranks: how they share a batch and add numbers up."""
