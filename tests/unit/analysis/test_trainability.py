"""The kind `trainability`: decays of known size are found with their intervals, and what hinders them is said."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ketscale import analysis
from ketscale.analysis import verdicts
from ketscale.analysis.kinds import trainability as kind
from tests import records_factory as factory

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
        "models": {
            "strong": {"kind": "vqc", "ansatz": "strongly-entangling"},
            "late": {"kind": "vqc", "ansatz": "product"},
        },
        "simulators": {"fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast"}},
        "protocols": {
            name: {**probe, "probe": {"draws": 200, "weights": name}} for name in ("uniform", "initial")
        },
        "studies": {"asked": {"kind": "trainability", "question": "?", "axes": {**usual, **axes}}},
    }


def found(results: Path, square: Callable[..., float], **axes: Any) -> tuple[dict[str, Any], pd.DataFrame]:
    """The answer and the rows of fits.csv where a run has the squared gradient `square(qubits, run)`."""
    config = analysis.of(study(**axes))

    def change(run: Any) -> Mapping[str, Any]:
        settings = config.settings(run)
        value = square(settings.sizes["qubits"], run)
        return {"trainability": {**factory.trainability(settings), "square": value, "variance": value}}

    factory.write_all(config, results, change)
    return read(config, results)


def read(config: Any, results: Path) -> tuple[dict[str, Any], pd.DataFrame]:
    tables = factory.collect(config, results).tables
    (answer,) = tables["answers"].to_dict("records")
    return answer, tables["fits"].set_index("law")


def noise(run: Any, share: float = 0.02) -> float:
    """A factor that each run has of its own."""
    number = sum(ord(letter) * (place + 1) for place, letter in enumerate(run.path))
    return float(np.exp(np.random.default_rng(number).normal(0, share)))


def test_a_decay_with_each_qubit_is_found_with_its_interval(tmp_path: Path) -> None:
    answer, fits = found(tmp_path, lambda qubits, run: 0.2 * 0.5**qubits * noise(run))
    row, told = fits.loc["decay"], ["parameter", "series", "verdict", "n"]
    assert row["low"] < 0.5 < row["high"] and row["high"] - row["low"] < 0.03
    assert row[told].tolist() == ["with each qubit", "2 qubits to 8 qubits", verdicts.FALLS, 5]
    assert answer["verdict"] == verdicts.FALLS and answer["effect"] == row["effect"]
    probes = fits.loc["probe"]
    assert len(probes) == 4 and (probes["n"] == 5).all() and probes["verdict"].isna().all()
    assert probes["effect"].tolist() == pytest.approx(
        [0.2 * 0.5**qubits for qubits in (2, 4, 6, 8)], rel=0.05
    )
    assert ((probes["low"] < probes["effect"]) & (probes["effect"] < probes["high"])).all()


def test_a_gradient_that_stays_does_not_fall_and_the_line_that_falls_fastest_leads(tmp_path: Path) -> None:
    factors = {"vqc": 1.0, "strong": 0.7, "late": 1.3}
    answer, fits = found(
        tmp_path, lambda qubits, run: factors[run.model] ** qubits * noise(run), model=[*factors]
    )
    words = dict(zip(fits.loc["decay", "model"], fits.loc["decay", "verdict"], strict=True))
    assert words == {"strong": verdicts.FALLS, "vqc": verdicts.SAME, "late": verdicts.RISES}
    assert answer["effect"] == pytest.approx(0.7, rel=0.02) and answer["point"].startswith("strong")
    assert "Of 3 comparisons: 1 same, 1 falls, 1 rises." in answer["answer"]


def test_a_bend_widens_the_interval_and_is_noted(tmp_path: Path) -> None:
    """What all seeds have in common says nothing of how far the points are from a line."""
    _, fits = found(tmp_path / "straight", lambda qubits, run: 0.5**qubits * noise(run, 0.001))
    _, bent = found(tmp_path / "bent", lambda qubits, run: math.exp(-0.12 * qubits**2) * noise(run, 0.001))
    widths = [row["high"] - row["low"] for row in (fits.loc["decay"], bent.loc["decay"])]
    assert widths[1] > 20 * widths[0] and pd.isna(fits.loc["decay", "why"])
    assert "one factor does not describe the whole range" in bent.loc["decay", "why"]


@pytest.mark.parametrize("seeds", [SEEDS, [0]], ids=["all seeds of a size", "a seed"])
def test_probes_of_other_code_are_not_joined(seeds: list[int], tmp_path: Path) -> None:
    config = analysis.of(study())

    def change(run: Any) -> Mapping[str, Any]:
        other = {"code": {**factory.record(config, run)["code"], "imported": "nameelse"}}
        return other if run.size.startswith("q8") and run.seed in seeds else {}

    factory.write_all(config, tmp_path, change)
    answer, fits = read(config, tmp_path)
    row = fits.loc["decay"]
    assert row["verdict"] == answer["verdict"] == verdicts.NOT_COMPARABLE and pd.isna(row["effect"])
    assert row["why"] == "other code"
    # A size of which all seeds are alike has its means.
    assert fits.loc["probe"]["effect"].count() == (4 if seeds == SEEDS else 3)


@pytest.mark.parametrize(("square", "seeds", "verdict", "why"), [
    (0.0, SEEDS, verdicts.NOT_COMPARABLE, "of some size no observable depends on any angle"),
    (1.0, [0, 1], verdicts.CANNOT_TELL, verdicts.FEW),
])  # fmt: skip
def test_what_hinders_a_decay_is_told(
    square: float, seeds: list[int], verdict: str, why: str, tmp_path: Path
) -> None:
    answer, fits = found(tmp_path, lambda qubits, run: square, seed=seeds)
    assert answer["verdict"] == verdict
    assert fits.loc["decay", ["verdict", "why"]].tolist() == [verdict, why]


def test_intervals_hold_as_often_as_they_say() -> None:
    """400 studies of three seeds with the same decay and noise between points: at most about 5 % miss it."""
    random, missed = np.random.default_rng(2), 0
    for _ in range(400):
        line, own = math.log(0.5) * np.arange(2, 13, 2), random.normal(0, 0.1, (3, 6))
        logs = line + own + random.normal(0, 0.5, (3, 1))
        squares = [dict(enumerate(column)) for column in np.exp(logs).T]
        points = pd.DataFrame({"qubits": range(2, 13, 2), "squares": squares, "keys": [[]] * 6})
        factor = kind.decay("qubits", points)[0].ratio
        assert factor is not None and factor.low is not None and factor.high is not None
        missed += not factor.low < 0.5 < factor.high
    assert missed / 400 < 0.08


def test_a_point_has_the_mean_over_seeds(tmp_path: Path) -> None:
    _, fits = found(tmp_path, lambda qubits, run: 16.0 if run.seed == 0 else 1.0, seed=[*range(15)])
    means = fits[fits["parameter"] == "gradient_square"]
    assert means["effect"].tolist() == pytest.approx([2.0] * 4)
