"""From which batch and size a GPU beats 1, 2, 8 and 16 cores of the same machine: `fused` on both, loss and gradients."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import torch

from benchmarks import circuits, machine, stopwatch
from ketscale.engines.graphs import NoGraph, captured
from tests.nightly.gpu.measure import Part

ANSATZ = "strongly_entangling"
QUBITS = (4, 8, 12)
BATCHES = (1, 32, 256, 2048, 8192)
# The most first, in case the time is over before the end.
THREADS = (16, 1, 8, 2)
# A slower cell is left out, and the larger batches of its line with it.
LONGEST_S = 2.0
REPEATS = 3


def measure(part: Part) -> None:
    """The GPU in this process; each number of threads in one of its own, since they are set once."""
    here = len(os.sched_getaffinity(0))
    if torch.cuda.is_available():
        line(part, "cuda", 1)
    for threads in (count for count in THREADS if count <= here):
        if part.left() < 5:
            part.say(threads=threads, skipped="the time was over")
            continue
        code = "import sys; from tests.nightly.gpu.parts.crossing import cells_of; cells_of(int(sys.argv[1]), float(sys.argv[2]))"
        subprocess.run([sys.executable, "-c", code, str(threads), f"{part.left():.0f}"], check=True)


def cells_of(threads: int, seconds: float) -> None:
    """The cells of a number of threads."""
    from pathlib import Path

    line(Part(Path(os.environ["KETSCALE_GPU_OUT"]), seconds), "cpu", threads)


def line(part: Part, where: str, threads: int) -> None:
    """Time every cell on a device, smaller batches first."""
    device = machine.device_of(where)
    with machine.prepared(threads):
        subject = circuits.create("fused", device)
        for qubits in QUBITS:
            for batch in BATCHES:
                if part.left() < 6:
                    return
                case = circuits.CircuitCase(ANSATZ, qubits, batch, circuits.ANSAETZE[ANSATZ].layers)
                call = subject.prepare(circuits.loss_of(case, np.float32))
                calls = {"eager": machine.finished(call, device)}
                if device.type == "cuda":
                    graph = captured(call, device, None)
                    if not isinstance(graph, NoGraph):
                        calls["graph"] = machine.finished(graph, device)
                result = stopwatch.steady(calls, REPEATS)
                times = {name: timing.median_s for name, timing in result.items()}
                spread = {name: timing.iqr_s for name, timing in result.items()}
                part.say(device=where, threads=threads, cell=case._asdict(), median_s=times, iqr_s=spread)
                if min(times.values()) > LONGEST_S / 4:
                    break
