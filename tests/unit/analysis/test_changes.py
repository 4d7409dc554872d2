"""One change at a time: what differs, by how much the time changes, and whether the numbers do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ketscale import analysis
from ketscale.analysis.kinds.kind import Answer
from ketscale.errors import UserError
from ketscale.grid import Run
from tests import records_factory as factory
from tests.sentences import faults

LOSSES = [2.3 * 0.9**step for step in range(20)]
SIMULATORS: dict[str, Any] = {
    "literal": {"device": "rk4", "batching": "loop", "dt": 0.01, "tolerance": 1e-3},
    "coarse": {"device": "rk4", "batching": "loop", "dt": 0.025, "tolerance": 2e-3},
    "batched": {"device": "rk4", "dt": 0.01, "tolerance": 1e-3},
    "exact": {"device": "exact"},
}
# Each change in words; its step time over the baseline's, the same per sample, and how far its losses are off.
CHANGES: dict[str, tuple[dict[str, Any], float, float, float | None]] = {
    "baseline: literal": ({}, 1.0, 1.0, 0.0),
    "dt: 0.01 -> 0.025": ({"simulator": "coarse"}, 0.4, 0.4, 1e-4),
    "batching: loop -> broadcast": ({"simulator": "batched"}, 0.01, 0.01, 0.0),
    "simulator: literal -> exact": ({"simulator": "exact"}, 0.001, 0.001, 1e-6),
    "batch: 4 -> 1": ({"batch": 1}, 0.5, 2.0, None),
    "width: 128 -> 8": ({"model": "narrow"}, 0.9, 0.9, None),
    "segments: 20 -> 10": ({"segments": 10}, 0.5, 0.5, None),
    "layout: cpu-n1r1t1 -> cpu-n1r1t2": ({"backend": "cpu-n1r1t2"}, 1.5, 1.5, 0.0),
    "precision: fp64 -> fp32": ({"protocol": "single"}, 0.7, 0.7, 1e-5),
    "workload: tasks -> others": ({"workload": "others"}, 1.0, 1.0, None),
}
AXES = {
    "workload": "tasks", "model": "policy", "qubits": 1, "segments": 20, "batch": 4, "simulator": "literal",
    "backend": "cpu-n1r1t1", "protocol": "double", "seed": [0, 1],
}  # fmt: skip


def given(points: list[dict[str, Any]], **axes: Any) -> dict[str, Any]:
    block = {"kind": "changes", "question": "?", "axes": {**AXES, **axes}, "points": points}
    made = factory.small_study({"causes": block})
    made["workloads"] |= {"tasks": {"kind": "qubit-spectrum"}, "others": {"kind": "qubit-relaxation"}}
    made["models"] = {"narrow": {"kind": "policy", "width": 8}}
    made["simulators"] |= SIMULATORS
    double = {"precision": "fp64", "timed": True, "steps": 20, "learning_rate": 0.001}
    made["protocols"] |= {"double": double, "single": {**double, "precision": "fp32"}}
    return made


def drawn(results: Path, learning_rate: float = 0.001) -> tuple[pd.DataFrame, Answer]:
    """The rows of the study by change, and its answer; the losses drift further apart with each step."""
    made = given([change for change, *_ in CHANGES.values()])
    for name in ("double", "single"):
        made["protocols"][name]["learning_rate"] = learning_rate
    config = analysis.of(made)
    points = {}
    for change, (_, step, _, off) in zip(made["studies"]["causes"]["points"], CHANGES.values(), strict=True):
        axes = {**AXES, **change}
        names = ("workload", "model", "segments", "batch", "simulator", "backend", "protocol")
        points[tuple(axes[name] for name in names)] = step, off or 0.0

    def measured(run: Run) -> dict[str, Any]:
        segments = int(run.size.split("-s")[1])
        step, off = points[
            run.workload, run.model, segments, run.batch, run.simulator, run.layout, run.protocol
        ]
        losses = [loss * (1 + off * (number + 1) / 20) for number, loss in enumerate(LOSSES)]
        return {"step_s": step * (1 + 0.5 * run.seed), "losses": losses}

    factory.write_all(config, results, measured)
    analysed = factory.draw(config, results)
    data = analysed.tables["scaling"]
    return data.set_index(data["varied"] + ": " + data["value"]), analysed.parts[0].answer


def test_each_change_is_named_and_compared_with_the_baseline_seed_by_seed(tmp_path: Path) -> None:
    data, answer = drawn(tmp_path)
    assert data.index.tolist() == list(CHANGES)
    rows = {row.point: row for row in answer.rows}
    for name, (_, _, sample, off) in CHANGES.items():
        assert data.loc[name]["speedup_same"] == pytest.approx(1 / sample)
        assert (off is None and pd.isna(data.loc[name]["difference"])) or data.loc[name][
            "difference"
        ] == pytest.approx(off)
        if name.startswith("baseline"):
            continue
        row = rows[name.replace(":", "", 1).replace("->", "→")]
        assert row.effect and row.effect.value == pytest.approx(1 / sample)
        # Two seeds have no interval.
        assert row.effect.low is None and row.beside == "the baseline" and row.unit == "times as fast"
    assert rows["batch 4 → 1"].more["losses"] == "other work"
    assert rows["batching loop → broadcast"].more["losses"] == "same numbers, bitwise"
    assert rows["dt 0.01 → 0.025"].more["losses"] == "losses differ by 1.0e-04"
    assert not faults(answer)


def test_where_losses_are_chaotic_only_those_of_the_same_weights_are_compared(tmp_path: Path) -> None:
    data, _ = drawn(tmp_path, learning_rate=0.02)
    assert data["difference"]["dt: 0.01 -> 0.025"] == pytest.approx(1e-4 / 20)


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([{}], "has no other; give it more"),
        ([{}, {"batch": 1, "simulator": "exact"}], "one of them in batch 4 -> 1, simulator literal -> exact"),
        ([{}, {"batch": 1, "seed": 7}], "seed7 has no seed in common with the first point"),
    ],
)
def test_two_changes_at_once_are_refused(points: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(UserError, match=r"^studies\.causes: .*" + said):
        analysis.of(given(points))
