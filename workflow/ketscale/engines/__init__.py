"""Evaluates and differentiates physics: circuits, dynamics, and code compiled for this processor."""
