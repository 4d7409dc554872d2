"""The kind `trainability`: decays of known size are found with their intervals, and said in a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ketscale import analysis
from ketscale.analysis import verdicts
from ketscale.analysis.kinds import trainability as kind
from ketscale.analysis.kinds.kind import Answer
from tests import records_factory as factory
from tests.sentences import answers_of, faults

SEEDS = [0, 1, 2, 3, 4]


def study(**axes: Any) -> dict[str, Any]:
    """A study of probes."""
    usual = {
        "workload": "iris", "model": "vqc", "qubits": [2, 4, 6, 8], "layers": 3, "batch": 1, "simulator": "fused",
        "backend": "cpu-n1r1t1", "protocol": "uniform", "seed": SEEDS,
    }  # fmt: skip
    probe = {"precision": "fp64", "timed": False}
    return {
        "title": "Probes",
        "workloads": {"iris": {"kind": "sample-table", "table": "iris", "split_seed": 0}},
        "models": {"strong": {"kind": "vqc", "ansatz": "strongly-entangling"}},
        "simulators": {"fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast"}},
        "protocols": {
            name: {**probe, "probe": {"draws": 200, "weights": name}} for name in ("uniform", "initial")
        },
        "studies": {"asked": {"kind": "trainability", "question": "?", "axes": {**usual, **axes}}},
    }


def answered(results: Path, square: Any, **axes: Any) -> Answer:
    """The answer where a run has the squared gradient `square(qubits, layers, run)`."""
    config = analysis.of(study(**axes))

    def change(run: Any) -> Mapping[str, Any]:
        settings = config.settings(run)
        value = square(settings.sizes["qubits"], settings.sizes["layers"], run)
        return {"trainability": {**factory.trainability(settings), "square": value, "variance": value}}

    factory.write_all(config, results, change)
    answer = answers_of(config, results)["asked"]
    assert not faults(answer)
    return answer


def noise(run: Any, share: float = 0.02) -> float:
    """A factor that each run has of its own."""
    number = sum(ord(letter) * (place + 1) for place, letter in enumerate(run.path))
    return float(np.exp(np.random.default_rng(number).normal(0, share)))


def test_a_decay_with_each_qubit_is_found_with_its_interval(tmp_path: Path) -> None:
    answer = answered(tmp_path, lambda qubits, layers, run: 0.2 * 0.5**qubits * noise(run))
    effect = answer.effect
    assert effect is not None and effect.low is not None and effect.high is not None
    assert effect.low < 0.5 < effect.high and effect.high - effect.low < 0.03
    assert answer.verdict == verdicts.FALLS
    (row,) = answer.rows
    assert row.point == "vqc, with each qubit" and row.verdict == verdicts.FALLS
    assert (row.more["from"], row.more["to"]) == ("2 qubits", "8 qubits")


def test_a_gradient_that_stays_does_not_fall_and_the_line_that_falls_leads(tmp_path: Path) -> None:
    factors = {"vqc": 1.0, "strong": 0.7}
    answer = answered(
        tmp_path,
        lambda qubits, layers, run: factors[run.model] ** qubits * noise(run),
        model=["vqc", "strong"],
    )
    assert {row.point.split(",")[0]: row.verdict for row in answer.rows} == {
        "strong": verdicts.FALLS,
        "vqc": verdicts.FALLS_NOT,
    }


def test_a_bend_widens_the_interval_and_is_noted(tmp_path: Path) -> None:
    """What all seeds have in common says nothing of how far the points are from a line."""
    straight = answered(tmp_path / "straight", lambda qubits, layers, run: 0.5**qubits * noise(run, 0.001))
    bent = answered(
        tmp_path / "bent", lambda qubits, layers, run: math.exp(-0.12 * qubits**2) * noise(run, 0.001)
    )
    assert straight.effect is not None and bent.effect is not None
    assert bent.effect.high - bent.effect.low > 20 * (straight.effect.high - straight.effect.low)
    assert any("one factor does not describe the whole range" in note for note in bent.notes)
    assert not any("one factor" in note for note in straight.notes)


@pytest.mark.parametrize("seeds", [SEEDS, [0]], ids=["all seeds of a size", "a seed"])
def test_probes_of_other_code_are_not_joined(seeds: list[int], tmp_path: Path) -> None:
    config = analysis.of(study())

    def change(run: Any) -> Mapping[str, Any]:
        code = factory.record(config, run)["code"]
        return (
            {"code": {**code, "imported": "nameelse"}}
            if run.size.startswith("q8") and run.seed in seeds
            else {}
        )

    factory.write_all(config, tmp_path, change)
    answer = answers_of(config, tmp_path)["asked"]
    assert not faults(answer)
    assert (answer.verdict, answer.effect) == (verdicts.APART, None)
    assert "other code" in answer.text and [row.verdict for row in answer.rows] == [verdicts.APART]
    assert ("entanglement" in answer.rows[0].more) == (seeds == SEEDS)


def test_a_circuit_without_any_gradient_is_told_and_not_passed_over(tmp_path: Path) -> None:
    answer = answered(tmp_path, lambda qubits, layers, run: 0.0)
    assert (answer.verdict, answer.effect) == (verdicts.APART, None)
    assert [row.verdict for row in answer.rows] == [verdicts.APART]


def test_intervals_hold_as_often_as_they_say() -> None:
    """400 studies of three seeds with the same decay and noise between points: at most about 5 % miss it."""
    import pandas as pd

    random, missed = np.random.default_rng(2), 0
    for _ in range(400):
        logs = (
            math.log(0.5) * np.arange(2, 13, 2)
            + random.normal(0, 0.1, (3, 6))
            + random.normal(0, 0.5, (3, 1))
        )
        squares = [dict(enumerate(column)) for column in np.exp(logs).T]
        points = pd.DataFrame({"qubits": range(2, 13, 2), "squares": squares, "keys": [set()] * 6})
        found = kind._decay("", "qubits", points)
        assert found is not None and found.factor.low is not None and found.factor.high is not None
        missed += not found.factor.low < 0.5 < found.factor.high
    assert missed / 400 < 0.08


def test_the_figure_has_means_over_seeds(tmp_path: Path) -> None:
    seeds = [*range(15)]
    answered(tmp_path, lambda qubits, layers, run: 16.0 if run.seed == 0 else 1.0, seed=seeds)
    drawn = kind._points(factory.collect(analysis.of(study(seed=seeds)), tmp_path).inputs, "asked")
    assert drawn["gradient_square"].tolist() == pytest.approx([2.0] * 4)
