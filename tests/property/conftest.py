"""Profiles of hypothesis: few examples, the same each time; KETSCALE_EXAMPLES sets how many."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile(
    "ketscale",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=int(os.environ.get("KETSCALE_EXAMPLES", "60")),
)
settings.load_profile("ketscale")
