"""The thread pool of torch, on which compiled code runs too, so that cores are not oversubscribed."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

# Calls a function (its address) with its argument (an address) on a number of threads, one of which is the calling one.
Pool = Callable[[int, int, int, int], None]


def pool() -> Pool | None:
    """GOMP_parallel of torch's OpenMP library; None where torch has another pool, as on macOS and Windows.

    Then compiled code runs on one thread, which the first call says in a warning.
    """
    found = _found()
    if found is None:
        _warn()
    return found


def usable(threads: int) -> int:
    """How many of torch's threads compiled code runs on, for records."""
    return threads if threads == 1 or _found() is not None else 1


@cache
def _found() -> Pool | None:
    import torch

    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        function = ctypes.CDLL(str(library)).GOMP_parallel
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    function.restype = None
    found: Pool = function
    return found


@cache
def _warn() -> None:
    warnings.warn(
        "compiled code runs on one thread: this torch does not use GNU OpenMP, whose threads it would share",
        stacklevel=4,
    )
