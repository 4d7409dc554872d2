"""The machine under a run: its processor, the ranks' threads and cores, a lock, and whether it was quiet."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import torch

from ketscale.errors import UserError
from ketscale.measure.environment import THREAD_VARIABLES, local_rank, node_name

QUIET_SHARE = 0.05


def cpu_model() -> str:
    """The processor's name as the kernel gives it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def describe() -> dict[str, Any]:
    """Host, processor, cores that this process may use, memory and GPUs."""
    return {
        "host": node_name(),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": [
            {
                "name": torch.cuda.get_device_properties(i).name,
                "uuid": str(torch.cuda.get_device_properties(i).uuid),
            }
            for i in range(torch.cuda.device_count())
        ],
    }


def set_threads(threads: int) -> None:
    """Give torch exactly `threads` threads.

    Raises:
        UserError: the launcher left another number in a thread pool's variable.
    """
    for name in THREAD_VARIABLES:
        if os.environ.get(name) != str(threads):
            raise UserError(
                f"{name} is {os.environ.get(name, 'not set')} but the run has {threads} thread(s) a rank: "
                f"start it through `ketscale launch`, or set {', '.join(THREAD_VARIABLES)} to {threads}"
            )
    torch.set_num_threads(threads)
    # One: this program never runs two operators at once, and a second pool would only idle.
    with contextlib.suppress(RuntimeError):  # it can be set once in a process; tests train twice in one
        torch.set_num_interop_threads(1)


def set_threads_of_all_cores(threads: int) -> None:
    """The mistake `oversubscribed`: every rank starts a thread on each core that it sees.

    Raises:
        UserError: the rank sees no more cores than it has threads, so nothing would be oversubscribed.
    """
    cores = len(os.sched_getaffinity(0))
    if cores <= threads:
        raise UserError(
            f"mistake oversubscribed starts a thread on every core, but this rank may use {cores} core(s) for its "
            f"{threads} thread(s): start the ranks unbound (srun --cpu-bind=none, mpiexec -bind-to none)"
        )
    torch.set_num_threads(cores)


def bind(local_rank: int, local_ranks: int, threads: int) -> list[int]:
    """Bind this process to its own `threads` cores and return them.

    Where there are fewer cores than the host's ranks need, or a scheduler has bound this rank already,
    nothing is changed; the record shows the cores either way.
    """
    cores = sorted(os.sched_getaffinity(0))
    if local_ranks * threads <= len(cores) != threads:
        cores = cores[local_rank * threads : (local_rank + 1) * threads]
        os.sched_setaffinity(0, cores)
    return cores


@contextlib.contextmanager
def alone(timed: bool) -> Iterator[None]:
    """Hold this host before the ranks' world begins: a timed run by itself, untimed runs together.

    Of a timed run's local ranks the first takes the lock and leaves there the id of the launcher that
    started them all; the others sleep until they read it. (A collective would do, but MPI waits by
    spinning, which would disturb the very run that is waited for.)
    """
    path = Path(tempfile.gettempdir()) / f"ketscale-host-{node_name()}.lock"
    previous = os.umask(0)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    finally:
        os.umask(previous)
    launcher = f"{os.getppid():<20}".encode()
    try:
        if not timed:
            fcntl.flock(file, fcntl.LOCK_SH)
        elif local_rank() == 0:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.pwrite(file, launcher, 0)
        else:
            while os.pread(file, len(launcher), 0) != launcher:
                time.sleep(0.02)
        yield
    finally:
        os.close(file)


class Quiet:
    """How much of the host's processor time went to others, from the kernel's accounting, since construction."""

    def __init__(self) -> None:
        self._start_s = time.perf_counter()
        self._busy, self._steal = _busy_seconds()
        self._own = own_cpu_seconds()

    def own_s(self) -> float:
        """Processor seconds of this process and its finished children since construction."""
        return own_cpu_seconds() - self._own

    def report(self, ranks_own_s: float) -> dict[str, Any]:
        """The shares of all cores used by others and stolen by the hypervisor; `ranks_own_s` is the run's own use."""
        busy, steal = _busy_seconds()
        capacity = (time.perf_counter() - self._start_s) * (os.cpu_count() or 1)
        others = max(0.0, (busy - self._busy) - ranks_own_s) / capacity
        return {
            "quiet": others <= QUIET_SHARE,
            "others_share": others,
            "steal_share": max(0.0, steal - self._steal) / capacity,
        }


def _busy_seconds() -> tuple[float, float]:
    times = psutil.cpu_times()
    busy = (
        times.user + times.nice + times.system + getattr(times, "irq", 0.0) + getattr(times, "softirq", 0.0)
    )
    return busy, getattr(times, "steal", 0.0)


def own_cpu_seconds() -> float:
    """Processor seconds of this process and its finished children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def peak_rss_bytes() -> int:
    """Largest resident memory of this process so far; getrusage would count that of the process that started it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM")


def git_state(folder: Path) -> dict[str, Any]:
    """Commit and dirty flag of the checkout that the package runs from; None outside git."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    status = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}
