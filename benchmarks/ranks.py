"""`ketscale bench ranks`: training steps on several ranks, their communication, and what its library takes alone."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import torch

from benchmarks import machine, steps
from benchmarks.options import all_cores, names, number, numbers, option
from benchmarks.runner import FAILED, WRONG, Column, Row, Rows, declared, time_or_status
from benchmarks.steps import ModelCase, TrainingSteps
from ketscale.errors import UserError
from ketscale.grid import BACKENDS
from ketscale.jobs import provenance
from ketscale.jobs.launch import environment, prefix_here
from ketscale.measure import host
from ketscale.parallel.world import World, open_world
from ketscale.process import end, keep_freed_memory
from ketscale.spans import Recorder, recording
from ketscale.training.step import Stepper
from ketscale.words import duration

ALONE = "cpu-n1r1t1"
# First losses of the same weights and samples in fp32.
LOSS_TOLERANCE = 1e-4
# Each case starts every layout so often, in turns: processes cannot take turns in their steps.
ROUNDS = 3
# Steps of a loop; the all-reduce alone and steps in parts have as many calls.
LOOP = 10
# Before what rank 0 measured, as one line of JSON.
MARK = "KETSCALE RANK "
SEVERAL = [name for name, backend in BACKENDS.items() if backend.several_ranks and backend.device == "cpu"]


@dataclass(kw_only=True)
class Ranks(TrainingSteps):
    """Ranks are on the CPUs of this host, one thread each.

    Times of a start are medians over steps of rank 0; those of a row are medians over starts. The speedup of each start is
    over the one rank that was started just before.
    """

    text = "training steps on one and on several CPU ranks, and their communication"
    subject = "layout"
    columns = (
        Column("speedup", "speedup", "{:.2f}".format),
        declared("gradient_bytes"),
        # In steps in parts: the exposed communication, and waiting for the slowest rank before it.
        Column("communication_s", "communication", duration),
        Column("wait_s", "wait", duration),
        # The library's own all-reduce of as many bytes, after a barrier too.
        Column("library_s", "all-reduce alone", duration),
        Column("library"),
    )

    models: tuple[str, ...] = option(("vqc",), names(steps.LABELLED_MODELS), "models")
    batch: tuple[int, ...] = option((64, 1024), numbers(1), "global batch sizes")
    backends: tuple[str, ...] = option(
        ("ddp-cpu", "mpi"), names(SEVERAL), "ddp-cpu, mpi or both (the default)"
    )
    ranks: tuple[int, ...] = option((2,), numbers(2), "numbers of ranks")
    repeats: int = option(10, number(5), "loops of ten steps, at least 5")
    threads: int = 1

    def subjects(self, case: ModelCase) -> list[str]:
        """One rank, then several."""
        return [ALONE, *(f"{backend}-n1r{ranks}t1" for backend in self.backends for ranks in self.ranks)]

    def prepared(self) -> AbstractContextManager[list[int]]:
        """Ranks bind themselves.

        Raises:
            UserError: a layout has more ranks than there are cores.
        """
        provenance.snapshot()
        cores = all_cores()
        if max(self.ranks) > cores:
            raise UserError(f"--ranks: {max(self.ranks)} asked for, {cores} core(s) to run on")
        return nullcontext(list(range(cores)))

    def measure(self, case: ModelCase) -> Rows:
        """See `Benchmark.measure`: here whole layouts take turns."""
        value: dict[str, list[dict[str, Any] | str]] = {layout: [] for layout in self.subjects(case)}
        for _ in range(ROUNDS):
            for layout, results in value.items():
                results.append(_started(case, layout, self.repeats))
        single = [result for result in value[ALONE] if not isinstance(result, str)]
        return [_filled(self.row(case, layout), results, single) for layout, results in value.items()]

    @classmethod
    def said(cls, row: Row) -> str:
        """The time and where it goes."""
        if row["median_s"] is None:
            return f"{row['status']} ({row['reason']})"
        if row["layout"] == ALONE or row["speedup"] is None:
            return time_or_status(row)
        return (
            f"{time_or_status(row)} ({row['speedup']:.2f} times as fast; communication "
            f"{duration(row['communication_s'])}, all-reduce alone {duration(row['library_s'])})"
        )


def _filled(row: Row, results: list[dict[str, Any] | str], single: list[dict[str, Any]]) -> Row:
    """The row of a layout with what its starts gave."""
    timed = [result for result in results if not isinstance(result, str)]
    if len(timed) < len(results):
        failed = next(result for result in results if isinstance(result, str))
        return row | {"status": FAILED, "reason": failed}
    if single:
        loss, reference = timed[0]["loss"], single[0]["loss"]
        if not abs(loss - reference) <= LOSS_TOLERANCE * abs(reference):  # NaN fails too
            return row | {"status": WRONG, "reason": f"loss {loss:.6g}, on one rank {reference:.6g}"}
    seconds = [result["step_s"] for result in timed]
    low, middle, high = quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else seconds * 3
    row |= {"median_s": middle, "iqr_s": high - low, "repeats": len(seconds)}
    row |= {
        name: median(result[name] for result in timed) for name in ("communication_s", "wait_s", "library_s")
    }
    row |= {name: timed[0][name] for name in ("gradient_bytes", "library")}
    if len(single) == len(timed):
        row["speedup"] = median(
            one["step_s"] / each["step_s"] for one, each in zip(single, timed, strict=True)
        )
    return row


def _started(case: ModelCase, layout: str, repeats: int) -> dict[str, Any] | str:
    """What rank 0 of a layout measured, or the last line that its processes said."""
    run = steps.run_at(case, steps.arms(case.model)[0], layout)
    command = shlex.join(machine.child("ranks", layout, *case, repeats))
    outcome = subprocess.run(
        ["sh", "-c", f"exec {prefix_here(run)} {command}"],
        env=machine.child_environment(None, environment()),
        capture_output=True,
        text=True,
    )
    for line in outcome.stdout.splitlines():
        if MARK in line:
            result: dict[str, Any] = json.loads(line.split(MARK, 1)[1])
            return result
    message = [line for line in (outcome.stderr + outcome.stdout).splitlines() if line.strip()]
    return message[-1][:200] if message else f"ended with status {outcome.returncode}"


# --- a rank ---


def _measured(case: ModelCase, world: World, repeats: int) -> dict[str, Any]:
    """Seconds of a step, of its communication and of the all-reduce alone, in turns; known on every rank."""
    problem, protocol = steps.problem_of(case, steps.arms(case.model)[0], world.device)
    stepper = Stepper(problem, world, protocol)
    samples = torch.arange(case.batch)
    figures = stepper.take(samples, 0)
    loss = float(problem.combine(world.allreduce(figures.sums), figures.count))
    message = torch.zeros_like(stepper.flat.gradients)
    for turn in range(1 + repeats):
        if turn <= 1:  # the first one warms up
            result: dict[str, list[float]] = {
                name: [] for name in ("step_s", "communication_s", "wait_s", "library_s")
            }
        start = time.perf_counter()
        for step in range(LOOP):
            stepper.take(samples, 1 + step)
        result["step_s"].append((time.perf_counter() - start) / LOOP)
        for step in range(LOOP):
            recorder = Recorder(world.device)
            with recording(recorder):
                stepper.take(samples, 1 + step)
            result["communication_s"].append(recorder.exclusive_s.get("communication", 0.0))
            result["wait_s"].append(recorder.exclusive_s.get("communication.wait", 0.0))
            # As in a step, the ranks meet first.
            world.barrier()
            start = time.perf_counter()
            world.library_add(message)
            result["library_s"].append(time.perf_counter() - start)
    gradient_bytes = sum(p.numel() * p.element_size() for p in stepper.parameters)
    medians = {name: median(values) for name, values in result.items()}
    return {"loss": loss, "gradient_bytes": gradient_bytes, "library": world.library, **medians}


def _rank(layout: str, model: str, qubits: str, batch: str, repeats: str) -> None:
    """Measure a case in a layout, as one of its ranks; rank 0 prints it."""
    # As training does.
    keep_freed_memory()
    case = ModelCase(model, int(qubits), int(batch))
    run = steps.run_at(case, steps.arms(model)[0], layout)
    host.set_threads(run.threads)
    world = open_world(run)
    host.bind(world.local_rank, run.ranks // run.nodes, run.threads)
    result = _measured(case, world, int(repeats))
    if world.rank == 0:
        print(MARK + json.dumps(result), flush=True)
    world.close()
    # Gloo's threads may abort the interpreter's end.
    end(0)


if __name__ == "__main__":
    _rank(*sys.argv[1:])
