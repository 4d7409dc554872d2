"""All kinds of studies of speed: their effects, references and verdicts from records of known times, and what each row says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ketscale import analysis
from ketscale.analysis import points, verdicts
from ketscale.analysis.comparison import Collected
from ketscale.analysis.kinds import kinds, speed
from ketscale.grid import Run, Study, layout
from ketscale.problems.control.specification import FAMILY
from ketscale.problems.control.workloads import DynamicsSimulator
from tests import records_factory as factory
from tests.sentences import faults

CONFIG = factory.default_config()
FASTER, SLOWER, SAME = verdicts.FASTER, verdicts.SLOWER, verdicts.SAME
UNSURE, MISSING, APART = verdicts.CANNOT_TELL, verdicts.MISSING, verdicts.NOT_COMPARABLE
# The reference of others, which is compared with nothing.
REFERENCE = (None, "")
TWO, FOUR = "mpi-n1r2t1", "mpi-n1r4t1"
LATE = {"status": "timed_out", "reason": "its time was over"}
DIVERGED = {"status": "diverged", "reason": "NaN"}
INTEGRATORS: dict[str, Any] = {
    "exact": {"device": "exact"}, "torch": {"device": "exact", "route": "torch"},
    **{name: {"device": name.split("-")[0], "dt": dt, "tolerance": 0.1} for name, dt in (
        ("rk4-coarse", 0.05), ("rk4", 0.025), ("rk4-fine", 1e-4), ("euler-coarse", 0.02), ("euler", 0.01),
    )},
    "literal": {"device": "rk4", "batching": "loop", "dt": 0.01, "tolerance": 0.1},
    "coarse": {"device": "rk4", "batching": "loop", "dt": 0.025, "tolerance": 0.2},
}  # fmt: skip
# Error and step time of each; the error of the exact ones rounds.
MEASURED = {
    "exact": (2e-15, 0.001), "torch": (0.0, 0.003), "rk4-coarse": (1e-4, 0.002), "rk4": (6.25e-6, 0.004),
    "rk4-fine": (1e-15, 0.1), "euler-coarse": (0.02, 0.0005), "euler": (0.01, 0.002),
}  # fmt: skip
CONTROL = {
    "workload": "tasks", "model": "policy", "qubits": 1, "segments": 20, "batch": 4, "layers": None,
    "simulator": "literal", "protocol": "double",
}  # fmt: skip


def settings_of(kind: str, points: list[dict[str, Any]] | None = None, **axes: Any) -> dict[str, Any]:
    """Settings with one study, and the blocks that some kinds need."""
    defaults = factory.point(**{"simulator": "fused", **axes})
    axes = {name: value for name, value in defaults.items() if value is not None}
    block = {"kind": kind, "question": "?", "axes": axes}
    built = factory.small_study({"asked": {**block, **({"points": points} if points else {})}})
    built["workloads"] |= {
        "tasks": {"kind": "qubit-spectrum"},
        "others": {"kind": "qubit-relaxation"},
        "bars": {"kind": "bars-and-stripes", "split_seed": 0},
    }
    built["models"] = {"narrow": {"kind": "policy", "width": 8}}
    built["simulators"] |= {**INTEGRATORS, "fused-loop": {**built["simulators"]["fused"], "batching": "loop"}}
    double = {"precision": "fp64", "timed": True, "learning_rate": 0.001}
    built["protocols"] |= {
        "double": {**double, "steps": 20}, "single": {**double, "steps": 20, "precision": "fp32"}, "both": {**double, "epochs": 3},
        "unsharded": {**built["protocols"]["timing"], "mistake": "unsharded"},
        "fitted": {"precision": "fp64", "timed": False},
    }  # fmt: skip
    return built


@dataclass(frozen=True)
class Case:
    """A study and the seconds of its runs, or whatever else differs of their records; what must be said of each point.

    by: the columns that name a point here. expected: its effect and verdict. lead: the point of the answer, by its effect.
    """

    settings: dict[str, Any]
    step_s: Callable[[Run], float | dict[str, Any] | None]
    by: str
    expected: Mapping[Any, tuple[float | None, str]]
    lead: tuple[float | None, str]
    columns: Mapping[str, Mapping[Any, float]] = field(default_factory=dict)


def converged(run: Run) -> dict[str, Any]:
    """What a run of a study of convergence has recorded."""
    error, step_s = MEASURED[run.simulator]
    values = {metric.name: 0.1 for metric in FAMILY.metrics} | {"loss": 0.1}
    undefined, own = ({"simulator_error": each, "negativity": each} for each in (None, error))
    quality = {"validation": values | undefined, "test": values | own}
    return {"quality": {"epochs": 3, "best_epoch": 1, "chosen": {}, **quality}, "step_s": step_s}


def by(attribute: str, times: Mapping[Any, float]) -> Callable[[Run], float]:
    return lambda run: times[getattr(run, attribute)]


LAYOUTS = ["cpu-n1r1t1", "cpu-n1r1t2", TWO, FOUR]
STRONG = settings_of("strong", backend=LAYOUTS)
# Seconds on one core, and on two ranks half of that and 2 ms of talking.
TALK = lambda run: 0.002 * run.batch / run.ranks + 0.002 * (run.ranks > 1)  # noqa: E731
CASES = {
    "strong": Case(
        STRONG, by("layout", {"cpu-n1r1t1": 1.0, "cpu-n1r1t2": 1 / 1.01, TWO: 1 / 1.6, FOUR: 1.3}), "layout",
        {"cpu-n1r1t1": REFERENCE, "cpu-n1r1t2": (1.01, SAME), TWO: (1.6, FASTER), FOUR: (1 / 1.3, SLOWER)}, (1.6, FASTER),
        {"efficiency": {TWO: 0.8, FOUR: 1 / 5.2}, "karp_flatt": {TWO: 0.25}, "work_s": {TWO: 0.5, FOUR: 0.25},
         "over_serial": {TWO: 1.6 / 1.01}, "samples_per_s": {TWO: 64 * 1.6}}),
    "strong, none at all": Case(STRONG, lambda run: None, "layout", {}, (None, MISSING)),
    "strong, all failed": Case(STRONG, lambda run: DIVERGED, "layout", {
        "cpu-n1r1t1": REFERENCE, **dict.fromkeys(LAYOUTS[1:], (None, verdicts.FAILED))}, (None, verdicts.FAILED)),
    "strong, most of one side failed": Case(
        settings_of("strong", backend=["cpu-n1r1t1", TWO], seed=[0, 1, 2, 3, 4]),
        lambda run: {"step_s": 1 / run.ranks, **(DIVERGED if run.ranks > 1 and run.seed > 1 else {})}, "layout",
        {"cpu-n1r1t1": REFERENCE, TWO: (2.0, verdicts.FAILED)}, (2.0, verdicts.FAILED)),
    "strong, a busy layout seems best": Case(
        settings_of("strong", backend=["cpu-n1r1t1", TWO, FOUR]),
        lambda run: {"step_s": {1: 1.0, 2: 0.5, 4: 0.1}[run.ranks], **({"quiet": factory.BUSY} if run.ranks == 4 else {})},
        "layout", {"cpu-n1r1t1": REFERENCE, TWO: (2.0, FASTER), FOUR: (10.0, UNSURE)}, (2.0, FASTER)),
    "strong, one without a reference": Case(
        settings_of("strong", backend=["cpu-n1r1t1", TWO], qubits=[4, 6]),
        lambda run: None if run.size == "q6-l3" and run.ranks == 1 else 1 / run.ranks, "layout qubits",
        {("cpu-n1r1t1", 4): REFERENCE, (TWO, 4): (2.0, FASTER), (TWO, 6): (None, MISSING)}, (2.0, FASTER)),
    "weak": Case(
        settings_of("weak", [{"backend": "cpu-n1r1t1"}, {"batch": 128, "backend": TWO}, {"batch": 256, "backend": FOUR}]),
        by("ranks", {1: 1.0, 2: 1.25, 4: 4.0}), "layout",
        {"cpu-n1r1t1": REFERENCE, TWO: (1.6, FASTER), FOUR: (1.0, SAME)}, (1.6, FASTER),
        {"efficiency": {TWO: 0.8, FOUR: 0.25}}),
    "break-even": Case(
        settings_of("break-even", backend=["cpu-n1r1t1", TWO], batch=[1, 2, 8]), TALK, "layout batch",
        {**{("cpu-n1r1t1", batch): REFERENCE for batch in (1, 2, 8)},
         (TWO, 1): (2 / 3, SLOWER), (TWO, 2): (1.0, SAME), (TWO, 8): (1.6, FASTER)}, (1.6, FASTER),
        {"work_s": {(TWO, 1): 0.001, (TWO, 8): 0.008}}),
    "break-even, of GPUs": Case(
        settings_of("break-even", backend=["cpu-n1r1t1", "gpu-n1r1t1", "ddp-n1r2t1"]),
        by("backend", {"cpu": 0.1, "gpu": 0.008, "ddp": 0.005}), "layout",
        {"cpu-n1r1t1": REFERENCE, "gpu-n1r1t1": REFERENCE, "ddp-n1r2t1": (1.6, FASTER)}, (1.6, FASTER),
        {"work_s": {"ddp-n1r2t1": 0.004}}),
    "simulator": Case(
        settings_of("simulator", simulator=["fused", "default.qubit", "lightning.qubit", "qiskit"], qubits=[4, 6]),
        lambda run: {"step_s": {"fused": 1.0, "default.qubit": 0.5 if run.size == "q6-l3" else 3.0, "lightning.qubit": 12.0,
                                "qiskit": 0.1}[run.simulator], **(LATE if run.simulator == "qiskit" else {})},
        "simulator qubits",
        {("fused", 4): REFERENCE, ("default.qubit", 4): (3.0, SLOWER), ("lightning.qubit", 4): (12.0, SLOWER),
         ("qiskit", 4): (None, MISSING), ("default.qubit", 6): REFERENCE, ("fused", 6): (2.0, SLOWER), ("lightning.qubit", 6): (24.0, SLOWER),
         ("qiskit", 6): (None, MISSING)}, (2.0, SLOWER)),
    "features": Case(
        settings_of("features", protocol=["timing", "timing-inline"]), by("protocol", {"timing": 0.1, "timing-inline": 0.15}),
        "features", {"cached": REFERENCE, "inline": (1.5, SLOWER)}, (1.5, SLOWER)),
    "mistakes": Case(
        settings_of("mistakes", [{"simulator": ["fused", "fused-loop"]}, {"backend": TWO, "protocol": ["timing", "unsharded"]}],
              batch=[32, 128]),
        lambda run: run.batch * 1e-4 * {"unsharded": 1.1, "timing": 0.6 if run.ranks > 1 else 30.0 if run.simulator == "fused-loop" else 1.0}[
            run.protocol], "layout simulator protocol batch",
        {(*each, batch): found for batch in (32, 128) for each, found in {
            ("cpu-n1r1t1", "fused", "timing"): REFERENCE, ("cpu-n1r1t1", "fused-loop", "timing"): (30.0, SLOWER),
            (TWO, "fused", "timing"): (0.6, FASTER), (TWO, "fused", "unsharded"): (1.1, SLOWER)}.items()}, (30.0, SLOWER)),
    "convergence": Case(
        settings_of("convergence", **{**CONTROL, "batch": 7, "simulator": list(MEASURED), "protocol": "both"}), converged, "simulator",
        {"exact": REFERENCE, "torch": (3.0, SLOWER), "rk4-coarse": (2.0, SLOWER), "rk4": (4.0, SLOWER), "rk4-fine": (100.0, SLOWER),
         "euler-coarse": REFERENCE, "euler": (2.0, SLOWER)}, (3.0, SLOWER),
        {"error": {"rk4": 6.25e-6}, "dt": {"rk4": 0.025}}),
    "convergence, the exact one is busy": Case(
        settings_of("convergence", **{**CONTROL, "batch": 7, "simulator": list(MEASURED), "protocol": "both"}),
        lambda run: {**converged(run), **({"quiet": factory.BUSY} if run.simulator == "exact" else {})}, "simulator",
        {"exact": (1 / 3, UNSURE), "torch": REFERENCE, "rk4-coarse": REFERENCE, "rk4": (4 / 3, SLOWER), "rk4-fine": (100 / 3, SLOWER),
         "euler-coarse": REFERENCE, "euler": (1.0, SAME)}, (100 / 3, SLOWER)),
    "batch": Case(
        settings_of("batch", batch=[16, 64, 256]), by("batch", {16: 1.0, 64: 2.0, 256: 20.0}), "batch",
        {16: REFERENCE, 64: (2.0, FASTER), 256: (0.8, SLOWER)}, (2.0, FASTER)),
    "qubits": Case(
        settings_of("qubits", qubits=[2, 4, 8], simulator=["fused", "default.qubit"]),
        lambda run: {"q2-l3": 1.0, "q4-l3": 1.01, "q8-l3": 2.5}[run.size] * (3 if run.simulator == "fused" else 1), "simulator qubits",
        {**{(name, size): found for name in ("fused", "default.qubit")
            for size, found in {2: REFERENCE, 4: (1.01, SAME), 8: (2.5, SLOWER)}.items()}}, (2.5, SLOWER)),
    "qubits, anything from a hundredth to 25 times": Case(
        settings_of("qubits", qubits=[2, 8]), lambda run: [0.25, 2.0, 16.0][run.seed] if run.size == "q8-l3" else 1.0, "qubits",
        {2: REFERENCE, 8: (2.0, UNSURE)}, (2.0, UNSURE)),
}  # fmt: skip


def analysed(settings: dict[str, Any], results: Path, change: factory.Change) -> dict[str, pd.DataFrame]:
    """The tables of the study, whose answer nobody minds."""
    config = factory.partial(analysis.of(settings))
    factory.write_all(config, results, change)
    tables = dict(factory.collect(config, results).tables)
    assert not faults(tables["answers"])
    return tables


@pytest.mark.parametrize("name", CASES)
def test_the_effects_and_verdicts_of_every_kind(name: str, tmp_path: Path) -> None:
    case = CASES[name]

    def change(run: Run) -> dict[str, Any] | None:
        made = case.step_s(run)
        made = {"step_s": made} if isinstance(made, float) else made
        # The ratios of one seed are those of any, whatever its own times are.
        return made and made | {name: made[name] * 1.25 ** (run.seed - 1) for name in {"step_s"} & {*made}}

    tables = analysed(case.settings, tmp_path, change)
    table = tables["speed"].set_index(case.by.split())
    rows = {
        at: row
        for at, (_, row) in zip(
            table.index, table.astype(object).where(table.notna(), None).iterrows(), strict=True
        )
    }
    assert len(rows) == len(table)
    answers = {
        at: (effect and pytest.approx(effect, rel=1e-12), verdict)
        for at, (effect, verdict) in case.expected.items()
    }
    assert {at: (row["effect"], row["verdict"] or "") for at, row in rows.items()} == answers
    for row in rows.values():
        assert row["reference"] or row["effect"] is None
        assert row["low"] is None or row["low"] <= row["effect"] <= row["high"]
    for column, values in case.columns.items():
        assert {at: rows[at][column] for at in values} == pytest.approx(dict(values))
    answer = tables["answers"].iloc[0]
    effect, verdict = case.lead
    assert answer["verdict"] == verdict
    assert answer["effect"] == pytest.approx(math.nan if effect is None else effect, rel=1e-12, nan_ok=True)


# ---------------------------------------------------------------- single rows, from rows of runs.csv


def row(**changes: Any) -> dict[str, Any]:
    """A row of runs.csv as far as studies of speed read it."""
    defaults = {
        "workload": "digits", "model": "vqc", "size": "q4-l3", "family": "images", "qubits": 4, "layers": 3, "batch": 64,
        "simulator": "default.qubit", "layout": "cpu-n1r1t1", "protocol": "timing", "seed": 0, "mistake": None,
        "status": "completed", "resumed": 0, "quiet": True, "least_step_s": None, "timed": True, "precision": "fp32", "features": "cached",
        "step_s": 1.0, "first_step_s": 2.0, "steps_per_epoch": 20, "sample_work": None,
        "hardware": "CPU, 2 cores", "code": "0.1.0", "imported": "namehash",
        "packages": "torch=2.9", "mpi_library": None, "shared_cores": None, "data_hash": "d", "features_hash": "f",
    }  # fmt: skip
    result = {**defaults, **changes}
    result["samples_per_s"] = result["step_s"] and result["batch"] / result["step_s"]
    result = {"epoch_s": result["step_s"] and 20 * result["step_s"], **result}
    return {**result, **layout(result["layout"])}


def ranks(count: int, **changes: Any) -> dict[str, Any]:
    """The same row on `count` MPI ranks."""
    return row(layout=f"mpi-n1r{count}t1", **changes)


def threads(count: int, **changes: Any) -> dict[str, Any]:
    """The same row on `count` threads."""
    return row(layout=f"cpu-n1r1t{count}", **changes)


def grown(qubits: int, layers: int = 3, **changes: Any) -> dict[str, Any]:
    """A row of a family in which twice the batch needs one more qubit, and so four times the work: 2**qubits samples on
    2**(qubits - 4) ranks.
    """
    sizes = {"size": f"q{qubits}-l{layers}", "qubits": qubits, "layers": layers, "batch": 2**qubits}
    changes |= {**sizes, "sample_work": 4.0**qubits}
    return ranks(2 ** (qubits - 4), **changes) if qubits > 4 else row(**changes)


def rows_of(kind: str, rows: list[dict[str, Any]], asked: int | None = None) -> list[dict[str, Any]]:
    """The rows of speed.csv of one study of the first `asked` of these rows."""
    study = Study("s", kind, "?", tuple(Run.of(result) for result in rows[:asked]))
    return [
        dict(built) for built in kinds(CONFIG.families)[kind].rows(study, Collected.of(CONFIG, rows, (), {}))
    ]


def seeds(times: list[float], **changes: Any) -> list[dict[str, Any]]:
    return [row(seed=seed, step_s=step_s, **changes) for seed, step_s in enumerate(times)]


late, busy, failed = {"status": "timed_out"}, {"quiet": False}, {"status": "diverged"}
# The kind, the runs, and what the row of the last run's point has.
ROWS: dict[str, tuple[str, list[dict[str, Any]], dict[str, Any]]] = {
    "all seeds busy": ("strong", seeds([1.0, 2.0, 4.0], **busy), {"step_s": 2.0, "n": 3, "busy": 3, "flag": "busy"}),
    "one seed busy": ("strong", [row(seed=1, step_s=9.0, **busy), row()], {"step_s": 1.0, "n": 1, "busy": 1, "flag": ""}),
    "all seeds timed out": (
        "strong", [*seeds([2.0, 8.0], step_count=3, **late), row(seed=2, step_s=None, step_count=0, **late)],
        {"step_s": 4.0, "n": 2, "timed_out": 3, "failed": 0, "flag": "timed_out"}),
    "one seed timed out": (
        "strong", [row(seed=1, step_s=9.0, **late), row()], {"step_s": 1.0, "n": 1, "timed_out": 1, "flag": ""}),
    "a busy seed beside one that timed out": ("strong", [row(seed=1, step_s=9.0, **late), row(**busy)], {"step_s": 1.0, "flag": "busy"}),
    "two of three diverged": (
        "strong", [row(seed=1, **failed), row(seed=2, **failed), row()], {"step_s": 1.0, "n": 1, "failed": 2, "flag": ""}),
    "a reference that timed out": ("strong", [row(**late), ranks(2, step_s=0.5)], {"effect": 2.0, "flag": "timed_out reference"}),
    "not timed alone": ("strong", [row(timed=False)], {"flag": "untimed"}),
    "not timed alone, and timed out": ("strong", [row(timed=False, **late)], {"flag": "untimed"}),
    "an epoch is measured and not 20 steps": (
        "strong", [row(seed=seed, epoch_s=26.0 + seed) for seed in range(3)], {"epoch_s": 27.0}),
    "two codes": (
        "strong", [*seeds([1.0, 1.0]), row(seed=2, imported="nameHASH")],
        {"step_s": None, "epoch_s": None, "samples_per_s": None, "n": 3, "flag": "mixed", "verdict": APART}),
    "best serial: two threads": (
        "strong", [row(), threads(2, step_s=0.8), ranks(2, step_s=0.5)], {"effect": 2.0, "over_serial": 1.6}),
    "best serial: no more cores": ("strong", [row(), threads(4, step_s=0.1), ranks(2, step_s=0.5)], {"over_serial": 2.0}),
    "best serial: another simulator, but none that was not timed": (
        "strong", [row(simulator="fused", step_s=0.6), row(step_s=0.1, protocol="quality", timed=False), row(), ranks(2, step_s=0.5)],
        {"effect": 2.0, "over_serial": 1.2}),
    "best serial: the same work": (
        "strong", [row(step_s=0.1, size="q2-l1", qubits=2, layers=1), row(), ranks(2, step_s=0.5)], {"over_serial": 2.0}),
    "best serial: the fastest of doubtful ones": (
        "strong", [row(simulator="qiskit", step_s=5.0, **late), row(**busy), ranks(2, step_s=0.5, **busy)], {"over_serial": 2.0}),
    "best serial: a sound one is before them": (
        "strong", [row(simulator="fused", step_s=4.0), row(**busy), ranks(2, step_s=0.5)], {"over_serial": 8.0}),
    "best serial: none of one worker": ("strong", [row(step_s=0.1, simulator="fused"), row()], {"over_serial": None}),
    "weak: no other size": ("weak", [row(), ranks(2, batch=128, size="q5-l3", qubits=5)], {"effect": None, "verdict": MISSING}),
    "weak: thrice the batch": ("weak", [row(step_s=0.7), ranks(3, batch=192)], {"effect": 2.1, "efficiency": 0.7}),
    "weak: work that grows": ("weak", [grown(4), grown(5, step_s=5.0), grown(6, step_s=32.0)], {"effect": 2.0, "efficiency": 0.5}),
    "weak: the size that is most alike": ("weak", [grown(4, layers=2, step_s=9.0), grown(4), grown(5, step_s=5.0)], {"effect": 1.6}),
    "simulator: equal times": ("simulator", [row(simulator="fused"), row()], {"effect": None, "verdict": ""}),
    "simulator: what timed out wins nothing": (
        "simulator", [row(simulator="fused", step_s=0.1, **late), row()], {"effect": None, "verdict": ""}),
    "changes: without the first point": ("changes", [row(status="diverged", step_s=None), row(batch=1)], {"verdict": verdicts.FAILED}),
    "mistakes: the fair rank of another batch is none": ("mistakes", [row(), ranks(2, batch=32)], {"verdict": MISSING}),
    "batch: the smallest that was timed": (
        "batch", [row(batch=16, step_s=None, **failed), row(batch=32), row(step_s=1.6)], {"effect": 1.25}),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_what_the_row_of_a_point_has(name: str) -> None:
    kind, rows, expected = ROWS[name]
    (result,) = (each for each in rows_of(kind, rows) if points.point(each) == points.point(rows[-1]))
    assert {column: result.get(column) for column in expected} == pytest.approx(expected)


def test_the_runs_of_a_point_are_not_looked_at_for_each_other_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the table of thousands of points takes the square of their number."""
    looked, usable = [], points.usable
    monkeypatch.setattr(points, "usable", lambda group: looked.append(group) or usable(group))
    rows = [threads(count + 1) for count in range(50)]
    assert len(rows_of("strong", rows)) == len(rows)
    assert len(looked) <= 10 * len(rows)


