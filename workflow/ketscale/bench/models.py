"""`ketscale bench models`: training steps of models, by every simulator, with memory and spans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ketscale.bench import machine, memory, steps, stopwatch
from ketscale.bench.rows import FAILED, OUT_OF_MEMORY, OVER_BUDGET, TIMED, WRONG, ModelRow
from ketscale.bench.selection import all_cores, at_least, names_of, numbers_of
from ketscale.bench.steps import ModelCell
from ketscale.errors import UserError

# Largest difference of the first losses, relative: they are of the same weights and trials in fp32.
LOSS_TOLERANCE = 1e-4


@dataclass(frozen=True)
class ModelSelection:
    """The arguments of `ketscale bench models`; simulators: empty for all that fit a model."""

    models: tuple[str, ...] = tuple(steps.MODELS)
    qubits: tuple[int, ...] = (6, 8, 10)
    batches: tuple[int, ...] = (32,)
    simulators: tuple[str, ...] = ()
    budget_s: float = 60.0
    repeats: int = 7
    threads: int = field(default_factory=all_cores)

    def arms(self, model: str) -> list[str]:
        """The simulators that a model is timed with."""
        return [arm for arm in steps.arms(model) if not self.simulators or arm in self.simulators]

    def cells(self) -> Iterator[ModelCell]:
        """All cells; a classical model has no qubits to vary, the one on sentences one size."""
        for model in filter(self.arms, self.models):
            kind = steps.MODELS[model]
            if model in steps.ON_SENTENCES:
                yield ModelCell(model, kind.sizes["qubits"], steps.SENTENCES)
                continue
            for qubits in (0,) if kind.classical else self.qubits:
                for batch in self.batches:
                    yield ModelCell(model, qubits, batch)


def parse(
    *,
    models: str | None = None,
    qubits: str | None = None,
    batch: str | None = None,
    simulators: str | None = None,
    budget: str | None = None,
    repeats: str | None = None,
    threads: str | None = None,
) -> ModelSelection:
    """The selection of the command's options: lists separated by commas, None where not given.

    Raises:
        UserError: a value is not a number, too small, or not a name of a model or simulator; or no simulator fits a model.
    """
    default = ModelSelection()
    selection = ModelSelection(
        models=names_of("--models", models, steps.MODELS) or default.models,
        qubits=numbers_of("--qubits", qubits, 2) or default.qubits,
        batches=numbers_of("--batch", batch, 1) or default.batches,
        simulators=names_of("--simulators", simulators, steps.ALL_ARMS),
        budget_s=at_least("--budget", budget, float, 0) if budget is not None else default.budget_s,
        repeats=at_least("--repeats", repeats, int, 5) if repeats is not None else default.repeats,
        threads=at_least("--threads", threads, int, 1) if threads is not None else default.threads,
    )
    if not any(map(selection.arms, selection.models)):
        able = dict.fromkeys(arm for model in selection.models for arm in steps.arms(model))
        raise UserError(f"--simulators: none fits {', '.join(selection.models)}; choose of {', '.join(able)}")
    return selection


def measure(selection: ModelSelection, show: Callable[[ModelCell, list[ModelRow]], None]) -> dict[str, Any]:
    """Measure all cells, `show` each as it finishes; {'machine', 'cells', 'rows'}, ready for JSON.

    Memory is measured first: a simulator that runs out of it is not timed.
    """
    rows: list[ModelRow] = []
    cells, measured = list(selection.cells()), 0
    # Ctrl-C keeps the cells that are finished.
    with machine.prepared(selection.threads) as cores, suppress(KeyboardInterrupt):
        for cell in cells:
            done = _measure(selection, cell)
            show(cell, done)
            rows += done
            measured += 1
    return {
        "machine": machine.describe(selection.threads, selection.budget_s, cores, {}),
        "cells": {"asked": len(cells), "measured": measured},
        "rows": [asdict(row) for row in rows],
    }


def _measure(selection: ModelSelection, cell: ModelCell) -> list[ModelRow]:
    rows: dict[str, ModelRow] = {}
    calls: dict[str, Callable[[], Any]] = {}
    losses: dict[str, float] = {}
    for name in selection.arms(cell.model):
        row = ModelRow(cell.model, cell.qubits, cell.batch, name, FAILED)
        needed = memory.peak_bytes(cell, name, selection.threads)
        if isinstance(needed, str):
            rows[name] = replace(row, status=needed if needed == OUT_OF_MEMORY else FAILED, reason=needed)
            continue
        row = replace(row, peak_bytes=needed)
        try:
            call = steps.step(cell, name)
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
            rows[name], **asdict(timing), spans=steps.spans_of(calls[name], min(3, timing.repeats))
        )
        rows[name] = _whole_step(rows[name], steps.evaluations(cell, name))
    return list(rows.values())


def _whole_step(row: ModelRow, evaluations: int) -> ModelRow:
    """The times of a step that is so many of the calls that were timed."""
    if evaluations == 1 or row.median_s is None or row.iqr_s is None:
        return row
    return replace(
        row,
        projected_from=evaluations,
        median_s=row.median_s * evaluations,
        iqr_s=row.iqr_s * evaluations,
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
            out.append(f"{ModelCell(*key)}: {', '.join(said)}")
    return out
