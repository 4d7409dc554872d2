"""The machine: processor, GPU, driver, and which optional packages it has."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sysconfig
from pathlib import Path

import torch

from tests.nightly.gpu.measure import Part

PACKAGES = (
    "torch", "triton", "numpy", "llvmlite", "msgspec", "psutil", "scipy", "scikit-learn", "transformers", "mpi4py",
    "pennylane", "pennylane-lightning", "pennylane-lightning-gpu", "qiskit", "jax", "tensorcircuit-ng", "snakemake",
)  # fmt: skip


def measure(part: Part) -> None:
    """Say what is here; what is absent is null."""
    result: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            result[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            result[name] = None
    part.say(
        python=platform.python_version(),
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        packages=result,
        gpus=[_gpu(number) for number in range(torch.cuda.device_count())],
        driver=_driver(),
        cuda=torch.version.cuda,
        # Triton compiles the launcher of each kernel on the machine itself.
        compiler=shutil.which("gcc") or shutil.which("clang") or shutil.which("cc"),
        python_headers=Path(sysconfig.get_path("include"), "Python.h").exists(),
    )


def _cpu() -> str:
    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _gpu(number: int) -> dict[str, object]:
    about = torch.cuda.get_device_properties(number)
    return {
        "name": about.name,
        "capability": f"{about.major}.{about.minor}",
        "memory_bytes": about.total_memory,
        "multiprocessors": about.multi_processor_count,
    }


def _driver() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.CalledProcessError):
        return None
