"""One change at a time: what differs, by how much the time changes, and whether the numbers do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ketscale import analysis
from ketscale.errors import UserError
from ketscale.grid import Run
from tests import records_factory as factory

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


def drawn(results: Path, learning_rate: float = 0.001) -> pd.DataFrame:
    """The drawn data by change; the losses drift further apart with each step."""
    made = given([change for change, *_ in CHANGES.values()])
    for name in ("double", "single"):
        made["protocols"][name]["learning_rate"] = learning_rate
    config = analysis.of(made)
    points = {}
    for change, (_, step, _, off) in zip(made["studies"]["causes"]["points"], CHANGES.values(), strict=True):
        axes = {**AXES, **change}
        key = (
            axes["workload"],
            axes["model"],
            axes["segments"],
            axes["batch"],
            axes["simulator"],
            axes["backend"],
            axes["protocol"],
        )
        points[key] = step, off or 0.0

    def measured(run: Run) -> dict[str, Any]:
        segments = int(run.size.split("-s")[1])
        step, off = points[
            run.workload, run.model, segments, run.batch, run.simulator, run.layout, run.protocol
        ]
        losses = [loss * (1 + off * (number + 1) / 20) for number, loss in enumerate(LOSSES)]
        return {"step_s": step * (1 + 0.5 * run.seed), "losses": losses}

    factory.write_all(config, results, measured)
    factory.draw(config, results)
    data = pd.read_csv(results / "figures/changes.csv", keep_default_na=False, na_values=[""])
    return data.set_index(data["varied"] + ": " + data["value"])


def test_each_change_is_named_and_compared_with_the_baseline_seed_by_seed(tmp_path: Path) -> None:
    data = drawn(tmp_path)
    assert data.index.tolist() == list(CHANGES)
    for name, (_, step, sample, off) in CHANGES.items():
        row = data.loc[name]
        assert row["per_step"] == pytest.approx(step)
        # Two seeds have no interval.
        assert row[["per_step_low", "per_step_high"]].isna().all()
        assert row["per_sample"] == pytest.approx(sample)
        assert (
            row["difference"] == pytest.approx(off, nan_ok=off is None)
            if off is not None
            else pd.isna(row["difference"])
        )
    said = pd.read_csv(tmp_path / "tables/answers.csv").iloc[0]
    assert said["answer"].startswith(
        "Of 9 changes to policy on tasks (1 qubit, 20 control segments, batch 4, literal)"
    )
    assert "most of all, simulator literal -> exact is 1,000 times as fast a sample" in said["answer"]
    assert "least of all, batch 4 -> 1 is 0.5 times as fast a sample" in said["answer"]
    assert said["verdict"] == "undecided: fewer than 3 seeds" and said["effect"] == pytest.approx(1000)
    words = (tmp_path / "figures/changes.svg").read_text()
    for said in (
        "batch: 4 → 1",
        "other work",
        "same numbers, bitwise",
        "losses differ by 1.0e-04",
        "1,000x faster",
    ):
        assert f"<!-- {said} -->" in words


def test_where_losses_are_chaotic_only_those_of_the_same_weights_are_compared(tmp_path: Path) -> None:
    assert drawn(tmp_path, learning_rate=0.02)["difference"]["dt: 0.01 -> 0.025"] == pytest.approx(1e-4 / 20)


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([{}], "has no other; give it more"),
        (
            [{}, {"batch": 1, "simulator": "exact"}],
            r"one of them in batch 4 -> 1, simulator literal -> exact; make them",
        ),
        ([{"simulator": ["literal", "exact"], "batch": [4, 1]}], "batch 4 -> 1, simulator literal -> exact"),
        ([{}, {"batch": 1, "seed": 7}], "seed7 has no seed in common with the first point"),
    ],
)
def test_two_changes_at_once_are_refused(points: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(UserError, match=r"^studies\.causes: .*" + said):
        analysis.of(given(points))
