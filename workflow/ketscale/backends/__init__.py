"""Backends: where ranks run and how they talk. `launch` starts them, `base` is their contract."""
