"""`ketscale bench models`: training steps of models, by every simulator, with memory and spans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ketscale.bench import memory, stopwatch, training
from ketscale.bench.run import FAILED, OVER_BUDGET, TIMED, WRONG, machine, surroundings
from ketscale.bench.selection import all_cores, at_least, names_of, numbers_of
from ketscale.bench.training import Cell
from ketscale.errors import UserError
from ketscale.problems import models as catalogue

MODELS = (
    "hydra", "hydra_hybrid", "mamba", "mamba_hybrid", "mamba_lite", "mamba_hybrid_lite",
    "classical_mamba", "classical_hydra", "superposition_transformer",
)  # fmt: skip
# Largest difference of the first losses, relative: they are of the same weights and trials in fp32.
LOSS_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Selection:
    """The arguments of `ketscale bench models`; simulators: empty for all that fit a model."""

    models: tuple[str, ...] = MODELS
    qubits: tuple[int, ...] = (6, 8, 10)
    batches: tuple[int, ...] = (32,)
    simulators: tuple[str, ...] = ()
    budget_s: float = 60.0
    repeats: int = 7
    threads: int = field(default_factory=all_cores)

    def cells(self) -> Iterator[Cell]:
        """All cells; a classical model has no qubits to vary, the one on sentences one size."""
        for model in self.models:
            entry = catalogue.MODELS[model]
            if entry.qubits is not None:
                yield Cell(model, entry.qubits, training.SENTENCES)
                continue
            for qubits in self.qubits if entry.quantum else (0,):
                for batch in self.batches:
                    yield Cell(model, qubits, batch)


def parse(
    *,
    models: str | None = None,
    qubits: str | None = None,
    batch: str | None = None,
    simulators: str | None = None,
    budget: str | None = None,
    repeats: str | None = None,
    threads: str | None = None,
) -> Selection:
    """The selection of the command's options: lists separated by commas, None where not given.

    Raises:
        UserError: a value is not a number, too small, or not a name of a model or simulator.
    """
    default = Selection()
    return Selection(
        models=names_of("--models", models, MODELS) or default.models,
        qubits=numbers_of("--qubits", qubits, 2) or default.qubits,
        batches=numbers_of("--batch", batch, 1) or default.batches,
        simulators=names_of(
            "--simulators", simulators, tuple(dict.fromkeys((*training.ARMS, *training.LIKELIHOODS, "none")))
        ),
        budget_s=at_least("--budget", budget, float, 0) if budget is not None else default.budget_s,
        repeats=at_least("--repeats", repeats, int, 5) if repeats is not None else default.repeats,
        threads=at_least("--threads", threads, int, 1) if threads is not None else default.threads,
    )


@dataclass(frozen=True)
class Row:
    """A simulator in a cell.

    first_s: the first step in this process, compiling included. median_s, spread_s: of a step, the latter the
    interquartile range over `repeats`. peak_bytes: what two steps need beyond what the process had before.
    projected_from: where not a step was timed but one of so many equal evaluations of it, which the times are multiplied by.
    spans: exclusive seconds of a step by span, of further steps.
    """

    model: str
    qubits: int
    batch: int
    simulator: str
    status: str
    reason: str | None = None
    first_s: float | None = None
    median_s: float | None = None
    spread_s: float | None = None
    repeats: int | None = None
    peak_bytes: int | None = None
    projected_from: int | None = None
    spans: dict[str, float] | None = None


def run(selection: Selection, report: Callable[[Cell, list[Row]], None]) -> dict[str, Any]:
    """Measure all cells, `report` each as it finishes; {'machine', 'cells', 'rows'}, ready for JSON.

    Memory is measured first: a simulator that runs out of it is not timed.
    """
    rows: list[Row] = []
    cells, measured = list(selection.cells()), 0
    # Ctrl-C keeps the cells that are finished.
    with surroundings(selection.threads) as cores, suppress(KeyboardInterrupt):
        for cell in cells:
            done = _measure(selection, cell)
            report(cell, done)
            rows += done
            measured += 1
    return {
        "machine": machine(selection.threads, selection.budget_s, cores, {}),
        "cells": {"asked": len(cells), "measured": measured},
        "rows": [asdict(row) for row in rows],
    }


def _measure(selection: Selection, cell: Cell) -> list[Row]:
    rows: dict[str, Row] = {}
    calls: dict[str, Callable[[], Any]] = {}
    losses: dict[str, float] = {}
    names = [a for a in training.arms(cell.model) if not selection.simulators or a in selection.simulators]
    for name in names:
        row = Row(cell.model, cell.qubits, cell.batch, name, FAILED)
        needed = memory.peak_bytes(cell, name, selection.threads)
        if isinstance(needed, str):
            rows[name] = replace(
                row, status=needed if needed == memory.OUT_OF_MEMORY else FAILED, reason=needed
            )
            continue
        row = replace(row, peak_bytes=needed)
        try:
            call = training.step(cell, name)
            clocked = _Kept(call)
            first_s = stopwatch.once(clocked)
        except (RuntimeError, MemoryError, UserError) as error:
            rows[name] = replace(row, reason=f"{type(error).__name__}: {error}"[:200])
            continue
        losses[name] = float(clocked.result)
        reference = next(iter(losses.values()))
        if not abs(losses[name] - reference) <= LOSS_TOLERANCE * abs(reference):
            reason = f"first loss {losses[name]:.6g}, {next(iter(losses))} has {reference:.6g}"
            rows[name] = replace(row, status=WRONG, reason=reason, first_s=first_s)
            continue
        if first_s > selection.budget_s:
            rows[name] = replace(
                row, status=OVER_BUDGET, reason=f"first step {first_s:.3g} s", first_s=first_s
            )
            continue
        rows[name] = replace(row, status=TIMED, first_s=first_s)
        calls[name] = call
    for name, timing in stopwatch.steady(calls, selection.repeats).items():
        rows[name] = replace(
            rows[name], **asdict(timing), spans=training.spans_of(calls[name], min(3, timing.repeats))
        )
        rows[name] = _whole_step(rows[name], training.evaluations(cell, name))
    return list(rows.values())


def _whole_step(row: Row, evaluations: int) -> Row:
    """The times of a step that is so many of the calls that were timed."""
    if evaluations == 1 or row.median_s is None or row.spread_s is None:
        return row
    return replace(
        row,
        projected_from=evaluations,
        median_s=row.median_s * evaluations,
        spread_s=row.spread_s * evaluations,
        spans={name: seconds * evaluations for name, seconds in (row.spans or {}).items()},
    )


class _Kept:
    """A call that keeps its result."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.result: Any = None

    def __call__(self) -> None:
        self.result = self._call()


