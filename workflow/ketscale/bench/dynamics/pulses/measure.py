"""Measures pulses: in each cell first calls and their errors, then all simulators timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from ketscale.bench import machine, stopwatch
from ketscale.bench.dynamics.measure import installed
from ketscale.bench.dynamics.pulses import peers
from ketscale.bench.dynamics.pulses.case import Array, Call, Case, Subject, case_of
from ketscale.bench.dynamics.pulses.own import OwnSubject
from ketscale.bench.dynamics.pulses.rows import PulsesRow
from ketscale.bench.dynamics.pulses.selection import OWN, PUBLISHED, REFERENCE, Cell, PulsesSelection
from ketscale.bench.dynamics.pulses.supergrad import Supergrad
from ketscale.bench.rows import MISSING, OVER_BUDGET, TIMED, WRONG, failure
from ketscale.measure.host import peak_rss_bytes

# Whatever is further from the reference computes something else: several times the error of 5,000 midpoint steps.
LARGEST_ERROR = 5e-4
# Of the lengths of value and gradient by what they are by.
COMPUTES = ("value", "value and gradient by pulses", "value and gradient")


def create(name: str) -> Subject:
    """The simulator of this name.

    Raises:
        UserError: its package is not installed.
    """
    if name in OWN:
        return OwnSubject(OWN[name])
    made: dict[str, Callable[[], Subject]] = {
        "supergrad": Supergrad,
        "supergrad-tad": partial(Supergrad, adjoint=None),
        "qutip": peers.Qutip,
        "dynamiqs": peers.Dynamiqs,
        "qiskit-dynamics": peers.QiskitDynamics,
    }
    return made[name]()


def measure(
    selection: PulsesSelection,
    show: Callable[[Cell, list[PulsesRow]], None] = lambda cell, rows: None,
) -> dict[str, Any]:
    """Measure all cells, `show` each as it finishes; {'machine', 'reference', 'cells', 'rows'}, ready for JSON.

    Raises:
        UserError: there are fewer cores than threads, or a simulator that was asked for is not installed.
    """
    with machine.prepared(selection.threads) as cores:
        found = installed(create, selection.simulators, selection.asked)
        rows: list[PulsesRow] = []
        cells = list(selection.cells())
        # Ctrl-C keeps the cells that are finished.
        with suppress(KeyboardInterrupt):
            for cell in cells:
                done = _measured(cell, found, selection)
                show(cell, done)
                rows += done
        about = machine.describe(selection.threads, selection.budget_s, cores, {}, torch.device("cpu"))
    return {
        "machine": about,
        "reference": f"{REFERENCE.integrator}-{REFERENCE.steps}",
        "cells": {"asked": len(cells), "measured": len({Cell.of(vars(row)) for row in rows})},
        "rows": [asdict(row) for row in rows],
    }


def _measured(cell: Cell, found: Mapping[str, Subject | str], selection: PulsesSelection) -> list[PulsesRow]:
    """The rows of a cell."""
    case = case_of(cell)
    rows: dict[str, PulsesRow] = {}
    calls: dict[str, Call] = {}
    results: dict[str, tuple[float, Array | None]] = {}
    for name, subject in found.items():
        row = PulsesRow(*cell, name, MISSING)
        if isinstance(subject, str):
            rows[name] = replace(row, reason=subject)
            continue
        # One that fails must not end a benchmark, whatever it raises.
        try:
            rows[name], calls[name], results[name] = _tried(subject, case, row)
        except Exception as error:
            status, reason = failure(error)
            rows[name] = replace(row, status=status, reason=reason)
    # After the first calls, so that it is not what compiles the code that they share.
    expected = OwnSubject(REFERENCE).prepare(case)()
    for name, result in results.items():
        rows[name] = _judged(rows[name], result, expected, selection.budget_s)
    rows = {name: replace(row, matches=_matches(row, rows)) for name, row in rows.items()}
    timed = {name: calls[name] for name, row in rows.items() if row.status == TIMED}
    for name, timing in stopwatch.steady(timed, selection.repeats).items():
        rows[name] = replace(
            rows[name], median_s=timing.median_s, spread_s=timing.iqr_s, repeats=timing.repeats
        )
    return list(rows.values())


def _tried(
    subject: Subject, case: Case, row: PulsesRow
) -> tuple[PulsesRow, Call, tuple[float, Array | None]]:
    """The row of a simulator after its first call, the call, and what it returned."""
    call = subject.prepare(case)
    result: list[tuple[float, Array | None]] = []
    first = stopwatch.once(lambda: result.append(call()))
    gradient = result[0][1]
    computed = 0 if gradient is None else 1 if len(gradient) < len(torch.cat(case.parameters)) else 2
    row = replace(row, computes=COMPUTES[computed], steps=subject.steps, first_s=first)
    return replace(row, peak_bytes=peak_rss_bytes()), call, result[0]


def _judged(
    row: PulsesRow, found: tuple[float, Array | None], expected: tuple[float, Array | None], budget_s: float
) -> PulsesRow:
    """With its error, and whether it is to be timed."""
    error, first = _error(found, expected), row.first_s
    assert first is not None
    row = replace(row, error=error)
    if not error <= LARGEST_ERROR:  # NaN fails too
        return replace(row, error=None, status=WRONG, reason=f"off by {error:.1e} of the norm")
    if first > budget_s:
        return replace(row, status=OVER_BUDGET, reason=f"the first call took {first:.3g} s")
    return replace(row, status=TIMED)


def _error(found: tuple[float, Array | None], expected: tuple[float, Array | None]) -> float:
    pairs = [(np.array([found[0]]), np.array([expected[0]]))]
    if found[1] is not None and expected[1] is not None:
        pairs.append((found[1], expected[1][: len(found[1])]))
    return max(float(np.linalg.norm(mine - theirs) / np.linalg.norm(theirs)) for mine, theirs in pairs)


def _matches(row: PulsesRow, rows: Mapping[str, PulsesRow]) -> tuple[str, ...]:
    """See `PulsesRow.matches`."""
    if row.error is None:
        return ()
    others = ((name, rows[name]) for name in PUBLISHED if name in rows and name != row.simulator)
    return tuple(
        name
        for name, other in others
        if other.error is not None and other.computes == row.computes and row.error <= other.error
    )
