"""Damage done on purpose, at random but repeatably: `make test-faults SEED=... COUNT=...`.

Each test does COUNT things (by default few, for some minutes in all) that follow from SEED, and says what must hold
whatever is hit. A failure names the seed and the number of what failed.
"""

import os

SEED = int(os.environ.get("KETSCALE_FAULT_SEED", "16"))


def count(usual: int) -> int:
    """How often a test does damage: as often as was asked for, else as `usual`."""
    return int(os.environ.get("KETSCALE_FAULT_COUNT", usual))
