"""One rank of `ketscale bench ranks`: `python -m ketscale.bench.rank LAYOUT MODEL QUBITS BATCH REPEATS`.

Rank 0 prints what it measured as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median
from typing import Any

import torch

from ketscale.bench import steps
from ketscale.measure import host
from ketscale.measure.spans import Recorder, recording
from ketscale.parallel.world import World, open_world
from ketscale.process import end, keep_freed_memory
from ketscale.training.step import Stepper

MARK = "KETSCALE RANK "
# Steps of a loop; the all-reduce alone and steps in parts have as many calls.
LOOP = 10
ARM = {True: steps.CLASSICAL, False: "fused"}


def measured(cell: steps.ModelCell, world: World, repeats: int) -> dict[str, Any]:
    """Seconds of a step, of its communication and of the all-reduce alone, in turns; known on every rank."""
    problem, protocol = steps.posed(cell, ARM[steps.MODELS[cell.model].classical], world.device)
    stepper = Stepper(problem, world, protocol)
    samples = torch.arange(cell.batch)
    figures = stepper.take(samples, 0)
    loss = float(problem.combine(world.allreduce(figures.sums), figures.count))
    message = torch.zeros_like(stepper.flat.gradients)
    found: dict[str, list[float]] = {"step_s": [], "communication_s": [], "wait_s": [], "library_s": []}
    for turn in range(1 + repeats):
        start = time.perf_counter()
        for number in range(LOOP):
            stepper.take(samples, 1 + number)
        seconds = {"step_s": [(time.perf_counter() - start) / LOOP], "library_s": []}
        seconds |= {"communication_s": [], "wait_s": []}
        for number in range(LOOP):
            recorder = Recorder(world.device)
            with recording(recorder):
                stepper.take(samples, 1 + number)
            seconds["communication_s"].append(recorder.exclusive_s.get("communication", 0.0))
            seconds["wait_s"].append(recorder.exclusive_s.get("communication.wait", 0.0))
            # As in a step, the ranks meet first.
            world.barrier()
            start = time.perf_counter()
            world.library_add(message)
            seconds["library_s"].append(time.perf_counter() - start)
        if turn:
            for name, values in seconds.items():
                found[name] += values
    gradient_bytes = sum(p.numel() * p.element_size() for p in stepper.parameters)
    return {"loss": loss, "gradient_bytes": gradient_bytes, "library": world.library} | {
        name: median(values) for name, values in found.items()
    }


def main(where: str, model: str, qubits: str, batch: str, repeats: str) -> None:
    """Measure a cell in a layout."""
    # As training does.
    keep_freed_memory()
    cell = steps.ModelCell(model, int(qubits), int(batch))
    run = steps.run_at(cell, ARM[steps.MODELS[model].classical], where)
    host.set_threads(run.threads)
    world = open_world(run)
    host.bind(world.local_rank, run.ranks // run.nodes, run.threads)
    result = measured(cell, world, int(repeats))
    if world.rank == 0:
        print(MARK + json.dumps(result), flush=True)
    world.close()
    # Gloo's threads may abort the interpreter's end.
    end(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
