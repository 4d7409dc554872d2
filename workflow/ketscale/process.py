"""What the kernel, launchers and schedulers say about this process and others. Imports nothing heavy."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

# The variables of every thread pool that a rank may start. OpenMP and Numba read them once, so set them before Python.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

# Variables that name the call of Snakemake that a process belongs to, also on another machine, and the call of
# `ketscale launch` that started it.
CALL, LAUNCH = "KETSCALE_CALL", "KETSCALE_LAUNCH"

# Options of prctl(2), and parameters of mallopt(3).
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def slurm_job() -> str | None:
    """The id of the SLURM job that this process is in; None outside a job."""
    return os.environ.get("SLURM_JOB_ID") or None


def call() -> str | None:
    """The call of Snakemake that this process belongs to; None if it was started by hand."""
    return os.environ.get(CALL)


def end_with_parent(parent: int) -> None:
    """From now on this process gets SIGTERM when the one that started it ends; and now, if that has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() not in (parent, 0):  # 0: it cannot be seen from this container
        os.kill(os.getpid(), signal.SIGTERM)


def adopt_orphans() -> None:
    """From now on all that this process starts stays below it, also what outlives a process between them."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(pid: int) -> list[int]:
    """The processes below a process that have not ended, the nearest first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):  # it is no process, or has just ended
            state, parent = _fields(Path("/proc", name, "stat").read_text())[:2]
            if name.isdecimal() and state not in "ZX":
                children.setdefault(int(parent), []).append(int(name))
    tree = children.get(pid, [])
    for below in tree:  # which grows in the loop
        tree.extend(children.get(below, []))
    return tree


def keep_freed_memory() -> None:
    """Make glibc's allocator keep what this process frees, for its next allocations; with other C libraries nothing.

    Otherwise it maps each block above 32 MiB again and gives free memory at the end of the heap back, so every
    training step has page faults for the same temporaries, and more at larger batches.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, -1)


@contextmanager
def uncollected() -> Iterator[None]:
    """Inside, the garbage collector is off.

    While heavy packages are imported it would search all that they define many times (a fifth of the time that
    `import torch` takes), and find nothing.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def permanent() -> Iterator[None]:
    """What is made inside lives until the process ends, so the garbage collector never searches it.

    Only for KetScale's own processes: garbage that is there at the end is never freed.
    """
    with uncollected():
        yield
        gc.freeze()


def end(status: int) -> NoReturn:
    """End this process at once, with everything that it has printed and without taking the interpreter down.

    To take down torch's modules takes a third of the time that their import does. And Gloo's threads outlive the
    process group of a DistributedDataParallel (torch 2.13). One that still frees the tensors of the last reduction
    while the interpreter is taken down aborts the process ("terminate called without an active exception"), after its
    work is done.
    """
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None:
        mpi.Finalize()  # as mpi4py does when the interpreter is taken down
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def node_name() -> str:
    """The name of this node; in a job SLURM's name if it gives one, since it may run several nodes on one host."""
    return (slurm_job() and os.environ.get("SLURMD_NODENAME")) or socket.gethostname()


def age_s() -> float:
    """Seconds since this process started, by a clock that cannot be set: the time of day may step back."""
    # Field 22 of proc(5)'s stat.
    start = int(_fields(Path("/proc/self/stat").read_text())[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - start)


def _fields(stat: str) -> list[str]:
    """The fields of /proc/PID/stat after the command's name, which may contain anything; the first is the state."""
    return stat.rpartition(")")[2].split()
