"""`ketscale bench simulators`: in each cell a first call, parity, then all simulators timed in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from statistics import median
from typing import Any

import numpy as np
import torch

from ketscale.bench import agreement, ceiling, machine, stopwatch, subjects
from ketscale.bench import device as devices
from ketscale.bench.arithmetic import literal_flops
from ketscale.bench.captured import Refused, captured
from ketscale.bench.cases import Call, Subject, case_of
from ketscale.bench.rows import MISSING, OVER_BUDGET, TIMED, WRONG, CircuitRow, best_s, failure
from ketscale.bench.selection import FLOOR, GROUPS, SETS, Cell, Selection
from ketscale.bench.traffic import least_bytes

# Behind the name of a simulator, its replayed graph.
GRAPH = " graph"

# See `captured`.
Capture = Callable[[Call, torch.device, int | None], Call | Refused]


def measure(
    selection: Selection,
    show: Callable[[Cell, list[CircuitRow]], None] = lambda cell, rows: None,
    limit_s: float | None = None,
) -> dict[str, Any]:
    """Measure all cells, `show` each as it finishes; {'machine', 'reference', 'cells', 'rows'}, ready for JSON.

    limit_s: after so many seconds no further cell is begun.

    Raises:
        UserError: there is no such device, or a simulator that was asked for is not installed.
    """
    start = time.monotonic()
    device = devices.opened(selection.device)
    with machine.prepared(selection.threads) as cores:
        found = subjects.installed(selection, device)
        top = ceiling.once(device)
        reference, checked = subjects.reference()
        bench = Bench(selection, found, checked, device, top["copy_gbs"])
        rows: list[CircuitRow] = []
        cells = list(selection.cells())
        # Ctrl-C keeps the cells that are finished.
        with suppress(KeyboardInterrupt):
            for cell in cells:
                if limit_s is not None and time.monotonic() - start > limit_s:
                    break
                done = bench.measure(cell)
                show(cell, done)
                rows += done
        top[bench.ceiling.name] = median(bench.rates) if bench.rates else None
        about = machine.describe(selection.threads, selection.budget_s, cores, top, device)
    return {
        "machine": about,
        "reference": reference,
        "cells": {"asked": len(cells), "measured": len({row.cell for row in rows})},
        "rows": [asdict(row) for row in rows],
    }


class Bench:
    """Measures cells, smaller batches first; remembers times, which predict those of larger batches.

    copy_gbs: the device's copy bandwidth. capture: makes a call a graph; None where there are none.
    """

    def __init__(
        self,
        selection: Selection,
        found: Mapping[str, Subject | str],
        reference: Subject,
        device: torch.device,
        copy_gbs: float | None = None,
    ) -> None:
        self._selection = selection
        self._found = found
        self._reference = reference
        self._device = device
        self._copy_gbs = copy_gbs
        self.capture: Capture | None = captured if device.type == "cuda" else None
        self.ceiling = ceiling.of(device)
        self.rates: list[float] = []
        self._last: dict[tuple[str, str, int], tuple[int, float]] = {}
        self._parity: dict[tuple[str, str, int], str | None] = {}

    def measure(self, cell: Cell) -> list[CircuitRow]:
        """One row for each simulator, in the selection's order."""
        rows: dict[str, CircuitRow] = {}
        calls: dict[str, Call] = {}
        for name, subject in self._found.items():
            # What the last one has left would be missing for those that do not allocate through torch.
            devices.release(self._device)
            if name == FLOOR and cell.batch != 1:
                continue
            row = CircuitRow(name, cell.ansatz, cell.layers, cell.qubits, cell.batch, MISSING)
            if isinstance(subject, str):
                rows[name] = replace(row, reason=subject)
                continue
            expected = stopwatch.predicted(self._last.get((name, cell.ansatz, cell.qubits)), cell.batch)
            if expected > self._selection.budget_s:
                rows[name] = replace(row, status=OVER_BUDGET, reason=f"predicted {expected:.3g} s")
                continue
            # A simulator that runs out of memory, say, must not end a benchmark of hours, whatever it raises.
            try:
                rows[name], found = self._tried(name, subject, cell, row)
            except Exception as error:
                status, reason = failure(error)
                rows[name], found = replace(row, status=status, reason=reason), {}
            calls |= found
        return self._timed(cell, rows, calls)

    def _tried(
        self, name: str, subject: Subject, cell: Cell, row: CircuitRow
    ) -> tuple[CircuitRow, dict[str, Call]]:
        """The row of a simulator before it is timed, and its calls to time."""
        call = subject.prepare(case_of(cell, np.float32))
        waited = devices.finished(call, self._device)
        first_s = stopwatch.once(waited)
        wrong = self._wrong(name, subject, cell)
        if wrong:
            return replace(row, status=WRONG, reason=wrong), {}
        row = replace(row, status=TIMED, first_s=first_s, peak_bytes=devices.peak_bytes(call, self._device))
        if self.capture is None:
            return row, {name: waited}
        replay, reason = self._graph(subject, call, row.peak_bytes)
        found = {name: waited} if replay is None else {name: waited, name + GRAPH: replay}
        return replace(row, graph_reason=reason), found

    def _graph(self, subject: Subject, call: Call, needed: int | None) -> tuple[Call | None, str | None]:
        """The replay of a call as a graph, or why there is none."""
        assert self.capture is not None
        if subject.uncapturable:
            return None, subject.uncapturable
        replay = self.capture(call, self._device, needed)
        if isinstance(replay, Refused):
            return None, replay.reason
        waited = devices.finished(replay, self._device)
        error = agreement.distance(agreement.vector(waited()), agreement.vector(call()))
        if not error <= agreement.REPLAY_TOLERANCE:
            return None, f"the replay is off by {error:.1e} of the norm"
        return waited, None

    def _timed(self, cell: Cell, rows: dict[str, CircuitRow], calls: dict[str, Call]) -> list[CircuitRow]:
        if not calls:
            return list(rows.values())
        # The ceiling takes its turn too: the speed of a shared machine changes.
        results = stopwatch.steady({**calls, self.ceiling.name: self.ceiling.call}, self._selection.repeats)
        rate = ceiling.gflops(self.ceiling.flops, results.pop(self.ceiling.name).median_s)
        self.rates.append(rate)
        for name, result in results.items():
            if name.endswith(GRAPH):
                continue
            self._last[name, cell.ansatz, cell.qubits] = (cell.batch, result.median_s)
            row = replace(rows[name], **asdict(result))
            graph = results.get(name + GRAPH)
            if graph:
                row = replace(row, graph_median_s=graph.median_s, graph_iqr_s=graph.iqr_s)
            rows[name] = self._rated(row, cell, rate)
        return list(rows.values())

    def _rated(self, row: CircuitRow, cell: Cell, rate: float) -> CircuitRow:
        """With what the row's time means: arithmetic and, of fused on a GPU, memory traffic."""
        seconds = best_s(vars(row))
        if row.simulator == FLOOR or seconds is None:
            return row
        example = case_of(cell._replace(batch=1), np.float32)
        samples = cell.batch * (SETS if row.simulator in GROUPS else 1)
        achieved = ceiling.gflops(literal_flops(example.circuit, example.words) * samples, seconds)
        row = replace(row, gflops=achieved, fraction=achieved / rate)
        if self._device.type == "cpu" or row.simulator != "fused":
            return row
        moved = least_bytes(example.circuit, example.words, cell.batch)
        gbs = moved / seconds / 1e9
        return replace(row, moved_bytes=moved, gbs=gbs, copy_fraction=self._copy_gbs and gbs / self._copy_gbs)

    def _wrong(self, name: str, subject: Subject, cell: Cell) -> str | None:
        """Why it fails the check; once for every circuit, since compiling takes long."""
        if name == FLOOR:
            return None
        key = (name, cell.ansatz, cell.qubits)
        if key not in self._parity:
            self._parity[key] = agreement.failure(subject, self._reference, cell)
        return self._parity[key]
