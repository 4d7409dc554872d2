"""Evaluates and differentiates physics: circuits, and code compiled for this processor."""
