"""Measures propagators: in each cell first calls and their errors, then all of them timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from ketscale.bench import machine, stopwatch
from ketscale.bench.ceiling import SIZE, gflops
from ketscale.bench.dynamics import peers
from ketscale.bench.dynamics.arithmetic import flops
from ketscale.bench.dynamics.case import Array, Call, Case, Subject, case_of
from ketscale.bench.dynamics.own import OwnSubject
from ketscale.bench.dynamics.rows import DynamicsRow
from ketscale.bench.dynamics.selection import OWN, Cell, DynamicsSelection
from ketscale.bench.rows import MISSING, OVER_BUDGET, TIMED, WRONG, failure
from ketscale.engines.dynamics.propagators import Batched
from ketscale.engines.dynamics.registry import SIMULATORS
from ketscale.errors import UserError

# What is not an integrator of ours has to agree with the reference to this share of its norm. JAX's exponential of
# matrices is off by up to 1e-8 for two qubits.
LARGEST_ERROR = 1e-7
CEILING = "matmul64_gflops"

Made = TypeVar("Made")


def create(name: str) -> Subject:
    """The propagator of this name.

    Raises:
        UserError: its package is not installed.
    """
    if name in OWN:
        return OwnSubject(name)
    made: dict[str, Callable[[], Subject]] = {
        "qutip": peers.Qutip,
        "dynamiqs-expm": partial(peers.Dynamiqs, "expm"),
        "dynamiqs-tsit5": partial(peers.Dynamiqs, "tsit5"),
        "qiskit-dynamics": peers.QiskitDynamics,
    }
    return made[name]()


def measure(
    selection: DynamicsSelection,
    show: Callable[[Cell, list[DynamicsRow]], None] = lambda cell, rows: None,
) -> dict[str, Any]:
    """Measure all cells, `show` each as it finishes; {'machine', 'reference', 'cells', 'rows'}, ready for JSON.

    Raises:
        UserError: there are fewer cores than threads, or a propagator that was asked for is not installed.
    """
    with machine.prepared(selection.threads) as cores:
        found = installed(create, selection.simulators, selection.asked)
        rows: list[DynamicsRow] = []
        rates: list[float] = []
        cells = list(selection.cells())
        # Ctrl-C keeps the cells that are finished.
        with suppress(KeyboardInterrupt):
            for cell in cells:
                done, rate = _measured(cell, found, selection)
                show(cell, done)
                rows += done
                rates.append(rate)
        ceiling = {CEILING: float(np.median(rates)) if rates else None}
        about = machine.describe(selection.threads, selection.budget_s, cores, ceiling, torch.device("cpu"))
    return {
        "machine": about,
        "reference": "exact-torch",
        "cells": {"asked": len(cells), "measured": len({Cell.of(vars(row)) for row in rows})},
        "rows": [asdict(row) for row in rows],
    }


def installed(create: Callable[[str], Made], names: Iterable[str], asked: bool) -> dict[str, Made | str]:
    """What is created of these names; why there is none for one that is not here and was not asked for by name."""
    found: dict[str, Made | str] = {}
    for name in names:
        try:
            found[name] = create(name)
        except Exception as error:  # also an installation that is broken in its own way
            if asked:
                raise
            found[name] = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return found


def _measured(
    cell: Cell, found: Mapping[str, Subject | str], selection: DynamicsSelection
) -> tuple[list[DynamicsRow], float]:
    """The rows of a cell, and the rate of matrix products beside them."""
    case = case_of(cell)
    expected = OwnSubject("exact-torch").prepare(case)()
    rows: dict[str, DynamicsRow] = {}
    calls: dict[str, Call | Callable[[], Any]] = {}
    for name, subject in found.items():
        row = DynamicsRow(*cell, name, MISSING)
        if isinstance(subject, str):
            rows[name] = replace(row, reason=subject)
            continue
        # One that fails must not end a benchmark, whatever it raises.
        try:
            rows[name], call = _tried(name, subject, case, expected, row, selection.budget_s)
        except Exception as error:
            status, reason = failure(error)
            rows[name] = replace(row, status=status, reason=reason)
            continue
        if call is not None:
            calls[name] = call
    a, b = (torch.rand(SIZE, SIZE, dtype=torch.float64) for _ in range(2))
    out = torch.empty_like(a)
    # The ceiling takes its turn too: the speed of a shared machine changes.
    results = stopwatch.steady({**calls, CEILING: lambda: torch.mm(a, b, out=out)}, selection.repeats)
    rate = gflops(2 * SIZE**3, results.pop(CEILING).median_s)
    for name, timing in results.items():
        factor = cell.batch / (rows[name].projected_from or cell.batch)
        row = replace(
            rows[name],
            median_s=factor * timing.median_s,
            spread_s=factor * timing.iqr_s,
            repeats=timing.repeats,
        )
        rows[name] = _rated(row, found[name], case, rate)
    return list(rows.values()), rate


def _tried(
    name: str,
    subject: Subject,
    case: Case,
    expected: tuple[Array, Array | None],
    row: DynamicsRow,
    budget_s: float,
) -> tuple[DynamicsRow, Call | None]:
    """The row of a propagator before it is timed, and the call to time if it is right and fast enough."""
    batch = len(case.controls)
    tasks = min(batch, subject.most or batch)
    call = subject.prepare(case.first(tasks))
    result: list[tuple[Array, Array | None]] = []
    row = replace(row, first_s=stopwatch.once(lambda: result.append(call())))
    overlaps, gradient = result[0]
    computes = "value" if gradient is None else "value and gradient"
    row = replace(row, computes=computes, error=_error((overlaps, gradient), expected, tasks))
    if tasks < batch:
        row = replace(row, projected_from=tasks)
    assert row.first_s is not None
    assert row.error is not None
    if _is_exact(name) and not row.error <= LARGEST_ERROR:  # NaN fails too
        return replace(row, status=WRONG, reason=f"off by {row.error:.1e} of the norm"), None
    if row.first_s > budget_s:
        return replace(row, status=OVER_BUDGET, reason=f"the first call took {row.first_s:.3g} s"), None
    return replace(row, status=TIMED), call


def _is_exact(name: str) -> bool:
    return name not in OWN or SIMULATORS[OWN[name].name].exact


def _error(found: tuple[Array, Array | None], expected: tuple[Array, Array | None], tasks: int) -> float:
    pairs = [
        (mine, theirs[:tasks])
        for mine, theirs in zip(found, expected, strict=True)
        if mine is not None and theirs is not None
    ]
    return max(float(np.linalg.norm(mine - theirs) / np.linalg.norm(theirs)) for mine, theirs in pairs)


def _rated(row: DynamicsRow, subject: Subject | str, case: Case, rate: float) -> DynamicsRow:
    """With the arithmetic of a compiled propagator."""
    if not isinstance(subject, OwnSubject) or subject.most or row.median_s is None:
        return row
    made = subject.propagator(case.duration)
    if not isinstance(made, Batched) or made.route == "torch":
        return row
    division = made.division(case.duration / case.controls.shape[1], torch.float64)
    achieved = gflops(flops(case, division), row.median_s)
    return replace(row, gflops=achieved, fraction=achieved / rate)
