"""`ketscale bench models`: training steps of models, by every simulator, with memory and spans."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from ketscale.bench import ceiling, machine, memory, steps, stopwatch, traffic
from ketscale.bench import device as devices
from ketscale.bench.captured import WARM_CALLS, Refused, captured
from ketscale.bench.rows import FAILED, OUT_OF_MEMORY, OVER_BUDGET, TIMED, WRONG, ModelRow, failure
from ketscale.bench.selection import all_cores, at_least, device_of, names_of, numbers_of
from ketscale.bench.steps import ModelCell
from ketscale.errors import UserError

# Largest difference of the first losses, relative: they are of the same weights and trials in fp32.
LOSS_TOLERANCE = 1e-4
# Replays of a step's graph whose losses must be those of the same steps without a graph: the same kernels run.
COMPARED = 3
REPLAY_TOLERANCE = 1e-5
GRAPH = " graph"
BATCHES = {"cpu": (32,), "cuda": (32, 256, 2048, 8192)}

Call = Callable[[], Any]
# See `captured`.
Capture = Callable[[Call, torch.device, int | None, Callable[[], None]], Call | Refused]


@dataclass(frozen=True)
class ModelSelection:
    """The arguments of `ketscale bench models`.

    batches: empty for those of the device. simulators: empty for all that fit a model, on a GPU those made for one.
    """

    models: tuple[str, ...] = tuple(steps.MODELS)
    qubits: tuple[int, ...] = (6, 8, 10)
    batches: tuple[int, ...] = ()
    simulators: tuple[str, ...] = ()
    device: str = "cpu"
    budget_s: float = 60.0
    repeats: int = 7
    threads: int = field(default_factory=all_cores)

    def arms(self, model: str) -> list[str]:
        """The simulators that a model is timed with."""
        wanted = self.simulators or (steps.ALL_ARMS if self.device == "cpu" else steps.GPU_ARMS)
        return [arm for arm in steps.arms(model) if arm in wanted]

    def cells(self) -> Iterator[ModelCell]:
        """All cells; see `steps.cells`."""
        batches = sorted(self.batches or BATCHES[self.device])
        return steps.cells(filter(self.arms, self.models), self.qubits, batches)


def parse(
    *,
    models: str | None = None,
    qubits: str | None = None,
    batch: str | None = None,
    simulators: str | None = None,
    budget: str | None = None,
    repeats: str | None = None,
    threads: str | None = None,
    device: str | None = None,
) -> ModelSelection:
    """The selection of the command's options: lists separated by commas, None where not given.

    Raises:
        UserError: a value is not a number, too small, or not a name of a model, simulator or device; or no simulator fits a model.
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
        device=device_of(device),
    )
    if not any(map(selection.arms, selection.models)):
        able = dict.fromkeys(arm for model in selection.models for arm in steps.arms(model))
        raise UserError(f"--simulators: none fits {', '.join(selection.models)}; choose of {', '.join(able)}")
    return selection


def measure(
    selection: ModelSelection,
    show: Callable[[ModelCell, list[ModelRow]], None] = lambda cell, rows: None,
    limit_s: float | None = None,
) -> dict[str, Any]:
    """Measure all cells, `show` each as it finishes; {'machine', 'cells', 'rows'}, ready for JSON.

    limit_s: after so many seconds no further cell is begun.

    Raises:
        UserError: there is no such device.
    """
    start = time.monotonic()
    device = devices.opened(selection.device)
    bench = Bench(selection, device)
    rows: list[ModelRow] = []
    rates: dict[str, float | None] = {"copy_gbs": None}
    cells, measured = list(selection.cells()), 0
    # Ctrl-C keeps the cells that are finished.
    with machine.prepared(selection.threads) as cores, suppress(KeyboardInterrupt):
        for cell in cells:
            if limit_s is not None and time.monotonic() - start > limit_s:
                break
            done = bench.measure(cell)
            show(cell, done)
            rows += done
            measured += 1
        with suppress(RuntimeError):  # no memory is left for it
            rates["copy_gbs"] = ceiling.copy_gbs(device)
    return {
        "machine": machine.describe(selection.threads, selection.budget_s, cores, rates, device),
        "cells": {"asked": len(cells), "measured": measured},
        "rows": [asdict(row) for row in rows],
    }


