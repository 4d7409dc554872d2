"""The protocol of a benchmark: per cell a first call, parity, then all simulators timed in turns."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import ketscale
from ketscale.bench import agreement, ceiling, stopwatch, subjects
from ketscale.bench.arithmetic import literal_flops
from ketscale.bench.own import Own
from ketscale.bench.problem import Call, Subject, problem
from ketscale.bench.selection import FLOOR, Cell, Selection
from ketscale.errors import UserError
from ketscale.measure import host
from ketscale.measure.process import THREAD_VARIABLES

TIMED, WRONG, OVER_BUDGET = "timed", "parity failed", "over budget"
FAILED, MISSING = "failed", "not installed"
CEILING = "matrix product"


@dataclass(frozen=True)
class Row:
    """A simulator in a cell. Times are of one call: loss and gradients of the whole batch.

    reason: why it was not timed.
    first_s: the first call in this process, compiling included.
    gflops, fraction: `literal_flops` per second, and as a share of the matrix product rate in the same cell.
    """

    simulator: str
    ansatz: str
    layers: int
    qubits: int
    batch: int
    status: str
    reason: str | None = None
    first_s: float | None = None
    median_s: float | None = None
    spread_s: float | None = None
    repeats: int | None = None
    gflops: float | None = None
    fraction: float | None = None

    @property
    def cell(self) -> Cell:
        """The cell that this row belongs to."""
        return Cell(self.ansatz, self.qubits, self.batch)


def run(selection: Selection, report: Callable[[Cell, list[Row]], None]) -> dict[str, Any]:
    """Measure all cells, `report` each as it finishes; {'machine', 'cells', 'rows'}, ready for JSON.

    Raises:
        UserError: a simulator that was asked for is not installed.
    """
    with surroundings(selection.threads) as cores:
        found = subjects.installed(selection)
        copy_gbs = ceiling.copy_gbs()
        bench = Bench(selection, found, Own("default.qubit"))
        rows: list[Row] = []
        cells = list(selection.cells())
        # Ctrl-C keeps the cells that are finished.
        with suppress(KeyboardInterrupt):
            for cell in cells:
                done = bench.measure(cell)
                report(cell, done)
                rows += done
    top = {"matmul_gflops": median(bench.rates) if bench.rates else None, "copy_gbs": copy_gbs}
    return {
        "machine": machine(selection.threads, selection.budget_s, cores, top),
        "cells": {"asked": len(cells), "measured": len({row.cell for row in rows})},
        "rows": [asdict(row) for row in rows],
    }


class Bench:
    """Measures cells, smaller batches first; remembers times, which predict those of larger batches."""

    def __init__(self, selection: Selection, found: Mapping[str, Subject | None], reference: Subject) -> None:
        self._selection = selection
        self._found = found
        self._reference = reference
        self._product = ceiling.product()
        self.rates: list[float] = []
        self._last: dict[tuple[str, str, int], tuple[int, float]] = {}
        self._parity: dict[tuple[str, str, int], str | None] = {}

    def measure(self, cell: Cell) -> list[Row]:
        """One row for each simulator, in the selection's order."""
        rows: dict[str, Row] = {}
        calls: dict[str, Call] = {}
        for name, subject in self._found.items():
            if name == FLOOR and cell.batch != 1:
                continue
            row = Row(name, cell.ansatz, cell.depth, cell.qubits, cell.batch, MISSING)
            rows[name] = row
            if subject is None:
                continue
            expected = stopwatch.predicted(self._last.get((name, cell.ansatz, cell.qubits)), cell.batch)
            if expected > self._selection.budget_s:
                rows[name] = replace(row, status=OVER_BUDGET, reason=f"predicted {expected:.3g} s")
                continue
            # A simulator that runs out of memory, say, must not end a benchmark of hours.
            try:
                call = subject.prepare(problem(cell, np.float32))
                first_s = stopwatch.once(call)
                wrong = self._wrong(name, subject, cell)
            except (RuntimeError, MemoryError, UserError) as error:
                rows[name] = replace(row, status=FAILED, reason=f"{type(error).__name__}: {error}"[:200])
                continue
            if wrong:
                rows[name] = replace(row, status=WRONG, reason=wrong)
                continue
            rows[name] = replace(row, status=TIMED, first_s=first_s)
            calls[name] = call
        return self._timed(cell, rows, calls)

    def _timed(self, cell: Cell, rows: dict[str, Row], calls: dict[str, Call]) -> list[Row]:
        example = problem(cell, np.float32)
        work = literal_flops(example.circuit, example.words) * cell.batch
        if not calls:
            return list(rows.values())
        # The ceiling takes its turn too: the speed of a shared machine changes.
        results = stopwatch.steady({**calls, CEILING: self._product}, self._selection.repeats)
        rate = ceiling.product_gflops(results.pop(CEILING).median_s)
        self.rates.append(rate)
        for name, result in results.items():
            self._last[name, cell.ansatz, cell.qubits] = (cell.batch, result.median_s)
            gflops = None if name == FLOOR else work / result.median_s / 1e9
            rows[name] = replace(
                rows[name], **asdict(result), gflops=gflops, fraction=gflops and gflops / rate
            )
        return list(rows.values())

    def _wrong(self, name: str, subject: Subject, cell: Cell) -> str | None:
        """Why it fails the check; once for every circuit, since compiling takes long."""
        if name == FLOOR:
            return None
        key = (name, cell.ansatz, cell.qubits)
        if key not in self._parity:
            self._parity[key] = agreement.failure(subject, self._reference, cell)
        return self._parity[key]


@contextmanager
def surroundings(threads: int) -> Iterator[list[int]]:
    """Threads and cores as asked, and an empty cache of compiled circuits; all as before afterwards.

    Binding to cores is what limits JAX, which has no setting for its threads. Yields the cores.
    """
    environment, cores, torch_threads = dict(os.environ), os.sched_getaffinity(0), torch.get_num_threads()
    if threads > len(cores):
        raise UserError(f"--threads: {threads} asked for, {len(cores)} core(s) to run on")
    with tempfile.TemporaryDirectory(prefix="ketscale-bench-") as cache:
        try:
            os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)), KETSCALE_CACHE=cache)
            torch.set_num_threads(threads)
            yield host.bind(0, 1, threads)
        finally:
            os.environ.clear()
            os.environ.update(environment)
            host.bind_to(cores)
            torch.set_num_threads(torch_threads)


def machine(
    threads: int, budget_s: float, cores: list[int], top: Mapping[str, float | None]
) -> dict[str, Any]:
    """What a benchmark ran on. top: `matmul_gflops` and `copy_gbs`, where they were measured."""
    facts = host.describe()
    return {
        "cpu": facts["cpu"],
        "cores": facts["cores"],
        "bound_to": cores,
        "memory_bytes": facts["memory_bytes"],
        "threads": threads,
        "budget_s": budget_s,
        "ceiling": dict(top),
        "versions": _versions(),
        "ketscale": ketscale.__version__,
        **host.git_state(Path(__file__).parent),
    }


def _versions() -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in ("torch", "pennylane", "pennylane-lightning", "tensorcircuit-ng", "jax", "deepquantum"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
