"""The thread pool of torch, on which compiled code runs too, so that cores are not oversubscribed."""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

# Calls a function (its address) with its argument (an address) on a number of threads, one of which is the calling one.
Pool = Callable[[int, int, int, int], None]


def pool() -> Pool | None:
    """GOMP_parallel of torch's OpenMP library; None where torch has another pool, as on macOS and Windows.

    None too in a process that was forked from one with threads: a fork has none of them, and would wait for them for ever.
    Then compiled code runs on one thread, which the first call says in a warning.
    """
    function = None if _forked else _load()
    if function is None:
        _warn(
            "this process was forked from one that had threads; start it by spawn instead"
            if _forked
            else "this torch does not use GNU OpenMP, whose threads it would share"
        )
    return function


def usable(threads: int) -> int:
    """How many of torch's threads compiled code runs on, for records."""
    return threads if threads == 1 or (not _forked and _load() is not None) else 1


@cache
def _load() -> Pool | None:
    import torch

    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        function = ctypes.CDLL(str(library)).GOMP_parallel
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    function.restype = None
    pool: Pool = function
    return pool


@cache
def _warn(reason: str) -> None:
    warnings.warn(f"compiled code runs on one thread: {reason}", stacklevel=4)


# Whether a process that had threads was forked, in it and in its child.
_had_threads = _forked = False


def _note_threads() -> None:
    global _had_threads
    tasks = Path("/proc/self/task")
    _had_threads = not tasks.is_dir() or len(list(tasks.iterdir())) > 1


def _note_fork() -> None:
    global _forked
    _forked = _forked or _had_threads


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_threads, after_in_child=_note_fork)
