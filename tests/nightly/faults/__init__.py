"""Damage done on purpose, at random but repeatably: `make test-faults-long SEED=...`.

Each test does COUNT things (by default few, for some minutes in all) that follow from SEED, and says what must hold
whatever is hit. A failure names the seed and the number of what failed.
"""

import os

SEED = int(os.environ.get("KETSCALE_FAULT_SEED", "16"))


def count(usual: int, cases: int = 1) -> int:
    """How often a test does damage in each of its cases: COUNT in all if that was asked for, else `usual` in each."""
    number = os.environ.get("KETSCALE_FAULT_COUNT")
    # Rounded up: a case without damage would hold whatever is broken.
    return -(-int(number) // cases) if number else usual
