"""`ketscale bench layouts`: a training step by one process with one or all threads, and by as many processes.

Each process takes its share of the batch with one thread, as a rank does, but nothing is reduced. So what ranks gain
over threads here is a weakness of one process, not of the cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from ketscale.bench import machine, steps, stopwatch
from ketscale.bench.rows import TIMED
from ketscale.bench.selection import all_cores, at_least, names_of, numbers_of
from ketscale.bench.steps import ModelCell
from ketscale.errors import UserError
from ketscale.measure import host
from ketscale.process import THREAD_VARIABLES, keep_freed_memory

READY, DONE = "ready", "done"


@dataclass(frozen=True)
class LayoutSelection:
    """The arguments of `ketscale bench layouts`. threads: of one process, and the number of processes."""

    models: tuple[str, ...] = ("hydra",)
    qubits: tuple[int, ...] = (6, 8)
    batches: tuple[int, ...] = (32, 128)
    repeats: int = 15
    threads: int = field(default_factory=all_cores)

    def cells(self) -> Iterator[ModelCell]:
        """All cells; a classical model has no qubits to vary."""
        return steps.cells(self.models, self.qubits, self.batches)


@dataclass(frozen=True)
class LayoutRow:
    """A training step of a model by a layout, of a classical model's own kind or by fused.

    ranks, threads: processes, and threads of each. median_s, iqr_s: until the last process has finished its step,
        median and interquartile range over `repeats`.
    """

    model: str
    qubits: int
    batch: int
    simulator: str
    ranks: int
    threads: int
    status: str
    median_s: float
    iqr_s: float
    repeats: int


def parse(
    *,
    models: str | None = None,
    qubits: str | None = None,
    batch: str | None = None,
    repeats: str | None = None,
    threads: str | None = None,
) -> LayoutSelection:
    """The selection of the command's options: lists separated by commas, None where not given.

    Raises:
        UserError: a value is not a number, too small, or not the name of a model of trials or images; or a batch has
            fewer samples than there are processes.
    """
    default = LayoutSelection()
    able = [name for name in steps.MODELS if name not in steps.ON_SENTENCES]
    selection = LayoutSelection(
        models=names_of("--models", models, able) or default.models,
        qubits=numbers_of("--qubits", qubits, 2) or default.qubits,
        batches=numbers_of("--batch", batch, 1) or default.batches,
        repeats=at_least("--repeats", repeats, int, 5) if repeats is not None else default.repeats,
        threads=at_least("--threads", threads, int, 2) if threads is not None else default.threads,
    )
    if selection.threads < 2:
        raise UserError("bench layouts compares threads with processes: it needs 2 cores or more")
    if min(selection.batches) < selection.threads:
        raise UserError(f"--batch: every process needs a sample: at least {selection.threads}")
    return selection


def measure(
    selection: LayoutSelection, show: Callable[[ModelCell, list[LayoutRow]], None] = lambda cell, rows: None
) -> dict[str, Any]:
    """Measure all cells, `show` each as it finishes; {'machine', 'cells', 'rows'}, ready for JSON.

    Raises:
        UserError: there are not that many cores.
    """
    cells, rows, measured = list(selection.cells()), list[LayoutRow](), 0
    # Ctrl-C keeps the cells that are finished.
    with machine.prepared(selection.threads) as cores, suppress(KeyboardInterrupt):
        for cell in cells:
            done = _measured(cell, cores, selection.repeats)
            show(cell, done)
            rows += done
            measured += 1
    return {
        "machine": machine.describe(selection.threads, 0.0, cores, {}, torch.device("cpu")),
        "cells": {"asked": len(cells), "measured": measured},
        "rows": [asdict(row) for row in rows],
    }


def _measured(cell: ModelCell, cores: Sequence[int], repeats: int) -> list[LayoutRow]:
    """The layouts of a cell, which take turns."""
    # The cores of each process.
    layouts: tuple[list[Sequence[int]], ...] = ([cores[:1]], [cores], [[core] for core in cores])
    with ExitStack() as stack:
        calls = {
            str(number): stack.enter_context(_processes(cell, layout))
            for number, layout in enumerate(layouts)
        }
        timings = stopwatch.steady(calls, repeats)
    arm = steps.arms(cell.model)[0]
    return [
        LayoutRow(*cell, arm, len(layout), len(layout[0]), TIMED, **asdict(timings[str(number)]))
        for number, layout in enumerate(layouts)
    ]


@contextmanager
def _processes(cell: ModelCell, layout: Sequence[Sequence[int]]) -> Iterator[Callable[[], None]]:
    """Processes with a share of the cell each; calling makes all of them take a step at the same time."""
    shares = [len(share) for share in torch.arange(cell.batch).tensor_split(len(layout))]
    running: list[subprocess.Popen[str]] = []
    try:
        for share, cores in zip(shares, layout, strict=True):
            words = (cell.model, cell.qubits, share, ",".join(map(str, cores)))
            running.append(
                subprocess.Popen(
                    [sys.executable, "-m", "ketscale.bench.layouts", *map(str, words)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    bufsize=1,
                    env={**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(len(cores)))},
                )
            )
        _await(running, READY)

        def step() -> None:
            for process in running:
                assert process.stdin
                process.stdin.write("\n")
            _await(running, DONE)

        yield step
    finally:
        for process in running:
            # Its input ends, and so does it.
            process.communicate()


def _await(running: Sequence[subprocess.Popen[str]], word: str) -> None:
    for process in running:
        assert process.stdout
        if process.stdout.readline().strip() != word:
            raise UserError("bench layouts: a process ended before its step was finished; its error is above")


def _serve(model: str, qubits: str, batch: str, cores: str) -> None:
    """Take a step for each line of input."""
    mine = [int(core) for core in cores.split(",")]
    keep_freed_memory()
    host.bind_to(mine)
    torch.set_num_threads(len(mine))
    call = steps.step(ModelCell(model, int(qubits), int(batch)), steps.arms(model)[0])
    call()
    print(READY, flush=True)
    for _ in sys.stdin:
        call()
        print(DONE, flush=True)


def summary(rows: Sequence[dict[str, Any]]) -> list[str]:
    """By cell: what threads and what processes gain over one thread, and the ratio of both."""
    cells: dict[ModelCell, list[float]] = {}
    for row in rows:
        cell = ModelCell(row["model"], row["qubits"], row["batch"])
        cells.setdefault(cell, []).append(row["median_s"])
    return [
        f"{cell}: threads {one / threads:.3g}x, processes {one / processes:.3g}x, "
        f"threads take {threads / processes:.3g}x as long as processes"
        for cell, (one, threads, processes) in cells.items()
    ]


if __name__ == "__main__":
    _serve(*sys.argv[1:])
