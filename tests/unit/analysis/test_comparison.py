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
from ketscale.analysis.kinds.selection import side
from ketscale.config import Metric
from ketscale.errors import UserError
from ketscale.grid import Run
from tests import records_factory as factory
from tests.unit.analysis.test_quality import NONE, Truth, answer_of, right, settings_of

MODELS, CONTROLS = ("hybrid", "vqc"), ("mlp", "narrow")
ACCURACY = Metric("accuracy", "accuracy", "share correct", "up")


def study(data: int, seeds: int = 1, splits: int = 3, models: tuple[str, ...] = MODELS) -> dict[str, Any]:
    """Models and controls on data sets `set0`, `set1`, ..., each with several splits."""
    made = settings_of(seeds=seeds, controls=CONTROLS)
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


BETTER = truth(hybrid=0.6, vqc=0.9, mlp=0.7, narrow=0.5)


def of_data(rows: pd.DataFrame) -> dict[str, str]:
    """The verdict of each data set."""
    decided = rows[rows["verdict"].notna() & rows["row"].isna()]
    assert not decided["workload"].duplicated().any(), "one verdict for each data set"
    return dict(zip(decided["workload"], decided["verdict"], strict=True))


def test_a_gain_on_every_data_set_is_better_for_each_and_for_all(tmp_path: Path) -> None:
    answer, rows = answer_of(study(6), tmp_path, truth(hybrid=0.8, vqc=0.9, mlp=0.7, narrow=0.6))
    assert (answer["verdict"], answer["n"], answer["unit"]) == (verdicts.BETTER, 6, "points")
    assert answer["effect"] == pytest.approx(20, abs=1) and 0 < answer["low"] <= answer["high"]
    assert of_data(rows) == dict.fromkeys((f"set{number}" for number in range(6)), verdicts.BETTER)
    decided = rows[rows["verdict"].notna() & rows["row"].isna()]
    assert {*zip(decided.index, decided["control"], strict=True)} == {("vqc", "mlp")}
    assert ((decided["low"] < decided["effect"]) & (decided["effect"] < decided["high"])).all()


def test_the_intervals_that_are_shown_are_those_that_decide_and_hold_together(tmp_path: Path) -> None:
    """Each of D data sets has the interval of 1 - 5 %/D, also if some have no result yet."""
    config, of = analysis.of(study(4)), truth(noise=0.03, hybrid=0.8, vqc=0.8, mlp=0.78, narrow=0.6)
    _, rows = answer_of(config, tmp_path, lambda run: None if run.workload.startswith("set3") else of(run))
    tests: dict[str, dict[metrics.Seed, metrics.Scored]] = {"vqc": {}, "mlp": {}}
    for split in range(3):
        for model, scored in tests.items():
            axes = {**vars(config.runs[0]), "workload": f"set0.s{split}", "model": model, "seed": 0}
            row = of(Run.of(axes))[1].astype(float)  # type: ignore[index]
            scored[f"set0.s{split}", 0] = metrics.Scored(float(row.mean()), row, None, 270 / 1257)
    expected = metrics.difference(tests["vqc"], tests["mlp"], ACCURACY, 1 - 0.05 / 4)
    assert expected is not None
    expected, shown = expected.times(100), rows[rows["workload"] == "set0"].loc["vqc"]
    assert shown[["low", "high"]].tolist() == pytest.approx([expected.low, expected.high])
    assert shown["verdict"] == (side(expected, "points", ACCURACY) or verdicts.CANNOT_TELL)


def test_validation_chooses_the_side_and_the_test_does_not(tmp_path: Path) -> None:
    """By validation hybrid and narrow are the best, on test vqc and mlp."""
    of = truth(hybrid=0.7, vqc=0.9, mlp=0.8, narrow=0.6)
    validation = {"hybrid": 0.9, "vqc": 0.8, "narrow": 0.9, "mlp": 0.8}
    answer, rows = answer_of(study(6), tmp_path, lambda run: (validation[run.model], of(run)[1]))  # type: ignore[index]
    assert answer["effect"] == pytest.approx(10, abs=1) and answer["reference"] == "narrow"
    decided = rows[rows["verdict"].notna() & rows["row"].isna()]
    assert {*decided.index} == {"hybrid"} and decided["why"].str.contains("mlp is better than both").any()


