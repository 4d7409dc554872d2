"""The processor that a benchmark computes on: calls that end when it has finished, its memory, what it is."""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import torch

from ketscale.errors import UserError

T = TypeVar("T")


def opened(name: str) -> torch.device:
    """The device of the option `--device`.

    Raises:
        UserError: torch sees no CUDA GPU.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA GPU here; use --device cpu")
    return torch.device(name, 0) if name == "cuda" else torch.device(name)


def finished(call: Callable[[], T], device: torch.device) -> Callable[[], T]:
    """A call that ends when the device has done all of its work."""
    if device.type == "cpu":
        return call

    def waited() -> T:
        result = call()
        torch.cuda.synchronize(device)
        return result

    return waited


def peak_bytes(call: Callable[[], Any], device: torch.device) -> int | None:
    """The most that a call takes of a GPU's memory beyond what was taken before.

    None on a CPU, and for a call that takes nothing through torch.
    """
    if device.type == "cpu":
        return None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return (torch.cuda.max_memory_allocated(device) - before) or None


def free_bytes(device: torch.device) -> int:
    """What a GPU has left for new allocations."""
    release(device)
    return int(torch.cuda.mem_get_info(device)[0])


def release(device: torch.device) -> None:
    """Give back memory that nothing refers to, such as that of a call that ran out of it."""
    if device.type == "cuda":
        gc.collect()
        # torch refuses while it believes that a graph is being captured, as after a capture that failed.
        with suppress(RuntimeError):
            torch.cuda.empty_cache()


def describe(device: torch.device) -> dict[str, Any] | None:
    """The GPU with the versions that its times depend on; None on a CPU."""
    if device.type == "cpu":
        return None
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "processors": properties.multi_processor_count,
        "capability": f"{properties.major}.{properties.minor}",
        "driver": _driver(),
        "cuda": torch.version.cuda,
    }


def _driver() -> str | None:
    """The version of the GPU's driver; None where nvidia-smi does not tell."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return next(iter(done.stdout.split()), None) if done.returncode == 0 else None
