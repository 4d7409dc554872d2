"""Timing simulators of small circuits against each other: `ketscale bench simulators`."""