class Bench:
    """Measures cells, smaller batches first; remembers times, which predict those of larger batches.

    capture: makes a step a graph; None where there are none.
    """

    def __init__(self, selection: ModelSelection, device: torch.device) -> None:
        self._selection = selection
        self._device = device
        self.capture: Capture | None = captured if device.type == "cuda" else None
        self._last: dict[tuple[str, int, str], tuple[int, float]] = {}

    def measure(self, cell: ModelCell) -> list[ModelRow]:
        """One row for each simulator that fits the model."""
        rows: dict[str, ModelRow] = {}
        calls: dict[str, Call] = {}
        losses: dict[str, float] = {}
        for name in self._selection.arms(cell.model):
            devices.release(self._device)
            row = ModelRow(cell.model, cell.qubits, cell.batch, name, FAILED)
            expected = stopwatch.predicted(self._last.get((cell.model, cell.qubits, name)), cell.batch)
            if expected > self._selection.budget_s:
                rows[name] = replace(row, status=OVER_BUDGET, reason=f"predicted {expected:.3g} s")
                continue
            # Whatever one raises must not end a benchmark of hours.
            try:
                rows[name], found = self._tried(cell, name, row, losses)
            except Exception as error:
                status, reason = failure(error)
                rows[name], found = replace(row, status=status, reason=reason), {}
            calls |= found
        return self._timed(cell, rows, calls)

    def _tried(
        self, cell: ModelCell, name: str, row: ModelRow, losses: dict[str, float]
    ) -> tuple[ModelRow, dict[str, Call]]:
        """The row of a simulator before it is timed, and its calls to time.

        On a CPU memory is measured first, in a process of its own: what runs out of it is not tried here.
        """
        if self._device.type == "cpu":
            needed = memory.peak_bytes(cell, name, self._selection.threads)
            if isinstance(needed, str):
                status = needed if needed == OUT_OF_MEMORY else FAILED
                return replace(row, status=status, reason=needed), {}
            row = replace(row, peak_bytes=needed)
        call = devices.finished(steps.step(cell, name, self._device), self._device)
        clocked = _Kept(call)
        row = replace(row, first_s=stopwatch.once(clocked))
        losses[name] = float(clocked.result)
        reference = next(iter(losses.values()))
        if not _alike(losses[name], reference, LOSS_TOLERANCE):
            reason = f"first loss {losses[name]:.6g}, {next(iter(losses))} has {reference:.6g}"
            return replace(row, status=WRONG, reason=reason), {}
        assert row.first_s is not None
        if row.first_s > self._selection.budget_s:
            return replace(row, status=OVER_BUDGET, reason=f"first step {row.first_s:.3g} s"), {}
        row = replace(row, status=TIMED, operand_bytes=traffic.operand_bytes(call))
        if self._device.type == "cuda":
            row = replace(row, peak_bytes=devices.peak_bytes(call, self._device))
        if self.capture is None:
            return row, {name: call}
        replay, why = self._graph(self.capture, cell, name, call, row.peak_bytes)
        found = {name: call} if replay is None else {name: call, name + GRAPH: replay}
        return replace(row, graph_reason=why), found

    def _graph(
        self, capture: Capture, cell: ModelCell, name: str, call: Call, needed: int | None
    ) -> tuple[Call | None, str | None]:
        """The replay of a whole step, which trains on as the eager step does; or why there is none."""
        if name not in steps.CAPTURABLE:
            return None, "it copies from the host in every step"
        again_s = stopwatch.once(call)
        if again_s > stopwatch.LONG_S:
            return None, f"a step takes {again_s:.3g} s, and a graph saves microseconds"
        eager = steps.step(cell, name, self._device)
        expected = [float(eager()) for _ in range(WARM_CALLS + COMPARED)][WARM_CALLS:]
        del eager
        again, before = steps.replayable(cell, name, self._device)
        replay = capture(again, self._device, needed, before)
        if isinstance(replay, Refused):
            return None, replay.reason
        waited = devices.finished(replay, self._device)
        losses = [float(waited()) for _ in expected]
        if not all(_alike(a, b, REPLAY_TOLERANCE) for a, b in zip(losses, expected, strict=True)):
            return None, f"losses of replays {losses}, without a graph {expected}"
        return waited, None

    def _timed(self, cell: ModelCell, rows: dict[str, ModelRow], calls: dict[str, Call]) -> list[ModelRow]:
        results = stopwatch.steady(calls, self._selection.repeats)
        for name, timing in results.items():
            if name.endswith(GRAPH):
                continue
            self._last[cell.model, cell.qubits, name] = (cell.batch, timing.median_s)
            spans = steps.spans_of(calls[name], min(3, timing.repeats), self._device)
            row = replace(rows[name], **asdict(timing), spans=spans)
            graph = results.get(name + GRAPH)
            if graph:
                row = replace(row, graph_median_s=graph.median_s, graph_iqr_s=graph.iqr_s)
            rows[name] = _whole_step(row, steps.evaluations(cell, name))
        return list(rows.values())


def _alike(loss: float, other: float, tolerance: float) -> bool:
    return abs(loss - other) <= tolerance * abs(other)  # not for NaN


def _whole_step(row: ModelRow, evaluations: int) -> ModelRow:
    """The times of a step that is so many of the calls that were timed."""
    if evaluations == 1 or row.median_s is None or row.iqr_s is None:
        return row
    return replace(
        row,
        projected_from=evaluations,
        median_s=row.median_s * evaluations,
        iqr_s=row.iqr_s * evaluations,
        operand_bytes=None if row.operand_bytes is None else row.operand_bytes * evaluations,
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
    graphs: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        if row["median_s"] is not None:
            key = (row["model"], row["qubits"], row["batch"])
            cells.setdefault(key, {})[row["simulator"]] = row["median_s"]
            if row.get("graph_median_s"):
                gain = row["median_s"] / row["graph_median_s"]
                graphs.setdefault(key, []).append(f"{row['simulator']} as a graph {gain:.3g}x")
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
        said += graphs.get(key, [])
        inside = circuits.get(key, {})
        if {"literal", "fused"} <= inside.keys():
            said.append(f"the circuits alone {inside['literal'] / inside['fused']:.3g}x")
        if said:
            out.append(f"{ModelCell(*key)}: {', '.join(said)}")
    return out
