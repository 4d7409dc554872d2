"""What the workloads that read a user's own files have in common: types of settings, and their checks.

Imports nothing heavy: configs are checked with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ketscale.errors import UserError

SHARE = 0.15
Share = Annotated[
    float, Meta(gt=0, lt=1, description=f"Share of each class or of the groups; without it {SHARE}")
]
File = Annotated[str, Meta(min_length=1)]


def found(given: str, setting: str) -> Path:
    """The file that a setting names.

    Raises:
        UserError: it is not there.
    """
    path = Path(given).expanduser()
    if not path.is_file():
        raise UserError(f"{setting}: there is no file {path}; name another")
    return path


def share_faults(instead: str | None, **shares: float | None) -> Iterator[str]:
    """What is wrong with the shares of validation and test.

    instead: why none is needed, where that is so.
    """
    for name, share in shares.items():
        if instead and share is not None:
            yield f"{name}: {instead}; leave it out"
    total = sum(SHARE if share is None else share for share in shares.values())
    if total >= 1:
        yield f"{next(iter(shares))}: with {' and '.join(shares)} of {total:g} nothing is left to train on; make it smaller"


def share(given: float | None) -> float:
    """A share, or the default."""
    return SHARE if given is None else given
