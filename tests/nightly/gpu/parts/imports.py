"""The kit's packages, and what of KetScale runs on them, import in this Python."""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path

from tests.nightly.gpu.measure import Part

# Each package of envs/gpu-kit.lock by a module that needs its compiled part, if it has one.
PACKAGES = (
    "iniconfig", "llvmlite.binding", "msgspec", "packaging.version", "pluggy", "psutil", "pygments", "pytest",
    "safetensors.torch", "tqdm", "yaml",
)  # fmt: skip
OURS = (
    "ketscale", "ketscale.engines.circuits.fused.gpu", "ketscale.engines.circuits.fused.cpu", "benchmarks.circuits",
    "benchmarks.models", "tests.nightly.gpu.kernels", "ketscale.problems.library", "ketscale.training.loop",
    "ketscale.parallel.ddp", "ketscale.jobs.session", "ketscale.jobs.launch", "ketscale.cli", "ketscale.analysis",
)  # fmt: skip


def measure(part: Part) -> None:
    """Import all, say how long each took, and fail if one cannot be imported."""
    kit = Path(os.environ["PYTHONPATH"].split(os.pathsep)[0])
    failed = []
    for name in (*PACKAGES, *OURS):
        start = time.perf_counter()
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            failed.append(name)
            part.say(imported=name, failed=f"{type(error).__name__}: {error}")
            continue
        place = module.__file__ or ""
        part.say(imported=name, seconds=round(time.perf_counter() - start, 3), kit=place.startswith(str(kit)))
    if failed:
        sys.exit(f"cannot be imported: {', '.join(failed)}")
