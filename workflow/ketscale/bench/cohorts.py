"""`ketscale bench cohorts`: a training step of several runs together, beside one run's step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import torch

from ketscale.bench import machine, steps, stopwatch
from ketscale.bench.output import document, markdown_table
from ketscale.bench.rows import TIMED, WRONG
from ketscale.bench.selection import at_least, names_of, numbers_of
from ketscale.bench.steps import ModelCell
from ketscale.parallel.single import Single
from ketscale.problems.problem import Problem
from ketscale.training.pace import Pace
from ketscale.training.stack import Stack, share
from ketscale.training.step import Stepper
from ketscale.words import duration

# Losses in fp32 of runs together and alone, over CHECKED steps.
LOSS_TOLERANCE = 1e-3
CHECKED = 5


@dataclass(frozen=True)
class CohortSelection:
    """The arguments of `ketscale bench cohorts`. runs: how many train together."""

    models: tuple[str, ...] = ("vqc",)
    qubits: tuple[int, ...] = (4,)
    batches: tuple[int, ...] = (64,)
    runs: tuple[int, ...] = (4, 16)
    repeats: int = 15
    threads: int = 1

    def cells(self) -> Iterator[ModelCell]:
        """All cells; see `steps.cells`."""
        return steps.cells(self.models, self.qubits, self.batches)


@dataclass(frozen=True)
class CohortRow:
    """Steps of a model by several runs together, of a classical model's own kind, by fused, or of control by exact.

    median_s, iqr_s: of a step of all runs, median and interquartile range over `repeats`. alone_s, alone_iqr_s: of one
    run's step, in turns with it. gain: how many times as long the runs take one after the other. None if their losses
    differ from that run's, so that nothing is timed.
    """

    model: str
    qubits: int
    batch: int
    runs: int
    status: str
    median_s: float | None = None
    iqr_s: float | None = None
    alone_s: float | None = None
    alone_iqr_s: float | None = None
    gain: float | None = None
    repeats: int = 0


def parse(
    *,
    models: str | None = None,
    qubits: str | None = None,
    batch: str | None = None,
    runs: str | None = None,
    repeats: str | None = None,
    threads: str | None = None,
) -> CohortSelection:
    """The selection of the command's options: lists separated by commas, None where not given.

    Raises:
        UserError: a value is not a number, too small, or not the name of a model that trains in cohorts.
    """
    default = CohortSelection()
    able = [name for name, kind in (steps.MODELS | steps.ON_TASKS).items() if kind.stacks]
    return CohortSelection(
        models=names_of("--models", models, able) or default.models,
        qubits=numbers_of("--qubits", qubits, 2) or default.qubits,
        batches=numbers_of("--batch", batch, 1) or default.batches,
        runs=numbers_of("--runs", runs, 2) or default.runs,
        repeats=at_least("--repeats", repeats, int, 5) if repeats is not None else default.repeats,
        threads=at_least("--threads", threads, int, 1) if threads is not None else default.threads,
    )


def measure(
    selection: CohortSelection, show: Callable[[ModelCell, list[CohortRow]], None] = lambda cell, rows: None
) -> dict[str, Any]:
    """Measure all cells, `show` each as it finishes; {'machine', 'cells', 'rows'}, ready for JSON.

    Raises:
        UserError: there are not that many cores.
    """
    cells, rows, measured = list(selection.cells()), list[CohortRow](), 0
    # Ctrl-C keeps the cells that are finished.
    with machine.prepared(selection.threads) as cores, suppress(KeyboardInterrupt):
        for cell in cells:
            done = [_measured(cell, runs, selection.repeats) for runs in selection.runs]
            show(cell, done)
            rows += done
            measured += 1
    return {
        "machine": machine.describe(selection.threads, 0.0, cores, {}, torch.device("cpu")),
        "cells": {"asked": len(cells), "measured": measured},
        "rows": [asdict(row) for row in rows],
    }


def _measured(cell: ModelCell, runs: int, repeats: int) -> CohortRow:
    arm = steps.arms(cell.model)[0]
    world = Single(steps.run_at(cell, arm, f"cpu-n1r1t{torch.get_num_threads()}"))
    problem, protocol = steps.posed(cell, arm, world.device)
    lasting = msgspec.structs.replace(protocol, timed=False, steps=1000)
    samples = torch.arange(cell.batch)
    alone = Stepper(problem, world, lasting)
    problems = [_seeded(cell, arm, world, seed) for seed in range(runs)]
    for each in problems:
        share(each, problems[0])
    stack = Stack(
        problems, [lasting] * runs, Pace(lasting, world, lambda: False, lambda: False, together=True)
    )
    # The first of the runs is the one that is alone.
    taken = [(stack.take([samples] * runs, step)[0], alone.take(samples, step)) for step in range(CHECKED)]
    agree = all(torch.allclose(ours.sums, theirs.sums, rtol=LOSS_TOLERANCE, atol=0) for ours, theirs in taken)
    if not agree:
        return CohortRow(*cell, runs, WRONG)
    timings = stopwatch.steady(
        {
            "together": lambda: stack.take([samples] * runs, CHECKED),
            "alone": lambda: alone.take(samples, CHECKED),
        },
        repeats,
    )
    together, single = timings["together"], timings["alone"]
    return CohortRow(
        *cell,
        runs,
        TIMED,
        together.median_s,
        together.iqr_s,
        single.median_s,
        single.iqr_s,
        runs * single.median_s / together.median_s,
        together.repeats,
    )


def _seeded(cell: ModelCell, arm: str, world: Single, number: int) -> Problem:
    """The problem of the run of this number, whose dropout is its own; that of number 0 is the one that is alone."""
    problem = steps.built(cell, arm, world.device)
    assert isinstance(problem.seed, int)
    problem.seed += number
    return problem


def line(cell: ModelCell, rows: Sequence[CohortRow]) -> str:
    """A finished cell in a line."""
    return f"{cell}: {'; '.join(f'{row.runs} together {_said(asdict(row))}' for row in rows)}"


def _said(row: Mapping[str, Any]) -> str:
    if row["status"] != TIMED:
        return str(row["status"])
    times = row["median_s"] / row["alone_s"]
    return f"{duration(row['median_s'])}, {times:.3g} times one alone ({duration(row['alone_s'])}), gain {row['gain']:.3g}x"


def as_markdown(result: Mapping[str, Any]) -> bytes:
    """The machine and a table."""
    head = ("model", "qubits", "batch", "runs", "a step together")
    table = [(row["model"], row["qubits"], row["batch"], row["runs"], _said(row)) for row in result["rows"]]
    return document(result, markdown_table(head, table), [])
