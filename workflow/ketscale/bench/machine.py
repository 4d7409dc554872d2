"""The machine that a benchmark runs on: its threads and cores while it runs, and what is kept of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from ketscale.bench import device as devices
from ketscale.errors import UserError
from ketscale.jobs import provenance
from ketscale.measure import host
from ketscale.process import THREAD_VARIABLES, keep_freed_memory


@contextmanager
def prepared(threads: int) -> Iterator[list[int]]:
    """Threads and cores as asked, and an empty cache of compiled circuits; all as before afterwards.

    As in training, freed memory is kept, which stays so. Binding to cores is what limits JAX, which has no setting for its threads. Yields the cores.

    Raises:
        UserError: there are not that many cores.
    """
    provenance.taken()  # before anything is measured: a commit meanwhile is none of it
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
            yield host.bind(0, 1, threads)
        finally:
            os.environ.clear()
            os.environ.update(environment)
            host.bind_to(cores)
            torch.set_num_threads(torch_threads)
            torch.set_float32_matmul_precision(precision)


def describe(
    threads: int, budget_s: float, cores: list[int], ceiling: Mapping[str, float | None], device: torch.device
) -> dict[str, Any]:
    """What a benchmark ran on. ceiling: rates by name, where they were measured."""
    facts, code = host.describe(), provenance.taken()["code"]
    return {
        "cpu": facts["cpu"],
        "cores": facts["cores"],
        "bound_to": cores,
        "memory_bytes": facts["memory_bytes"],
        "threads": threads,
        "budget_s": budget_s,
        "device": device.type,
        "gpu": devices.describe(device),
        "ceiling": dict(ceiling),
        "versions": _versions(),
        "ketscale": code["version"],
        "commit": code["commit"],
        "dirty": code["dirty"],
    }


def _versions() -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in (
        "torch", "triton", "pennylane", "pennylane-lightning", "pennylane-lightning-gpu", "tensorcircuit-ng", "jax",
        "deepquantum", "qutip", "dynamiqs", "qiskit-dynamics",
    ):  # fmt: skip
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
