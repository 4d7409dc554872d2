"""Training: the loop, one training step, the optimisers and checkpoints."""
