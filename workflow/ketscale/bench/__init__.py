"""Timing inside one process: simulators of small circuits, and training steps of models, against each other."""
