"""What is left of choosing when circuits get compiled code of their own."""

from __future__ import annotations

import warnings
from typing import Literal

When = Literal["again", "always", "never"]


def specialise(when: When) -> None:
    """Do nothing: circuits and systems are read from tables, so that results never change while a program runs.

    when: was "again", "always" or "never".
    """
    warnings.warn(
        "ketscale.specialise does nothing any more, and will go: results repeat bit by bit without it",
        FutureWarning,
        stacklevel=2,
    )