def test_gains_and_losses_tell_nothing_for_all_and_of_few_data_sets_ranks_do_not_decide(
    tmp_path: Path,
) -> None:
    mixed = truth(gains=lambda data: 0.1 if data % 2 else -0.1, hybrid=0.6, vqc=0.7, mlp=0.7, narrow=0.5)
    answer, rows = answer_of(study(6), tmp_path / "mixed", mixed)
    assert answer["verdict"] == verdicts.CANNOT_TELL
    assert sorted(of_data(rows).values()) == [verdicts.BETTER] * 3 + [verdicts.WORSE] * 3
    answer, _ = answer_of(study(5), tmp_path / "alike", BETTER)
    assert answer["verdict"] == verdicts.BETTER, "every data set says so by itself"
    but_one = truth(gains=lambda one: 0.0 if one else -0.3, hybrid=0.6, vqc=0.9, mlp=0.7, narrow=0.5)
    answer, _ = answer_of(study(5), tmp_path / "but one", but_one)
    assert (answer["verdict"], answer["why"]) == (verdicts.CANNOT_TELL, "signed ranks need six data sets")


def failing(of: Truth, model: str, *data: str) -> Truth:
    """The same, but all seeds of some models failed on some data sets."""
    return lambda run: None if run.model in model.split() and run.workload.split(".")[0] in data else of(run)


def test_a_side_that_failed_on_a_data_set_has_not_won_the_others(tmp_path: Path) -> None:
    """Twelve data sets with one run each, which decides nothing by itself."""
    config, three = analysis.of(study(12, splits=1)), ("set0", "set1", "set2")
    answer, rows = answer_of(config, tmp_path / "one", failing(BETTER, "vqc hybrid", "set0"))
    assert (answer["verdict"], answer["n"]) == (verdicts.BETTER, 11)
    words = of_data(rows)
    assert words.pop("set0") == verdicts.FAILED and set(words.values()) == {verdicts.CANNOT_TELL}
    assert "Of 12 comparisons: 11 cannot tell, 1 failed." in answer["answer"]
    answer, _ = answer_of(config, tmp_path / "three", failing(BETTER, "vqc hybrid", *three))
    assert answer["verdict"] == verdicts.FAILED
    # That controls failed there is no reason to doubt.
    answer, rows = answer_of(config, tmp_path / "controls", failing(BETTER, "mlp narrow", *three))
    assert answer["verdict"] == verdicts.BETTER and of_data(rows)["set1"] == verdicts.FAILED


@pytest.mark.parametrize("models", ["mlp narrow", "vqc hybrid"])
def test_one_side_alone_is_compared_with_nothing(models: str, tmp_path: Path) -> None:
    """Guessing does not stand in for controls that failed."""
    answer, rows = answer_of(study(2), tmp_path, failing(BETTER, models, "set0", "set1"))
    assert answer["verdict"] == verdicts.FAILED and rows["effect"].isna().all()
    assert of_data(rows) == {"set0": verdicts.FAILED, "set1": verdicts.FAILED}


def test_errors_are_joined_by_their_ratios(tmp_path: Path) -> None:
    """Six regressions, on which the error of the circuit is 20 % smaller than that of its control, more or less."""
    settings = study(1, seeds=3)
    names, table = [f"set{number}" for number in range(6)], {"kind": "sample-table", "table": "diabetes"}
    settings["workloads"] = {name: {**table, "split_seed": number} for number, name in enumerate(names)}
    block = settings["studies"]["asked"]
    block["axes"]["workload"], block["points"] = names, [{}, {"model": "mlp", **NONE}]
    config = analysis.of(settings)

    def change(run: Run) -> dict[str, Any]:
        factor = 0.8 if run.model == "vqc" else 1.0
        error = 50 * factor * (1 + 0.02 * run.seed + 0.01 * int(run.workload[3]) * factor)
        figures = {"loss": 1.0, "count": 89, "rmse": error}
        quality = {"epochs": 3, "best_epoch": 1, "chosen": {}, "right": None}
        return {"quality": {**quality, "validation": figures, "test": figures}}

    factory.write_all(config, tmp_path, change)
    tables = factory.collect(config, tmp_path).tables
    (answer,) = tables["answers"].to_dict("records")
    assert (answer["verdict"], answer["unit"]) == (verdicts.BETTER, "times")
    assert answer["effect"] == pytest.approx(0.796, abs=0.002) and answer["high"] < 1


def test_data_sets_of_several_metrics_are_refused() -> None:
    settings = study(1)
    settings["workloads"]["numbers"] = {"kind": "sample-table", "table": "diabetes", "split_seed": 0}
    block = settings["studies"]["asked"]
    block["axes"]["workload"], block["points"] = ["set0", "numbers"], [{"model": "mlp", **NONE}]
    with pytest.raises(UserError, match="joins data sets of one metric, not accuracy, rmse"):
        analysis.of(settings)
