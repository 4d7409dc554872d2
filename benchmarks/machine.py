"""The machine that a benchmark runs on: threads, cores and device while it runs, processes beside it, and what is kept of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import torch

from ketscale.errors import UserError
from ketscale.jobs import provenance
from ketscale.measure import host
from ketscale.process import THREAD_VARIABLES, keep_freed_memory

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "torch", "triton", "pennylane", "pennylane-lightning", "pennylane-lightning-gpu", "tensorcircuit-ng", "jax",
    "deepquantum", "qulacs", "pyqtorch", "qutip", "dynamiqs", "qiskit-dynamics",
)  # fmt: skip


@contextmanager
def prepared(threads: int) -> Iterator[list[int]]:
    """Threads and cores as asked, and an empty cache of compiled code; all as before afterwards. Yields the cores.

    As in training, freed memory is kept, which stays so. Binding to cores limits JAX, which has no setting for its threads.

    Raises:
        UserError: there are not that many cores.
    """
    provenance.snapshot()  # before anything is measured: a commit meanwhile is none of it
    environment, cores, torch_threads = dict(os.environ), os.sched_getaffinity(0), torch.get_num_threads()
    precision = torch.get_float32_matmul_precision()
    if threads > len(cores):
        raise UserError(f"--threads: {threads} asked for, {len(cores)} core(s) to run on")
    keep_freed_memory()
    with tempfile.TemporaryDirectory(prefix="ketscale-bench-") as cache:
        try:
            os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)), KETSCALE_CACHE=cache)
            torch.set_num_threads(threads)
            # No simulator may round to TF32.
            torch.set_float32_matmul_precision("highest")
            # NumPy's BLAS has started its threads already, which would take turns with others on these cores.
            with blas_threads(threads):
                yield host.bind(0, 1, threads)
        finally:
            os.environ.clear()
            os.environ.update(environment)
            host.bind_to(cores)
            torch.set_num_threads(torch_threads)
            torch.set_float32_matmul_precision(precision)


def blas_threads(threads: int) -> AbstractContextManager[object]:
    """NumPy's and SciPy's linear algebra on so many threads.

    A machine with torch and NumPy alone has no threadpoolctl: there the threads of NumPy's stay as the variables set them.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(threads, "blas")


def child(module: str, *words: object) -> list[str]:
    """The command that runs a module of the benchmarks in a process of its own, in `child_environment`."""
    return [sys.executable, "-m", f"benchmarks.{module}", *map(str, words)]


def child_environment(threads: int | None = None, given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables of such a process: it finds the benchmarks, and has so many threads."""
    paths = os.pathsep.join(filter(None, (str(ROOT), given.get("PYTHONPATH"))))
    variables = {} if threads is None else dict.fromkeys(THREAD_VARIABLES, str(threads))
    return {**given, "PYTHONPATH": paths, **variables}


def describe(
    threads: int,
    budget_s: float | None,
    cores: list[int],
    ceiling: Mapping[str, float | None],
    device: torch.device,
) -> dict[str, Any]:
    """What a benchmark ran on. ceiling: rates by name, where they were measured."""
    facts, code = host.describe(), provenance.snapshot()["code"]
    versions = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        **{name: facts[name] for name in ("cpu", "cores", "memory_bytes")},
        "bound_to": cores,
        "threads": threads,
        "budget_s": budget_s,
        "device": device.type,
        "gpu": _gpu(device),
        "ceiling": dict(ceiling),
        "versions": versions,
        "ketscale": code["version"],
        "commit": code["commit"],
        "dirty": code["dirty"],
    }


def _gpu(device: torch.device) -> dict[str, Any] | None:
    """The GPU with the versions that its times depend on; None on a CPU."""
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "processors": properties.multi_processor_count,
        "capability": f"{properties.major}.{properties.minor}",
        "driver": driver(),
        "cuda": torch.version.cuda,
    }


def driver() -> str | None:
    """The version of the GPU's driver; None where nvidia-smi does not tell."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return next(iter(result.stdout.split()), None) if result.returncode == 0 else None


# --- the device ---


def device_of(name: str) -> torch.device:
    """The device of the option `--device`.

    Raises:
        UserError: torch sees no CUDA GPU.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA GPU here; use --device cpu")
    return torch.device(name, 0) if name == "cuda" else torch.device(name)


def finished(call: Callable[[], T], device: torch.device) -> Callable[[], T]:
    """A call that ends when the device has done all of its work."""

    def waited() -> T:
        result = call()
        torch.cuda.synchronize(device)
        return result

    return waited if device.type == "cuda" else call


def peak_bytes(call: Callable[[], Any], device: torch.device) -> int | None:
    """The most that a call takes of a GPU's memory beyond what was taken before.

    None on a CPU, and for a call that takes nothing through torch.
    """
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    finished(call, device)()
    return (torch.cuda.max_memory_allocated(device) - before) or None
