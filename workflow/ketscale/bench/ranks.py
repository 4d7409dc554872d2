"""`ketscale bench ranks`: training steps on several ranks, their communication, and what its library takes alone."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

from ketscale.bench import machine, steps
from ketscale.bench.output import document, markdown_table
from ketscale.bench.rank import ARM, MARK
from ketscale.bench.rows import FAILED, TIMED, WRONG
from ketscale.bench.selection import all_cores, at_least, names_of, numbers_of
from ketscale.bench.steps import ModelCell
from ketscale.errors import UserError
from ketscale.grid import BACKENDS
from ketscale.jobs import provenance
from ketscale.jobs.launch import environment, prefix_here
from ketscale.words import duration

ALONE = "cpu-n1r1t1"
# First losses of the same weights and samples in fp32.
LOSS_TOLERANCE = 1e-4
# Each cell starts every layout so often, in turns: processes cannot take turns in their steps.
ROUNDS = 3


@dataclass(frozen=True)
class RanksSelection:
    """The arguments of `ketscale bench ranks`. Ranks are on the CPUs of this host, one thread each."""

    models: tuple[str, ...] = ("vqc",)
    qubits: tuple[int, ...] = (4,)
    batches: tuple[int, ...] = (64, 1024)
    backends: tuple[str, ...] = ("ddp-cpu", "mpi")
    ranks: tuple[int, ...] = (2,)
    repeats: int = 10

    def cells(self) -> Iterator[ModelCell]:
        """All cells; a classical model has no qubits to vary."""
        return steps.cells(self.models, self.qubits, self.batches)

    def layouts(self) -> list[str]:
        """One rank, then several."""
        return [ALONE, *(f"{backend}-n1r{ranks}t1" for backend in self.backends for ranks in self.ranks)]


@dataclass(frozen=True)
class RankRow:
    """A layout in a cell. Times are medians over steps, of rank 0; then over the times that the layout was started.

    reason: why it was not timed.
    step_s: of a training step of the whole batch. speedup: how many times one rank takes as long.
    gradient_bytes: what a step sums over ranks.
    communication_s, wait_s: in steps in parts, the exposed communication, and waiting for the slowest rank before it.
    library_s: the library's own all-reduce of as many bytes, after a barrier too.
    """

    model: str
    qubits: int
    batch: int
    layout: str
    status: str
    reason: str | None = None
    step_s: float | None = None
    speedup: float | None = None
    gradient_bytes: int | None = None
    communication_s: float | None = None
    wait_s: float | None = None
    library_s: float | None = None
    library: str | None = None


def parse(
    *,
    models: str | None = None,
    qubits: str | None = None,
    batch: str | None = None,
    backends: str | None = None,
    ranks: str | None = None,
    repeats: str | None = None,
) -> RanksSelection:
    """The selection of the command's options: lists separated by commas, None where not given.

    Raises:
        UserError: a value is not a number, too small, or not a name of a model or of a backend of CPU ranks.
    """
    default = RanksSelection()
    several = [
        name for name, backend in BACKENDS.items() if backend.several_ranks and backend.device == "cpu"
    ]
    labelled = [model for model in steps.MODELS if model not in steps.ON_SENTENCES]
    return RanksSelection(
        models=names_of("--models", models, labelled) or default.models,
        qubits=numbers_of("--qubits", qubits, 2) or default.qubits,
        batches=numbers_of("--batch", batch, 1) or default.batches,
        backends=names_of("--backends", backends, several) or default.backends,
        ranks=numbers_of("--ranks", ranks, 2) or default.ranks,
        repeats=at_least("--repeats", repeats, int, 5) if repeats is not None else default.repeats,
    )


def measure(
    selection: RanksSelection, show: Callable[[ModelCell, list[RankRow]], None] = lambda cell, rows: None
) -> dict[str, Any]:
    """Measure all cells, `show` each as it finishes; {'machine', 'cells', 'rows'}, ready for JSON.

    Raises:
        UserError: a layout has more ranks than there are cores.
    """
    provenance.taken()
    cores = all_cores()
    if max(selection.ranks) > cores:
        raise UserError(f"--ranks: {max(selection.ranks)} asked for, {cores} core(s) to run on")
    rows: list[RankRow] = []
    cells, measured = list(selection.cells()), 0
    with suppress(KeyboardInterrupt):  # keeps the cells that are finished
        for cell in cells:
            done = _measured(cell, selection)
            show(cell, done)
            rows += done
            measured += 1
    return {
        "machine": machine.describe(1, 0.0, list(range(cores)), {}, torch.device("cpu")),
        "cells": {"asked": len(cells), "measured": measured},
        "rows": [asdict(row) for row in rows],
    }


def _measured(cell: ModelCell, selection: RanksSelection) -> list[RankRow]:
    found: dict[str, list[dict[str, Any] | str]] = {layout: [] for layout in selection.layouts()}
    for _ in range(ROUNDS):
        for layout, results in found.items():
            results.append(_started(cell, layout, selection.repeats))
    alone = [result for result in found[ALONE] if not isinstance(result, str)]
    return [_row(cell, layout, results, alone) for layout, results in found.items()]


def _row(
    cell: ModelCell, layout: str, results: list[dict[str, Any] | str], alone: list[dict[str, Any]]
) -> RankRow:
    row = {**cell._asdict(), "layout": layout}
    failed = next((result for result in results if isinstance(result, str)), None)
    if failed is not None:
        return RankRow(**row, status=FAILED, reason=failed)
    timed = [result for result in results if not isinstance(result, str)]
    if alone:
        loss, reference = timed[0]["loss"], alone[0]["loss"]
        if abs(loss - reference) > LOSS_TOLERANCE * abs(reference):
            return RankRow(**row, status=WRONG, reason=f"loss {loss:.6g}, on one rank {reference:.6g}")
    medians = {
        name: median(result[name] for result in timed)
        for name in ("step_s", "communication_s", "wait_s", "library_s")
    }
    # Each start is compared with the one rank that was started just before it.
    speedup = (
        median(one["step_s"] / each["step_s"] for one, each in zip(alone, timed, strict=True))
        if alone
        else None
    )
    about = {name: timed[0][name] for name in ("gradient_bytes", "library")}
    return RankRow(**row, status=TIMED, **about, **medians, speedup=speedup)


def _started(cell: ModelCell, layout: str, repeats: int) -> dict[str, Any] | str:
    """What rank 0 of a layout measured, or the last line that its processes said."""
    run = steps.run_at(cell, ARM[steps.MODELS[cell.model].classical], layout)
    command = [sys.executable, "-m", "ketscale.bench.rank", layout, *map(str, (*cell, repeats))]
    done = subprocess.run(
        ["sh", "-c", f"exec {prefix_here(run)} {shlex.join(command)}"],
        env=environment(),
        capture_output=True,
        text=True,
    )
    for line in done.stdout.splitlines():
        if MARK in line:
            result: dict[str, Any] = json.loads(line.split(MARK, 1)[1])
            return result
    said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return said[-1][:200] if said else f"ended with status {done.returncode}"


def line(cell: ModelCell, rows: list[RankRow]) -> str:
    """One cell for the terminal."""
    return f"{cell}: " + "  ".join(f"{row.layout} {_said(vars(row))}" for row in rows)


def _said(row: Mapping[str, Any]) -> str:
    if row["status"] != TIMED:
        return f"{row['status']} ({row['reason']})"
    if row["layout"] == ALONE:
        return duration(row["step_s"])
    return (
        f"{duration(row['step_s'])} ({row['speedup']:.2f} times as fast; communication "
        f"{duration(row['communication_s'])}, all-reduce alone {duration(row['library_s'])})"
    )


def as_markdown(result: Mapping[str, Any]) -> bytes:
    """A table, a row for each cell and layout."""
    head = (
        "model", "qubits", "batch", "layout", "step", "speedup", "gradient", "communication", "all-reduce alone", "wait",
    )  # fmt: skip
    table = []
    for row in result["rows"]:
        cells = [row[name] for name in ("model", "qubits", "batch", "layout")]
        if row["status"] != TIMED:
            table.append([*cells, f"{row['status']}: {row['reason']}", *[""] * 5])
            continue
        several = row["layout"] != ALONE
        times = [duration(row[name]) for name in ("communication_s", "library_s", "wait_s")]
        table.append([
            *cells, duration(row["step_s"]), f"{row['speedup']:.2f}", f"{row['gradient_bytes']} B",
            *(times if several else [""] * 3),
        ])  # fmt: skip
    return document(result, markdown_table(head, table), ())
