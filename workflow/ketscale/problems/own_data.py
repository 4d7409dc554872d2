"""Types of settings and checks that the workloads of a user's own files share.

Imports nothing heavy, since configs are checked with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ketscale.errors import UserError
from ketscale.files import expanded

SHARE = 0.15
Share = Annotated[
    float,
    Meta(gt=0, lt=1, description=f"Share of each class, or of the groups, in this part; default {SHARE}"),
]
File = Annotated[str, Meta(min_length=1)]


def found(given: str, setting: str) -> Path:
    """The file that a setting names.

    Raises:
        UserError: there is no such file.
    """
    path = expanded(given)
    if not path.is_file():
        if path.exists():
            raise UserError(f"{setting}: {path} is not a regular file; name another")
        raise UserError(f"{setting}: there is no file {path}; name another")
    return path


def share_faults(instead: str | None, split_seed: int | None = None, **shares: float | None) -> Iterator[str]:
    """Yield what is wrong with the shares of validation and test.

    instead: the reason why nothing is drawn, so that no share or seed may be given; None if they are drawn.
    """
    for name, share in {**shares, "split_seed": split_seed}.items():
        if instead and share is not None:
            yield f"{name}: {instead}; leave it out"
    total = sum(SHARE if share is None else share for share in shares.values())
    if total >= 1:
        yield f"{next(iter(shares))}: {' and '.join(shares)} add up to {total:g}, so none is left to train on"


def share(given: float | None) -> float:
    """The given share, or the default."""
    return SHARE if given is None else given
