"""Training: `session` runs one point of the grid, `loop` is the trainer, `clock` and `host` measure."""
