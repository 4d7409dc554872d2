"""What a training step needs in memory: measured in a process of its own, `python -m ketscale.bench.memory CELL ARM`."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence

from ketscale.bench.rows import OUT_OF_MEMORY
from ketscale.bench.steps import ModelCell

# Of the memory that is free; above it a step fails instead of taking the machine down.
SHARE = 0.9
WARM_STEPS = 2


def peak_bytes(cell: ModelCell, arm: str, threads: int) -> int | str:
    """The most that two training steps need beyond what the process had before, or why that is not known."""
    arguments = [sys.executable, "-m", "ketscale.bench.memory", *map(str, cell), arm, str(threads)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return int(json.loads(done.stdout))
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    words = ("MemoryError", "can't allocate memory", "std::bad_alloc", "exit status -9")
    return OUT_OF_MEMORY if any(word in last for word in words) else last


def _measure(arguments: Sequence[str]) -> int:
    import psutil
    import torch

    from ketscale.bench import steps
    from ketscale.measure import host
    from ketscale.process import keep_freed_memory

    keep_freed_memory()
    model, qubits, batch, arm, threads = arguments
    torch.set_num_threads(int(threads))
    call = steps.step(ModelCell(model, int(qubits), int(batch)), arm)
    process = psutil.Process()
    before = process.memory_info().rss
    limit = process.memory_info().vms + int(SHARE * psutil.virtual_memory().available)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for _ in range(WARM_STEPS):
        call()
    return max(0, host.peak_rss_bytes() - before)


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1:])))
