"""The host of a run: its processor, and the threads and cores of its ranks."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from ketscale.errors import UserError
from ketscale.measure import topology
from ketscale.process import THREAD_VARIABLES, node_name


def cpu_model() -> str:
    """The name of the processor, from the kernel."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def describe() -> dict[str, Any]:
    """Host, processor, memory, GPUs, and the logical CPUs that this process may use, with cores (see `topology.Processors`)."""
    allowed, cores = sorted(os.sched_getaffinity(0)), topology.read()
    gpus = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return {
        "host": node_name(),
        "cpu": cpu_model(),
        "cores": len(allowed),
        "topology": cores
        and {**vars(cores), "core_of": {str(cpu): cores.core_of.get(cpu) for cpu in allowed}},
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "gpus": [{"name": gpu.name, "uuid": str(gpu.uuid)} for gpu in gpus],
    }


def layouts(cores: int, gpus: int) -> list[str]:
    """The layouts that a machine offers: threads, or ranks of one thread, 1, 2, 4, ... and all of its cores or GPUs."""

    def counts(most: int) -> list[int]:
        return sorted({2**power for power in range(most.bit_length())} | {most} - {0})

    mpi = ["mpi"] if importlib.util.find_spec("mpi4py") and shutil.which("mpirun") else []
    names = [f"cpu-n1r1t{count}" for count in counts(cores)]
    names += [f"{backend}-n1r{count}t1" for backend in (*mpi, "ddp-cpu") for count in counts(cores)[1:]]
    return names + [f"ddp-n1r{count}t1" if count > 1 else "gpu-n1r1t1" for count in counts(gpus)]


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
    # This program never runs two operators at once, so a second pool would be idle.
    with contextlib.suppress(
        RuntimeError
    ):  # it can be set only once in a process, but tests train twice in one
        torch.set_num_interop_threads(1)


def set_threads_of_all_cores(threads: int) -> None:
    """The misconfiguration `oversubscribed`: every rank starts a thread for each core that it may use.

    Raises:
        UserError: the rank has as many threads as cores, or more, so nothing would be oversubscribed.
    """
    cores = len(os.sched_getaffinity(0))
    if cores <= threads:
        raise UserError(
            f"mistake oversubscribed starts a thread for every core, but this rank may use {cores} core(s) for its "
            f"{threads} thread(s): start the ranks unbound (srun --cpu-bind=none, mpiexec -bind-to none)"
        )
    torch.set_num_threads(cores)


def bind(local_rank: int, local_ranks: int, threads: int) -> list[int]:
    """Bind this process to `threads` logical CPUs of its own and return them.

    Each thread gets a physical core of its own if there are enough; otherwise some share a core, and
    `topology.shared_cores` says so. If there are fewer CPUs than the host's ranks need, or a scheduler has already
    bound this rank, nothing is changed. The record shows the CPUs in any case.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if local_ranks * threads <= len(cpus) != threads:
        cores = topology.choose(topology.read(), cpus, local_ranks * threads)
        cpus = sorted(cores[local_rank * threads : (local_rank + 1) * threads])
        bind_to(cpus)
    return cpus


def bind_to(cpus: Collection[int]) -> None:
    """Bind every thread of this process to some logical CPUs; libraries have started threads on import."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), cpus)


def peak_rss_bytes() -> int:
    """Peak resident memory of this process; getrusage would include that of the process that started it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM")
