"""Figures: their style, those of times, and those of models."""
