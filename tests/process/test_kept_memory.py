"""Freed memory is kept for the next training step: no step has page faults for the temporaries of the one before."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Five times 96 MiB, which is more than the C library keeps by itself.
PROGRAM = """
import ctypes, resource, sys
from ketscale.process import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
size = 96 * 2**20
def use():
    block = library.malloc(size)
    ctypes.memset(block, 1, size)
    library.free(block)
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    use()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * resource.getpagesize() / size)
"""


def faults(how: str) -> float:
    """Page faults of the same allocation five times, in pages of it."""
    result = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return float(result.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is a setting of glibc")
def test_what_is_freed_is_used_again() -> None:
    by_itself = faults("as it is")
    assert by_itself > 0
    assert faults("kept") < 0.1 * by_itself