def test_simulators_are_in_the_order_of_their_times_and_one_that_timed_out_is_the_last() -> None:
    times = {"fused": 0.1, "default.qubit": 0.5, "qiskit": 0.2}
    rows = [
        row(simulator=name, step_s=step_s, **(late if name == "fused" else {}))
        for name, step_s in times.items()
    ]
    assert [each["simulator"] for each in rows_of("simulator", rows)] == ["qiskit", "default.qubit", "fused"]


def test_on_gpus_the_workers_are_gpus() -> None:
    assert (points.workers("ddp-n1r4t8"), points.workers("mpi-n1r4t8")) == (4, 32)
    assert points.serial("ddp") == "gpu-n1r1t1"


# ---------------------------------------------------------------- further columns of some kinds

LOSSES = [2.3 * 0.9**step for step in range(20)]
# What is different, the seconds of a step, the speed of a sample over the first point's, and how far the last loss is off;
# None where the work is another.
CHANGES: dict[str, tuple[dict[str, Any], float, float | None, float | None]] = {
    "baseline": ({}, 1.0, None, 0.0),
    "coarse": ({"simulator": "coarse"}, 0.4, 2.5, 1e-4),
    "exact": ({"simulator": "exact"}, 0.001, 1000.0, 1e-6),
    "batch 1": ({"batch": 1}, 0.5, 0.5, None),
    "narrow": ({"model": "narrow"}, 0.9, 1 / 0.9, None),
    "10 control segments": ({"segments": 10}, 0.5, 2.0, None),
    "two threads": ({"backend": "cpu-n1r1t2"}, 1.5, 1 / 1.5, 0.0),
    "single": ({"protocol": "single"}, 0.7, 1 / 0.7, 1e-5),
    "others": ({"workload": "others"}, 1.0, 1.0, None),
}


