"""`ketscale bench models`: training steps of models, by every simulator, with memory and spans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks import machine, memory, steps, stopwatch
from benchmarks.circuits import DEVICES
from benchmarks.options import SECONDS, names, numbers, one_of, option
from benchmarks.runner import (
    FAILED,
    ON_A_GPU,
    OUT_OF_MEMORY,
    WRONG,
    Benchmark,
    Call,
    Column,
    Result,
    Row,
    Rows,
    Untimed,
    by_case,
    case_of,
    mebibytes,
    time_or_status,
)  # fmt: skip
from benchmarks.steps import ModelCase
from ketscale.engines.graphs import WARM_CALLS
from ketscale.errors import UserError
from ketscale.words import duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Largest difference of the first losses, relative: they are of the same weights and trials in fp32.
LOSS_TOLERANCE = 1e-4
# Replays of a step's graph whose losses must be those of the same steps without a graph: the same kernels run.
COMPARED = 3
REPLAY_TOLERANCE = 1e-5
BATCHES = {"cpu": (32,), "cuda": (32, 256, 2048, 8192)}


def _spans(spans: dict[str, float]) -> str:
    return ", ".join(f"{name} {duration(value)}" for name, value in spans.items())


@dataclass(kw_only=True)
class Models(Benchmark):
    """Times are of one training step; where one is projected, the first time is that of an evaluation.

    batch: empty for those of the device. simulators: empty for all that fit a model, on a GPU those made for one.
    """

    case = ModelCase
    text = "whole training steps of the models"
    predicts, drawn = True, True
    columns = (
        ON_A_GPU[0]._replace(heading="as a graph", shown=duration),
        *ON_A_GPU[1:],
        # What two steps need beyond what the process had before; of a GPU's memory, what one step needs beyond data,
        # parameters and the optimiser's state.
        Column("peak_bytes", "peak memory", mebibytes),
        # How many equal evaluations a step is made of, where one of them was timed and multiplied.
        Column("projected_from", "projected from"),
        # Exclusive seconds of a step by span, of further steps.
        Column("spans", "spans of a step", _spans),
    )

    models: tuple[str, ...] = option(tuple(steps.MODELS), names(steps.MODELS), "models")
    qubits: tuple[int, ...] = option((6, 8, 10), numbers(2), "numbers of qubits")
    batch: tuple[int, ...] = option((), numbers(1), "batch sizes")
    simulators: tuple[str, ...] = option((), names(steps.ALL_ARMS), "simulators")
    budget: float = option(60, SECONDS, "skip a simulator whose first step takes longer")
    device: str = option("cpu", one_of(DEVICES), "device to compute on")

    def check(self) -> None:
        if not any(map(self.arms, self.models)):
            able = dict.fromkeys(arm for model in self.models for arm in steps.arms(model))
            raise UserError(f"--simulators: none fits {', '.join(self.models)}; choose of {', '.join(able)}")

    def arms(self, model: str) -> list[str]:
        """The simulators that a model is timed with."""
        expected = self.simulators or (steps.ALL_ARMS if self.device == "cpu" else steps.GPU_ARMS)
        return [arm for arm in steps.arms(model) if arm in expected]

    def cases(self) -> Iterator[ModelCase]:
        """See `steps.cases`."""
        return steps.cases(
            filter(self.arms, self.models), self.qubits, sorted(self.batch or BATCHES[self.device])
        )

    def subjects(self, case: ModelCase) -> list[str]:
        self._losses: dict[str, float] = {}
        return self.arms(case.model)

    def prepare(self, case: ModelCase, name: str, row: Row) -> Call:
        """On a CPU memory is measured first, in a process of its own: what runs out of it is not tried here."""
        if self.on.type == "cpu":
            peak = memory.peak_bytes(case, name, self.threads)
            if isinstance(peak, str):
                raise Untimed(OUT_OF_MEMORY if peak == OUT_OF_MEMORY else FAILED, peak)
            row["peak_bytes"] = peak
        return steps.step(case, name, self.on)

    def agree(self, case: ModelCase, name: str, row: Row, result: Any) -> None:
        """All have the first loss of the first one; JAX has its own masks of dropout, and without them the same losses."""
        if name == steps.JAX:
            from benchmarks.peers import jax_step

            differs = jax_step.disagreement(case)
            if differs:
                raise Untimed(WRONG, differs)
            return
        self._losses[name] = float(result)
        first, reference = next(iter(self._losses.items()))
        if not _alike(self._losses[name], reference, LOSS_TOLERANCE):
            raise Untimed(WRONG, f"first loss {self._losses[name]:.6g}, {first} has {reference:.6g}")

    def calls(self, case: ModelCase, name: str, row: Row, call: Call) -> dict[str, Call]:
        """The step and, on a GPU, its replay as a graph, which trains on as the step does."""
        if self.on.type == "cuda":
            row["peak_bytes"] = machine.peak_bytes(call, self.on)
        if self.capture is None:
            return {"": call}
        if name not in steps.CAPTURABLE:
            row["graph_reason"] = "it copies from the host in every step"
            return {"": call}
        again_s = stopwatch.once(machine.finished(call, self.on))
        if again_s > stopwatch.LONG_S:
            row["graph_reason"] = f"a step takes {again_s:.3g} s, and a graph saves microseconds"
            return {"": call}
        eager = steps.step(case, name, self.on)
        expected = [float(eager()) for _ in range(WARM_CALLS + COMPARED)][WARM_CALLS:]
        del eager

        def differs(replay: Call) -> str | None:
            losses = [float(replay()) for _ in expected]
            same = all(_alike(a, b, REPLAY_TOLERANCE) for a, b in zip(losses, expected, strict=True))
            return None if same else f"losses of replays {losses}, without a graph {expected}"

        return self.with_graph(row, call, differs, *steps.replayable(case, name, self.on))

    def times(self, row: Row) -> int:
        """How many evaluations a step is made of."""
        return steps.evaluations(case_of(ModelCase, row), row["simulator"])

    def finish(self, case: ModelCase, rows: Any, calls: Any, rate: float | None) -> None:
        """Add spans, and project what was measured of one evaluation."""
        for name, call in calls.items():
            row, times = rows[name], self.times(rows[name])
            spans = steps.spans_of(call, min(3, row["repeats"]), self.on)
            row["spans"] = {span: times * seconds for span, seconds in spans.items()}
            row["projected_from"] = times if times > 1 else None

    @classmethod
    def said(cls, row: Row) -> str:
        """The time and the memory."""
        return time_or_status(row) + (f" ({mebibytes(row['peak_bytes'])})" if row["peak_bytes"] else "")

    @classmethod
    def summary(cls, rows: Rows) -> list[str]:
        """By case: what the simulator and what other formulations save, as far as measured."""
        out = []
        for case, timed in by_case(ModelCase, rows).items():
            message = [
                f"{what} {timed[slow]['median_s'] / timed[fast]['median_s']:.3g}x"
                for what, slow, fast in FACTORS
                if {slow, fast} <= timed.keys()
            ]
            message += [
                f"{name} as a graph {row['median_s'] / row['graph_median_s']:.3g}x"
                for name, row in timed.items()
                if row.get("graph_median_s")
            ]
            inside = {name: _in_circuits(row) for name, row in timed.items()}
            if inside.get("default.qubit") and inside.get("fused"):
                message.append(f"the circuits alone {inside['default.qubit'] / inside['fused']:.3g}x")
            out += [f"{case}: {', '.join(message)}"] if message else []
        return out

    @classmethod
    def draw(cls, result: Result) -> Figure:
        """Time and memory of a step."""
        from benchmarks.figures import bars

        return bars(result)


# What is gained, from the slower simulator to the faster one.
FACTORS = (
    ("the step in JAX over ours", steps.JAX, "fused"),
    ("fused over default.qubit", "default.qubit", "fused"),
    ("building circuits once", "literal", "literal-bound"),
    ("the closed form", "literal-bound", "closed-form-shift"),
    ("a gradient without shifts", "closed-form-shift", "closed-form"),
    ("fused on the closed form", "closed-form", "fused"),
)


def _in_circuits(row: Row) -> float:
    return sum(s for name, s in (row["spans"] or {}).items() if name.startswith("circuit."))


def _alike(loss: float, other: float, tolerance: float) -> bool:
    return abs(loss - other) <= tolerance * abs(other)  # not for NaN
