"""The parts of `check` that measure: one module each, with a function `measure`."""