@pytest.mark.parametrize("learning_rate", [0.001, 0.02])
def test_each_change_is_named_and_compared_with_the_first_point(tmp_path: Path, learning_rate: float) -> None:
    """Only the first losses, of the same weights, are compared if losses are chaotic."""
    settings = settings_of("changes", [change for change, *_ in CHANGES.values()], **CONTROL)
    for name in ("double", "single"):
        settings["protocols"][name]["learning_rate"] = learning_rate
    config = analysis.of(settings)
    named = dict(zip(dict.fromkeys(map(points.point_of, config.studies[0].runs)), CHANGES, strict=True))

    def measured(run: Run) -> dict[str, Any]:
        _, step, _, off = CHANGES[named[points.point_of(run)]]
        losses = [
            loss * (1 + (off or 0.0) * (run.seed + 1) / 3 * (number + 1) / 20)
            for number, loss in enumerate(LOSSES)
        ]
        return {"step_s": step * (1 + 0.5 * run.seed), "losses": losses}

    table = analysed(settings, tmp_path, measured)["speed"].set_index("point")
    share = 1 if learning_rate < 0.01 else 1 / 20
    for name, (_, _, *expected) in CHANGES.items():
        effect, off = (math.nan if each is None else each for each in expected)
        assert table["effect"][name] == pytest.approx(effect, rel=1e-12, nan_ok=True)
        assert table["losses"][name] == pytest.approx(share * off, rel=1e-6, abs=1e-15, nan_ok=True)


@pytest.mark.parametrize(("off", "verdict"), [(0.0, SAME), (1e-4, verdicts.DIFFERS)])
def test_parity_says_by_how_much_losses_differ(tmp_path: Path, off: float, verdict: str) -> None:
    settings = settings_of("parity", backend=["cpu-n1r1t1", TWO], protocol="parity", seed=0)
    losses = {ranks: [loss * (1 + off * (ranks > 1)) for loss in LOSSES] for ranks in (1, 2)}
    tables = analysed(settings, tmp_path, lambda run: {"losses": losses[run.ranks]})
    (result,) = tables["speed"].to_dict("records")
    assert (result["verdict"], result["layout"]) == (verdict, TWO)
    assert result["effect"] == pytest.approx(off, rel=1e-9)
    assert tables["answers"]["verdict"].tolist() == [verdict]


def test_the_method_of_a_simulator_is_what_it_is_without_its_step() -> None:
    assert speed.method(DynamicsSimulator(**INTEGRATORS["literal"])) == "rk4, loop"
    assert speed.method(DynamicsSimulator(**INTEGRATORS["torch"])) == "exact, torch"
