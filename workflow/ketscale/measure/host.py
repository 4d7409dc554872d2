"""The machine under a run: its processor, the ranks' threads and cores, a lock, and whether it was quiet."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import psutil
import torch

from ketscale.errors import UserError
from ketscale.measure import topology
from ketscale.measure.process import THREAD_VARIABLES, local_rank, node_name

# Of the run's cores; where others used more of them, the run was not timed alone.
QUIET_SHARE = 0.05
_STAT = Path("/proc/stat")


def cpu_model() -> str:
    """The processor's name as the kernel gives it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def describe() -> dict[str, Any]:
    """Host, processor, logical CPUs that this process may use and their cores (see Topology), memory and GPUs."""
    allowed, found = sorted(os.sched_getaffinity(0)), topology.read()
    return {
        "host": node_name(),
        "cpu": cpu_model(),
        "cores": len(allowed),
        "topology": found
        and {
            "sockets": found.sockets,
            "physical_cores": found.physical_cores,
            "threads_per_core": found.threads_per_core,
            "core_of": {str(cpu): found.core_of.get(cpu) for cpu in allowed},
        },
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
    """Bind this process to `threads` logical CPUs of its own and return them.

    The host's threads get physical cores of their own where there are enough; else some share a core, which
    `topology.shared_cores` tells. Where there are fewer CPUs than the host's ranks need, or a scheduler has
    bound this rank already, nothing is changed; the record shows the CPUs either way.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if local_ranks * threads <= len(cpus) != threads:
        chosen = topology.choose(topology.read(), cpus, local_ranks * threads)
        cpus = sorted(chosen[local_rank * threads : (local_rank + 1) * threads])
        bind_to(cpus)
    return cpus


def bind_to(cpus: Collection[int]) -> None:
    """Bind every thread of this process to some logical CPUs; libraries start threads when they are imported."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), cpus)


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
    """How much others used the cores of a run, from the kernel's accounting, since construction.

    Args:
        cpus: the logical CPUs that the run may use on this host; those that share their cores are watched too,
            since work there slows the run. Where the kernel does not count them one by one, the whole host is.
    """

    def __init__(self, cpus: Collection[int]) -> None:
        watched = topology.whole_cores(topology.read(), cpus)
        self._cpus = sorted(watched) if watched <= set(_processor_seconds()) else None
        self._start_s = time.perf_counter()
        self._busy, self._steal = self._used()
        self._own = own_cpu_seconds()

    def own_s(self) -> float:
        """Processor seconds of this process and its finished children since construction."""
        return own_cpu_seconds() - self._own

    def report(self, ranks_own_s: float) -> dict[str, Any]:
        """The shares of the watched CPUs used by others and stolen by the hypervisor.

        Args:
            ranks_own_s: processor seconds of the run's ranks on this host since construction.

        Returns:
            Both shares, whether the first is at most QUIET_SHARE, and the CPUs (None: the whole host).
        """
        busy, steal = self._used()
        count = (os.cpu_count() or 1) if self._cpus is None else len(self._cpus)
        capacity = (time.perf_counter() - self._start_s) * count
        others = max(0.0, (busy - self._busy) - ranks_own_s) / capacity
        return {
            "quiet": others <= QUIET_SHARE,
            "others_share": others,
            "steal_share": max(0.0, steal - self._steal) / capacity,
            "cpus": self._cpus,
        }

    def _used(self) -> tuple[float, float]:
        """Seconds since boot that the watched CPUs worked, and that the hypervisor took from them."""
        seconds = _processor_seconds()
        used = [seconds[cpu] for cpu in ([None] if self._cpus is None else self._cpus)]
        return sum(busy for busy, _ in used), sum(steal for _, steal in used)


def _processor_seconds() -> dict[int | None, tuple[float, float]]:
    """Busy and stolen seconds since boot of each logical CPU, and under None of all of them (proc(5), /proc/stat)."""
    hertz = os.sysconf("SC_CLK_TCK")
    found: dict[int | None, tuple[float, float]] = {}
    for line in _STAT.read_text().splitlines():
        if line.startswith("cpu"):
            name, *ticks = line.split()
            user, nice, system, _, _, irq, softirq, steal = map(int, ticks[:8])
            number = name.removeprefix("cpu")
            busy = (user + nice + system + irq + softirq) / hertz
            found[int(number) if number else None] = (busy, steal / hertz)
    return found


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
    """Commit and dirty flag of the checkout that `folder`, with what it holds, belongs to; None where git does not track it.

    A package that is installed in an environment is not of the repository around that environment.
    """

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", ".") is None:
        return {"commit": None, "dirty": None}
    status = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}
