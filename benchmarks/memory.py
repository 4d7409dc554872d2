"""What a training step needs in memory, in a process of its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import torch

from benchmarks import machine, steps
from benchmarks.runner import OUT_OF_MEMORY
from benchmarks.steps import ModelCase
from ketscale.measure import host
from ketscale.optional import needed_for
from ketscale.process import keep_freed_memory

# This share of the free memory may be used; above it a step fails instead of taking the machine down.
SHARE = 0.9
WARM_STEPS = 2


def peak_bytes(case: ModelCase, arm: str, threads: int) -> int | str:
    """The most that two training steps need beyond what the process had before, or why that is not known."""
    result = subprocess.run(
        machine.child("memory", *case, arm, threads),
        env=machine.child_environment(threads),
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode == 0:
        return int(json.loads(result.stdout))
    last = (result.stderr.strip().splitlines() or [f"exit status {result.returncode}"])[-1]
    words = ("MemoryError", "can't allocate memory", "std::bad_alloc", "exit status -9")
    return OUT_OF_MEMORY if any(word in last for word in words) else last


def _measured(model: str, qubits: str, batch: str, arm: str, threads: str) -> int:
    with needed_for("ketscale bench models", "bench"):
        import psutil

    keep_freed_memory()
    torch.set_num_threads(int(threads))
    call = steps.step(ModelCase(model, int(qubits), int(batch)), arm)
    process = psutil.Process()
    before = process.memory_info().rss
    limit = process.memory_info().vms + int(SHARE * psutil.virtual_memory().available)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for _ in range(WARM_STEPS):
        call()
    return max(0, host.peak_rss_bytes() - before)


if __name__ == "__main__":
    print(json.dumps(_measured(*sys.argv[1:])))
