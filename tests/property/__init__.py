"""Properties that hold for whatever hypothesis draws: the same 60 examples each time, or others by the thousand.

KETSCALE_EXAMPLES=2000 python -m pytest tests/property draws 2,000 at random, as the nightly tests do.
"""

import os
from collections.abc import Callable
from typing import TypeVar

from hypothesis import settings

from ketscale.errors import UserError

T = TypeVar("T")

USUAL = 60
EXAMPLES = int(os.environ.get("KETSCALE_EXAMPLES", USUAL))

settings.register_profile("ketscale", max_examples=EXAMPLES, deadline=None, database=None, derandomize=True)
# One that fails among so many is found again by the line that hypothesis prints for it.
settings.register_profile("nightly", settings.get_profile("ketscale"), derandomize=False, print_blob=True)
settings.load_profile("ketscale" if EXAMPLES <= USUAL else "nightly")


def examples(times: float) -> settings:
    """Settings of a property with another number of examples: a share where each takes long, a multiple where none does."""
    return settings(max_examples=max(1, round(EXAMPLES * times)))


def attempt(make: Callable[[], T]) -> tuple[T | None, str]:
    """What is made; or None, and what the user is told, which is a line for each of ten faults at most."""
    try:
        return make(), ""
    except UserError as error:
        message = str(error)
    assert message.strip() and len(message.splitlines()) <= 11 and max(map(len, message.splitlines())) <= 1100
    assert message.replace("\n", "").isprintable()
    return None, message
