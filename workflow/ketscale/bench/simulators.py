"""`ketscale bench simulators`: in each cell a first call, parity, then all simulators timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from statistics import median
from typing import Any

import numpy as np

from ketscale.bench import agreement, ceiling, machine, stopwatch, subjects
from ketscale.bench.arithmetic import literal_flops
from ketscale.bench.cases import Call, Subject, case_of
from ketscale.bench.own import Own
from ketscale.bench.rows import FAILED, MISSING, OVER_BUDGET, TIMED, WRONG, CircuitRow
from ketscale.bench.selection import FLOOR, Cell, Selection
from ketscale.errors import UserError

CEILING = "matrix product"


def measure(selection: Selection, show: Callable[[Cell, list[CircuitRow]], None]) -> dict[str, Any]:
    """Measure all cells, `show` each as it finishes; {'machine', 'cells', 'rows'}, ready for JSON.

    Raises:
        UserError: a simulator that was asked for is not installed.
    """
    with machine.prepared(selection.threads) as cores:
        found = subjects.installed(selection)
        copy_gbs = ceiling.copy_gbs()
        bench = Bench(selection, found, Own("default.qubit"))
        rows: list[CircuitRow] = []
        cells = list(selection.cells())
        # Ctrl-C keeps the cells that are finished.
        with suppress(KeyboardInterrupt):
            for cell in cells:
                done = bench.measure(cell)
                show(cell, done)
                rows += done
    top = {"matmul_gflops": median(bench.rates) if bench.rates else None, "copy_gbs": copy_gbs}
    return {
        "machine": machine.describe(selection.threads, selection.budget_s, cores, top),
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

    def measure(self, cell: Cell) -> list[CircuitRow]:
        """One row for each simulator, in the selection's order."""
        rows: dict[str, CircuitRow] = {}
        calls: dict[str, Call] = {}
        for name, subject in self._found.items():
            if name == FLOOR and cell.batch != 1:
                continue
            row = CircuitRow(name, cell.ansatz, cell.layers, cell.qubits, cell.batch, MISSING)
            rows[name] = row
            if subject is None:
                continue
            expected = stopwatch.predicted(self._last.get((name, cell.ansatz, cell.qubits)), cell.batch)
            if expected > self._selection.budget_s:
                rows[name] = replace(row, status=OVER_BUDGET, reason=f"predicted {expected:.3g} s")
                continue
            # A simulator that runs out of memory, say, must not end a benchmark of hours.
            try:
                call = subject.prepare(case_of(cell, np.float32))
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

    def _timed(self, cell: Cell, rows: dict[str, CircuitRow], calls: dict[str, Call]) -> list[CircuitRow]:
        example = case_of(cell, np.float32)
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
