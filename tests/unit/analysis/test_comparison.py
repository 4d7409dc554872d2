"""Studies of kind comparison: one verdict for each data set and one for all, of records whose truth is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ketscale import analysis
from ketscale.analysis import metrics, verdicts
from ketscale.analysis.kinds.kind import Answer, Told
from ketscale.analysis.kinds.selection import side
from ketscale.config import Config, Metric
from ketscale.errors import UserError
from ketscale.grid import Run
from tests import records_factory as factory
from tests.sentences import faults
from tests.unit.analysis.test_quality import NONE, Truth, asked, baseline, given, right

MODELS, CONTROLS = ("hybrid", "vqc"), ("mlp", "narrow")
ACCURACY = Metric("accuracy", "accuracy", "share correct", "up")


def study(data: int, seeds: int = 1, splits: int = 3, models: tuple[str, ...] = MODELS) -> dict[str, Any]:
    """Models and controls on data sets `set0`, `set1`, ..., each with several splits."""
    made = given(seeds=seeds, controls=CONTROLS)
    block = {key: value for key, value in made["workloads"]["digits"].items() if key != "split_seed"}
    names = [f"set{number}" for number in range(data)]
    made["workloads"] = {name: {"kind": "digits", **block, "split_seeds": [*range(splits)]} for name in names}
    made["models"] |= {name: {"kind": "vqc"} for name in models if name != "vqc"}
    block = made["studies"]["asked"]
    block |= {"kind": "comparison", "points": [{"model": [*models]}, *block["points"][1:]]}
    block["axes"]["workload"] = names
    return made


def truth(
    samples: int = 200, noise: float = 0.0, gains: Callable[[int], float] = lambda data: 0.0, **of: float
) -> Truth:
    """Accuracies by model, and how much more the two models get on each data set; noise: of each split."""

    def found(run: Run) -> tuple[float, np.ndarray[Any, Any]]:
        data, split = run.workload.split(".")
        draw = np.random.default_rng([*map(ord, run.model + run.workload)])
        share = of[run.model] + noise * draw.normal() - 0.02 * int(data[3:])
        share += gains(int(data[3:])) if run.model in MODELS else 0.0
        return share, right(share, samples, run.seed + 10 * int(split[1:]), kept=0.98)

    return found


def said(made: dict[str, Any] | Config, folder: Path, of: Truth, **more: Any) -> tuple[Answer, pd.DataFrame]:
    found, rows = asked(made if isinstance(made, Config) else analysis.of(made), folder, of, **more)
    assert not faults(found)
    return found, rows


def of_data(found: Answer) -> dict[str, str]:
    """The verdict of each data set."""
    words: dict[str, str] = {}
    for row in found.rows:
        if row.verdict:
            name = row.point.split(":")[0]
            assert name not in words, "one verdict for each data set"
            words[name] = row.verdict
    return words


def test_a_gain_on_every_data_set_is_better_for_each_and_for_all(tmp_path: Path) -> None:
    found, rows = said(study(6), tmp_path, truth(hybrid=0.8, vqc=0.9, mlp=0.7, narrow=0.6))
    assert found.verdict == verdicts.BETTER
    assert of_data(found) == dict.fromkeys((f"set{number}" for number in range(6)), verdicts.BETTER)
    assert found.effect and found.effect.n == 6 and found.effect.value == pytest.approx(20, abs=1)
    lead = [row for row in found.rows if row.verdict]
    assert {(row.point.split(",")[0][-3:], row.beside) for row in lead} == {("vqc", "mlp")}
    chosen = rows[rows["verdict"].notna()]
    assert (chosen["effect_low"] < chosen["effect"]).all() and (
        chosen["effect"] < chosen["effect_high"]
    ).all()


def test_the_intervals_that_are_shown_are_those_that_decide_and_hold_together(tmp_path: Path) -> None:
    """Each of D data sets has the interval of 1 - 5 %/D, also if some have no result yet."""
    config, of = analysis.of(study(4)), truth(noise=0.03, hybrid=0.8, vqc=0.8, mlp=0.78, narrow=0.6)
    found, rows = said(config, tmp_path, lambda run: None if run.workload.startswith("set3") else of(run))
    tests: dict[str, dict[metrics.Seed, metrics.Scored]] = {"vqc": {}, "mlp": {}}
    for split in range(3):
        for model, scored in tests.items():
            _, cases = of(
                Run.of({**vars(config.runs[0]), "workload": f"set0.s{split}", "model": model, "seed": 0})
            )  # type: ignore[misc]
            row = cases.astype(float)
            scored[f"set0.s{split}", 0] = metrics.Scored(float(row.mean()), row, None, 270 / 1257)
    expected = metrics.difference(tests["vqc"], tests["mlp"], ACCURACY, 1 - 0.05 / 4)
    shown = rows[rows["workload"] == "set0"].loc["vqc"]
    assert expected and [shown["effect_low"], shown["effect_high"]] == pytest.approx(
        [100 * expected.low, 100 * expected.high]
    )  # type: ignore[operator]
    lead = next(row for row in found.rows if row.verdict)
    assert lead.effect and lead.effect.low == pytest.approx(100 * expected.low)  # type: ignore[operator]
    scaled = lead.effect.times(0.01)
    assert (side(scaled, "points", ACCURACY) or verdicts.CANNOT_TELL) == lead.verdict


def test_validation_chooses_the_side_and_the_test_does_not(tmp_path: Path) -> None:
    """By validation hybrid and narrow are the best, on test vqc and mlp."""
    of = truth(hybrid=0.7, vqc=0.9, mlp=0.8, narrow=0.6)
    validation = {"hybrid": 0.9, "vqc": 0.8, "narrow": 0.9, "mlp": 0.8}

    def other(run: Run) -> tuple[float, np.ndarray[Any, Any]]:
        made = of(run)
        assert made
        return validation[run.model], made[1]

    found, _ = said(study(6), tmp_path, other)
    assert found.effect and found.effect.value == pytest.approx(10, abs=1)
    assert {row.beside for row in found.rows if row.verdict} == {"narrow"}


def test_gains_and_losses_tell_nothing_for_all(tmp_path: Path) -> None:
    mixed = truth(gains=lambda data: 0.1 if data % 2 else -0.1, hybrid=0.6, vqc=0.7, mlp=0.7, narrow=0.5)
    found, _ = said(study(6), tmp_path, mixed)
    assert found.verdict == verdicts.CANNOT_TELL
    assert sorted(of_data(found).values()) == [verdicts.BETTER] * 3 + [verdicts.WORSE] * 3


def test_of_few_data_sets_ranks_do_not_decide(tmp_path: Path) -> None:
    data, better = 5, truth(hybrid=0.6, vqc=0.9, mlp=0.7, narrow=0.5)
    found, _ = said(study(data), tmp_path / "alike", better)
    assert found.verdict == verdicts.BETTER, "every data set says so by itself"
    mixed = truth(gains=lambda one: 0.0 if one else -0.3, hybrid=0.6, vqc=0.9, mlp=0.7, narrow=0.5)
    found, _ = said(study(data), tmp_path / "mixed", mixed)
    assert found.verdict == verdicts.CANNOT_TELL


def failing(of: Truth, model: str, *data: str) -> Truth:
    """The same, but all seeds of some models failed on some data sets."""
    return lambda run: None if run.model in model.split() and run.workload.split(".")[0] in data else of(run)


def test_a_side_that_failed_on_a_data_set_has_not_won_the_others(tmp_path: Path) -> None:
    """Twelve data sets with one run each, which decides nothing by itself."""
    of = truth(hybrid=0.6, vqc=0.9, mlp=0.7, narrow=0.5)
    config = analysis.of(study(12, splits=1))
    found, _ = said(config, tmp_path / "one", failing(of, "vqc hybrid", "set0"))
    assert found.verdict == verdicts.BETTER and found.effect and found.effect.n == 11
    words = of_data(found)
    assert words.pop("set0") == verdicts.FAILED and set(words.values()) == {verdicts.FEW}
    three = ("set0", "set1", "set2")
    found, _ = said(config, tmp_path / "three", failing(of, "vqc hybrid", *three))
    assert found.verdict == verdicts.FAILED
    # That controls failed there is no reason to doubt.
    found, _ = said(config, tmp_path / "controls", failing(of, "mlp narrow", *three))
    assert found.verdict == verdicts.BETTER and of_data(found)["set1"] == verdicts.FAILED


def test_one_side_alone_is_compared_with_nothing(tmp_path: Path) -> None:
    """Neither guessing nor a baseline stands in for controls that failed or were not trained yet."""
    of, names = truth(hybrid=0.6, vqc=0.9, mlp=0.7, narrow=0.5), [f"set{number}" for number in range(2)]
    for models in ("mlp narrow", "vqc hybrid"):
        beside = [baseline("logistic regression", 0.75, samples=200)]
        found, _ = said(study(2), tmp_path / models, failing(of, models, *names), beside=beside)
        assert (found.verdict, found.effect) == (verdicts.OPEN, None)
        assert all(row.effect is None for row in found.rows) and len(found.rows) == 10


def test_what_failed_ranks_last(tmp_path: Path) -> None:
    of = truth(hybrid=0.6, vqc=0.9, mlp=0.7, narrow=0.5)
    found, _ = said(study(5), tmp_path, failing(of, "hybrid", *(f"set{number}" for number in range(5))))
    ranked = [row.point.split(": ")[1] for row in found.rows if row.unit == "mean rank"]
    assert ranked == ["vqc", "mlp", "narrow", "hybrid"]
    row = next(row for row in found.rows if row.point.startswith("set0: hybrid"))
    assert row == Told(row.point, more={"failed": "3 of 3 seeds"})


def test_errors_are_joined_by_their_ratios(tmp_path: Path) -> None:
    """Six regressions, on which the error of the circuit is 20 % smaller than that of its control, more or less."""
    made = study(1, seeds=3)
    names = [f"set{number}" for number in range(6)]
    made["workloads"] = {
        name: {"kind": "sample-table", "table": "diabetes", "split_seed": number}
        for number, name in enumerate(names)
    }
    block = made["studies"]["asked"]
    block["axes"]["workload"], block["points"] = names, [{}, {"model": "mlp", **NONE}]
    config = analysis.of(made)

    def change(run: Run) -> dict[str, Any]:
        factor = 0.8 if run.model == "vqc" else 1.0
        figures = {
            "loss": 1.0,
            "count": 89,
            "rmse": 50 * factor * (1 + 0.02 * run.seed + 0.01 * int(run.workload[3]) * factor),
        }
        quality = {"epochs": 3, "best_epoch": 1, "chosen": {}, "right": None}
        return {"quality": {**quality, "validation": figures, "test": figures}}

    factory.write_all(config, tmp_path, change)
    (found,) = (part.answer for part in factory.collect(config, tmp_path).parts)
    assert not faults(found) and found.verdict == verdicts.BETTER and found.unit == "times"
    assert found.effect and found.effect.value == pytest.approx(0.796, abs=0.002)
    # Two models have no ranks.
    assert not [row for row in found.rows if row.unit == "mean rank"]


def test_data_sets_of_several_metrics_are_refused() -> None:
    made = study(1)
    made["workloads"]["numbers"] = {"kind": "sample-table", "table": "diabetes", "split_seed": 0}
    block = made["studies"]["asked"]
    block["axes"]["workload"], block["points"] = ["set0", "numbers"], [{"model": "mlp", **NONE}]
    with pytest.raises(
        UserError, match=r"comparison joins data sets of one metric, not accuracy, rmse; make a study of each"
    ):
        analysis.of(made)