def factors(rows: list[Mapping[str, Any]]) -> list[str]:
    """By cell: what reductions and what the simulator save, and both together, as far as measured."""
    cells: dict[tuple[Any, ...], dict[str, float]] = {}
    circuits: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows:
        if row["median_s"] is not None:
            key = (row["model"], row["qubits"], row["batch"])
            cells.setdefault(key, {})[row["simulator"]] = row["median_s"]
            inside = sum(s for name, s in (row["spans"] or {}).items() if name.startswith("circuit."))
            if inside:
                circuits.setdefault(key, {})[row["simulator"]] = inside
    out = []
    for key, timed in cells.items():
        pairs = (
            ("together", "literal", "fused"),
            ("reductions under default.qubit", "literal", "default.qubit"),
            ("reductions under fused", "literal-fused", "fused"),
            ("fused on the literal circuits", "literal", "literal-fused"),
            ("fused on the reduced circuits", "default.qubit", "fused"),
            ("building circuits once", "literal", "literal-bound"),
            ("the closed form", "literal-bound", "closed-form-shift"),
            ("a gradient without shifts", "closed-form-shift", "closed-form"),
            ("fused on the closed form", "closed-form", "fused"),
        )
        said = [f"{what} {timed[a] / timed[b]:.3g}x" for what, a, b in pairs if {a, b} <= timed.keys()]
        inside = circuits.get(key, {})
        if {"literal", "fused"} <= inside.keys():
            said.append(f"the circuits alone {inside['literal'] / inside['fused']:.3g}x")
        if said:
            out.append(f"{Cell(*key)}: {', '.join(said)}")
    return out
