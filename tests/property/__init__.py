"""Properties that hold for whatever hypothesis draws: the same 60 examples each time, or others by the thousand.

KETSCALE_EXAMPLES=2000 python -m pytest tests/property draws 2,000 at random, as the nightly tests do.
"""

import os

from hypothesis import settings

USUAL = 60
EXAMPLES = int(os.environ.get("KETSCALE_EXAMPLES", USUAL))

settings.register_profile("ketscale", max_examples=EXAMPLES, deadline=None, database=None, derandomize=True)
# One that fails among so many is found again by the line that hypothesis prints for it.
settings.register_profile("nightly", settings.get_profile("ketscale"), derandomize=False, print_blob=True)
settings.load_profile("ketscale" if EXAMPLES <= USUAL else "nightly")


def examples(share: float) -> settings:
    """Settings of a property that is slow: a share of the examples, at least one."""
    return settings(max_examples=max(1, round(EXAMPLES * share)))
