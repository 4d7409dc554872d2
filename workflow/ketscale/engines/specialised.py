"""When circuits and quantum systems get compiled code of their own, and whether the cache folder must take it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast, get_args
from weakref import WeakSet

from ketscale.errors import UserError

When = Literal["again", "always", "never"]

_chosen: list[When] = []
# What has code of its own, as attribute `own`.
having_own: WeakSet[Any] = WeakSet()
# For how many callers code must be there at once, and for how many the cache folder must take it.
_at_once = [0, 0]
_lock = threading.Lock()


def specialise(when: When) -> None:
    """Choose when circuits get compiled code of their own, in this process, on the CPU.

    when: "again" (the default, if the variable KETSCALE_SPECIALISE says nothing else): the first calls are answered by
        code that reads the circuit from a table. When a circuit is called again a process compiles code of its own, which
        takes over when it is there. Then results may change in the last digits, and the logger "ketscale" says so at
        level INFO. "always": the first call waits for the circuit's own code; so it is in `ketscale train`, `try` and `bench`,
        in the estimators' `fit`, and wherever torch's deterministic algorithms are on. "never": circuits are
        read from tables, also those that had code of their own. So it is with the systems of `ketscale.dynamics`, whose
        results have the same bits either way.

    Raises:
        UserError: it is none of these.

    Example:
        >>> ketscale.specialise("always")  # results repeat bit by bit
    """
    _chosen[:] = [_checked(when, "specialise")]
    if when == "never":
        for each in list(having_own):
            each.own = None


def specialisation() -> When:
    """When circuits get code of their own, now."""
    import torch

    if _at_once[0] or torch.are_deterministic_algorithms_enabled():
        return "always"
    return chosen()


def chosen() -> When:
    """What was chosen, whatever is to have own code at once."""
    if not _chosen:
        _chosen.append(_checked(os.environ.get("KETSCALE_SPECIALISE") or "again", "KETSCALE_SPECIALISE"))
    return _chosen[0]


@contextmanager
def specialised_at_once(must_keep: bool = False) -> Iterator[None]:
    """Within, circuits have code of their own from the first call on, so that results repeat bit by bit.

    must_keep: a cache folder that does not take the code is an error.
    """
    counted = (1, int(must_keep))
    _count(counted, 1)
    try:
        yield
    finally:
        _count(counted, -1)


def must_keep() -> bool:
    """Whether the cache folder must take compiled code."""
    return _at_once[1] > 0


def _count(parts: tuple[int, int], sign: int) -> None:
    with _lock:
        _at_once[:] = [count + sign * part for count, part in zip(_at_once, parts, strict=True)]


def _checked(when: str, name: str) -> When:
    if when not in get_args(When):
        raise UserError(f"{name} is {when!r}: choose one of {', '.join(get_args(When))}")
    return cast(When, when)
