"""What a study of trained models says of records whose truth is known, and that no order of anything changes it."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from ketscale import analysis
from ketscale.analysis import metrics, report, verdicts
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.kinds import selection
from ketscale.config import Config, Metric
from ketscale.grid import Run
from ketscale.measure.right import packed
from tests import records_factory as factory

# The kinds of studies that compare models by their tests.
KINDS = ("accuracy", "comparison")
# The run had no model yet, so that its number of parameters is not known.
FAILED = {"status": "out_of_memory", "reason": "no room", "quality": None, "parameters": None}
NONE = {"qubits": 0, "layers": 0, "simulator": "none"}
# The accuracy of a run on validation data, and which samples of the test it gets right; None if it failed.
Truth = Callable[[Run], tuple[float, np.ndarray[Any, Any]] | None]


def settings_of(
    seeds: int = 8, controls: tuple[str, ...] = ("mlp",), baselines: tuple[str, ...] = (), **axes: Any
) -> dict[str, Any]:
    """A circuit and its controls, classical models by these names, and baselines."""
    point = factory.point(protocol="quality", seed=[*range(seeds)], **axes)
    points = [{}, *({"model": name, **NONE} for name in controls)]
    points += [{"model": name, **NONE, "batch": 1, "protocol": "fit"} for name in baselines]
    study = {"kind": "accuracy", "question": "?", "axes": point, "points": points}
    blocks = {name: {"kind": "mlp", "width": 4 + number} for number, name in enumerate(controls)}
    settings = factory.small_study({"asked": study}, models=blocks)
    return {**settings, "protocols": {**settings["protocols"], "fit": {"precision": "fp64", "timed": False}}}


def recorded(
    config: Config,
    results: Path,
    truth: Truth,
    change: factory.Change = lambda run: {},
) -> Config:
    """Write the records of a study, and return it without those that are missing."""

    def made(run: Run) -> Mapping[str, Any]:
        result = truth(run)
        if result is None:
            return FAILED
        (validation, right), epochs = result, {"epochs": 30, "best_epoch": 20, "chosen": {}}
        figures = {**factory.metrics(config, run), "accuracy": validation}
        if config.is_trial(run):
            return {"quality": {**epochs, "validation": figures, "test": {}, "right": None}}
        test = {**figures, "accuracy": float(right.mean()), "count": len(right)}
        cases = msgspec.to_builtins(packed([[int(case)] for case in right]))
        tested = {**epochs, "validation": figures, "test": test, "right": cases}
        return {"quality": tested, **(change(run) or {})}

    factory.write_all(config, results, made)
    return factory.partial(config)


def answer_of(
    made: Config | dict[str, Any], results: Path, truth: Truth, *more: Any, **named: Any
) -> tuple[dict[str, Any], pd.DataFrame]:
    """The answer of a study with the records that `recorded` writes, and its rows of quality.csv, by model."""
    config = made if isinstance(made, Config) else analysis.of(made)
    tables = factory.collect(recorded(config, results, truth, *more, **named), results).tables
    (answer,) = tables["answers"].to_dict("records")
    return answer, tables["quality"].set_index("model")


def right(share: float, samples: int, seed: int, kept: float = 0.9) -> np.ndarray[Any, Any]:
    """A seed's right samples: the easy ones, but for some that chance exchanges."""
    draw, result = np.random.default_rng([seed, samples]), np.arange(samples) < round(share * samples)
    flipped = draw.random(samples) > kept
    result[flipped] = draw.permutation(result[flipped])
    return result


def shares(samples: int = 180, validation: Mapping[str, float] | None = None, **of: float) -> Truth:
    """Accuracies by model, and by the same names on validation data."""
    scores = validation or of
    return lambda run: (scores[run.model], right(of[run.model], samples, run.seed + 100 * len(run.model)))


def with_failures(truth: Truth, model: str, seeds: int) -> Truth:
    """The same, but for so many failed seeds of a model."""
    return lambda run: None if run.model == model and run.seed < seeds else truth(run)


TWO = {"controls": ("narrow", "wide")}
# By what is the case: the study, its truth, the verdict, and what stands in its reason.
CASES: dict[str, tuple[dict[str, Any], Truth, str, str]] = {
    "clearly better": ({}, shares(vqc=0.9, mlp=0.6), verdicts.BETTER, "untuned"),
    "clearly worse": ({}, shares(vqc=0.6, mlp=0.9), verdicts.WORSE, "untuned"),
    "one seed": ({"seeds": 1}, shares(vqc=0.9, mlp=0.6), verdicts.CANNOT_TELL, verdicts.FEW),
    "five of eight seeds failed, and the others are worse": (
        {}, with_failures(shares(vqc=0.6, mlp=0.9), "vqc", 5), verdicts.FAILED, "5 of 8 seeds of vqc failed",
    ),
    "five of the control's eight seeds failed": (
        {}, with_failures(shares(vqc=0.9, mlp=0.6), "mlp", 5), verdicts.FAILED, "5 of 8 seeds of mlp failed",
    ),
    "one of eight seeds failed, and the others are better by more than it can take": (
        {}, with_failures(shares(vqc=0.95, mlp=0.3), "vqc", 1), verdicts.BETTER, "1 of 8 seeds of vqc failed",
    ),
    "two of eight seeds failed, and with them the others are no better": (
        {}, with_failures(shares(vqc=0.9, mlp=0.8), "vqc", 2), verdicts.FAILED, "2 of 8 seeds of vqc failed",
    ),
    "three of the control's eight seeds failed, and the others are worse": (
        {}, with_failures(shares(vqc=0.9, mlp=0.6), "mlp", 3), verdicts.BETTER, "3 of 8 seeds of mlp failed",
    ),
    "all of its seeds failed, and a control alone does not answer": (
        {}, with_failures(shares(vqc=0.9, mlp=0.6), "vqc", 8), verdicts.FAILED, "8 of 8 seeds of vqc failed",
    ),
    "all of the control's seeds failed, and guessing does not stand in": (
        {}, with_failures(shares(vqc=0.9, mlp=0.6), "mlp", 8), verdicts.FAILED, "8 of 8 seeds of mlp failed",
    ),
    "all 27 samples right": ({}, shares(27, vqc=1.0, mlp=1.0), verdicts.CANNOT_TELL, ""),
    "too easy, but enough samples": ({}, shares(1000, vqc=1.0, mlp=1.0), verdicts.SAME, ""),
    "the second control in the file is the better one": (
        TWO, shares(vqc=0.6, narrow=0.3, wide=0.9), verdicts.WORSE, "",
    ),
    "the control that is best on validation, not on test": (
        TWO, shares(validation={"vqc": 0.6, "narrow": 0.8, "wide": 0.7}, vqc=0.6, narrow=0.3, wide=0.9),
        verdicts.BETTER, "wide is better than both",
    ),
    "no control": ({"controls": ()}, shares(vqc=0.6), verdicts.BETTER, ""),
    "at chance": ({"controls": ()}, shares(vqc=0.1), verdicts.CANNOT_TELL, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_doctored_records_give_the_expected_verdict(case: str, tmp_path: Path) -> None:
    axes, truth, verdict, why = CASES[case]
    answer, rows = answer_of(settings_of(**axes), tmp_path, truth)
    (row,) = rows[rows["verdict"].notna()].to_dict("records")
    assert (answer["verdict"], row["verdict"]) == (verdict, verdict)
    assert why in (row["why"] if why else "") and why in answer["answer"]
    assert ("is better than both" in str(row["why"])) == ("better than both" in why)
    assert rows[["value_low", "value_high"]].stack().dropna().between(0, 1).all()
    assert rows[["low", "high"]].stack().dropna().between(-100, 100).all()


def test_a_strong_control_is_not_exchanged_for_a_weak_one_because_a_seed_failed(tmp_path: Path) -> None:
    """That seed gets nothing right: 7/8 of 0.9 are more than 0.3, and less than 0.8."""
    for weak, best in ((0.3, "strong"), (0.8, "weak")):
        of = with_failures(shares(vqc=0.95, strong=0.9, weak=weak), "strong", 1)
        _, rows = answer_of(settings_of(controls=("weak", "strong")), tmp_path / best, of)
        assert rows.loc["vqc", "control"] == best


def test_each_side_has_its_best_configuration_and_the_reader_is_told(tmp_path: Path) -> None:
    """The control was tried at three batches, of which one is good: that one counts, and three is more than one."""
    study = settings_of(controls=("mlp",))
    study["studies"]["asked"]["points"][1]["batch"] = [16, 64, 256]

    def truth(run: Run) -> tuple[float, np.ndarray[Any, Any]]:
        share = 0.8 if run.model == "vqc" else {16: 0.5, 64: 0.9, 256: 0.3}[run.batch]
        return share, right(share, 180, run.seed)

    answer, rows = answer_of(study, tmp_path, truth)
    assert answer["verdict"] == verdicts.WORSE and answer["unit"] == "points"
    assert answer["effect"] == pytest.approx(-10, abs=0.1) and answer["low"] < -10 < answer["high"] < 0
    control = rows.loc["mlp"].set_index("batch")
    assert control["chosen"].to_dict() == {16: False, 64: True, 256: False}


def cut(fewer: str | int) -> Truth:
    """Tests of fewer samples under the same hash: of all runs of a model, or of one seed."""
    truth = shares(vqc=0.9, mlp=0.6)

    def found(run: Run) -> tuple[float, np.ndarray[Any, Any]]:
        validation, cases = truth(run)  # type: ignore[misc]
        return validation, cases[:90] if fewer in (run.model, run.seed) else cases

    return found


@pytest.mark.parametrize(
    ("splits", "truth", "change", "why"),
    [
        (False, shares(vqc=0.9, mlp=0.6), lambda run: {"data_hash": run.model}, "other data"),
        (False, cut("mlp"), lambda run: {}, "other splits"),
        (False, cut(1), lambda run: {}, "other splits"),
        (
            True,
            shares(vqc=0.9, mlp=0.6),
            lambda run: {"data_hash": "f" * 64} if (run.model, run.workload) == ("mlp", "digits.s1") else {},
            "other data",
        ),
    ],
)
def test_other_data_or_another_test_are_not_compared(
    tmp_path: Path, splits: bool, truth: Truth, change: factory.Change, why: str
) -> None:
    answer, rows = answer_of(split_in([0, 1, 2]) if splits else settings_of(), tmp_path, truth, change)
    assert answer["verdict"] == verdicts.NOT_COMPARABLE and rows["effect"].isna().all()
    assert why in rows.loc["vqc", "why"]


@pytest.mark.parametrize(("rate", "differs"), [(0.1, False), (0.2, True)])
def test_what_is_searched_of_one_model_is_no_other_training(
    rate: float, differs: bool, tmp_path: Path
) -> None:
    study, named = settings_of(), ("one", "other")
    study["studies"]["asked"]["axes"]["protocol"], study["studies"]["asked"]["points"][1]["protocol"] = named
    quality = {key: value for key, value in study["protocols"]["quality"].items() if key != "learning_rate"}
    for name, high, models in (("one", 0.1, {}), ("other", rate, {"mlp": {"width": [4, 5]}})):
        search = {"trials": 2, "settings": {"learning_rate": [0.01, high]}, "models": models}
        study["protocols"][name] = {**quality, "search": search}
    why = answer_of(study, tmp_path, shares(vqc=0.9, mlp=0.6))[1].loc["vqc", "why"]
    assert ("trained with protocol one, mlp with other" in str(why)) == differs


@pytest.mark.parametrize(
    ("controls", "shared", "known"), [(("mlp",), 9, 0), (("mlp",), 10, 10), ((), 350, 180)]
)
def test_a_test_that_is_known_from_training_decides_nothing(
    controls: tuple[str, ...], shared: int, known: int, tmp_path: Path
) -> None:
    """Up to 5 % of 180 samples may be known, whoever is beside the model; one run alone may say so."""
    split = {"by": "labels", "fold": None, "folds": None, "held_out": None, "shared": shared}
    truth = shares(vqc=0.9, mlp=0.6)
    answer, rows = answer_of(
        settings_of(controls=controls), tmp_path, truth, lambda run: {"split": split} if run.seed == 3 else {}
    )
    row = rows.loc["vqc"]
    assert (answer["verdict"], row["verdict"]) == (verdicts.CANNOT_TELL if known else verdicts.BETTER,) * 2
    assert pd.isna(row["effect"]) == bool(known)
    assert f"up to {known or shared} of 180 test samples are also in training" in row["why"]


def in_reverse(value: Any) -> Any:
    """The same settings with blocks, points and seeds in the opposite order."""
    if isinstance(value, dict):
        return {name: in_reverse(item) for name, item in reversed(value.items())}
    return [in_reverse(item) for item in reversed(value)] if isinstance(value, list) else value


def page(results: Path) -> list[str]:
    """The lines of the report with its figures, but for the config, which has an order of its own."""
    text = (results / "report.html").read_text()
    return re.sub("<p>The config</p>.*?</pre>", "", text, flags=re.DOTALL).splitlines()


@pytest.mark.parametrize("kind", KINDS)
def test_no_order_changes_a_word_a_number_or_a_figure_of_the_report(kind: str, tmp_path: Path) -> None:
    """Two data sets of two splits, a search, three controls of which two tie on validation, two configurations; some seeds failed."""
    study = split_in([0, 1])
    rates = {"learning_rate": [0.1, 0.01]}
    study["protocols"]["quality"]["search"] = {"trials": 2, "seeds": [8, 7], "settings": rates}
    study["protocols"]["quality"].pop("learning_rate")
    study["workloads"]["second"] = {**study["workloads"]["digits"], "kind": "digits", "pretrain_steps": 9}
    names = ("b", "a", "c")
    study["models"] = {name: {"kind": "mlp", "width": 4 + number} for number, name in enumerate(names)}
    study["studies"]["asked"]["kind"] = kind
    study["studies"]["asked"]["axes"]["workload"] = ["second", "digits"]
    study["studies"]["asked"]["points"] = [{"batch": [64, 256]}, *({"model": name, **NONE} for name in names)]
    validation = {"vqc": 0.8, "a": 0.9, "b": 0.9, "c": 0.7}
    truth = with_failures(shares(40, validation=validation, vqc=0.8, a=0.7, b=0.6, c=0.9), "c", 1)
    values = []
    for order, result in enumerate((copy.deepcopy(study), in_reverse(study))):
        results = tmp_path / str(order)
        config = recorded(analysis.of(result), results, truth)
        report.build(config, results)
        values.append(Analysed.read(config, results))
    rows = values[0].tables["quality"]
    assert {*rows[rows["verdict"].notna() & rows["row"].isna()]["control"]} == {"a"}, "ties break by name"
    for name in values[0].tables:
        first, second = (each.csv[name].splitlines() for each in values)
        assert first == second or (name not in ("answers", "quality") and sorted(first) == sorted(second)), (
            name
        )
    assert page(tmp_path / "0") == page(tmp_path / "1")


@pytest.mark.parametrize("kind", KINDS)
def test_other_test_results_change_nothing_of_what_is_chosen(kind: str, tmp_path: Path) -> None:
    """What is chosen from three batches of a model and two controls is the same whatever they get right in the test."""
    study = settings_of(seeds=3, controls=("a", "b"), batch=[16, 64, 256])
    study["studies"]["asked"]["kind"] = kind
    config, scores = analysis.of(study), {("vqc", 64): 0.9, ("a", 16): 0.8, ("b", 256): 0.7}
    for number in range(3):
        draw = np.random.default_rng(number)
        tests = {
            run: (scores.get((run.model, run.batch), 0.3), right(draw.random(), 40, run.seed))
            for run in config.runs
        }
        _, rows = answer_of(config, tmp_path / str(number), tests.get)
        best = rows[rows["chosen"].astype(bool)][["batch", "control"]].fillna("")
        assert best.to_dict("index") == {
            "vqc": {"batch": 64, "control": "a"},
            "a": {"batch": 16, "control": ""},
            "b": {"batch": 256, "control": ""},
        }


SHARE = Metric("accuracy", "accuracy", "share correct", "up", chance=0.5)


def configuration(
    tests: metrics.Tests, failed: metrics.Seed, rows: Sequence[Any] = ()
) -> selection.Configuration:
    return selection.Configuration(
        point=(), group=rows, metric=SHARE, task=("w", ""), model="m", tests=tests, failed=(failed,),
        validation=1.0, chance=0.5,
    )  # fmt: skip


def test_a_failed_seed_beside_guessing_stays_in_its_own_fold() -> None:
    """Seed 3 of four failed: it is of fold 0 of three, like seed 0, and not of that of whichever seed is first."""
    rows = [{"workload": "w", "seed": seed, "fold": seed % 3} for seed in range(5)]
    tests = {("w", seed): metrics.Scored(1.0, np.ones(4 + seed % 3), seed % 3) for seed in (1, 2, 4, 0)}
    control = configuration(tests, ("w", 3), rows).guessing()
    assert control is not None and control.tests["w", 3].fold == 0
    assert control.tests["w", 3].row is not None and control.tests["w", 3].row.shape == (4,)


def test_a_failed_seed_of_one_split_counts_in_that_split_alone() -> None:
    """Beside another model: the seed that failed gets nothing right, and the other seed of its split keeps its test."""
    tests = {
        (split, seed): metrics.Scored(1.0, np.ones(4)) for split in ("s0", "s1", "s2") for seed in (0, 1)
    }
    guesses = {seed: metrics.Scored(0.5, np.array([0.0, 0, 1, 1]), None, 0.2) for seed in tests}
    del tests["s0", 1]
    control = selection.replace(configuration(guesses, ("s0", 1)), failed=())
    result = selection.Comparison(configuration(tests, ("s0", 1)), control).effect(failed=True)
    # The splits' means are (0.5 - 0.5) / 2, 0.5 and 0.5.
    assert result is not None and result.value == pytest.approx(100 / 3)


BASELINES = ("linear", "majority")


@pytest.mark.parametrize(("share", "verdict"), [(0.1, "better"), (0.7, "worse"), (0.9, "worse")])
def test_a_baseline_stands_beside_a_model_and_its_control(share: float, verdict: str, tmp_path: Path) -> None:
    """Whatever the verdict: better than its control, a model may still be worse than the simplest method."""
    truth = shares(1000, vqc=0.5, mlp=share, linear=0.8, majority=0.1)
    answer, rows = answer_of(settings_of(baselines=BASELINES), tmp_path, truth)
    assert (answer["verdict"], rows.loc["vqc", "control"]) == (verdict, "mlp")
    assert rows.loc["linear", "value"] == pytest.approx(0.8, abs=0.01)
    assert rows.loc[[*BASELINES, "mlp"], "verdict"].isna().all()
    assert ("linear is better than both" in str(rows.loc["vqc", "why"])) == (share < 0.8)


@pytest.mark.parametrize("count", [2, 1, 0])
def test_without_a_control_the_best_baseline_stands_in(count: int, tmp_path: Path) -> None:
    reference = ["guessing", "majority", "linear"][count]
    study = settings_of(controls=(), baselines=BASELINES[2 - count :])
    answer, rows = answer_of(study, tmp_path, shares(vqc=0.6, linear=0.8, majority=0.2))
    assert (answer["verdict"], answer["reference"]) == (
        verdicts.WORSE if count == 2 else verdicts.BETTER,
        reference,
    )
    assert rows["verdict"].notna().sum() == 1


def test_in_a_comparison_of_data_sets_a_baseline_is_one_of_the_controls(tmp_path: Path) -> None:
    study = settings_of(baselines=BASELINES)
    study["studies"]["asked"]["kind"] = "comparison"
    _, rows = answer_of(study, tmp_path, shares(vqc=0.6, mlp=0.7, linear=0.8, majority=0.2))
    (row,) = rows[rows["verdict"].notna() & rows["row"].isna()].to_dict("records")
    assert (row["control"], row["verdict"]) == ("linear", verdicts.WORSE)


# --- several splits of the same data ---


def split_in(seeds: Sequence[int]) -> dict[str, Any]:
    result = settings_of(seeds=3)
    block = {key: value for key, value in result["workloads"]["digits"].items() if key != "split_seed"}
    return {**result, "workloads": {**result["workloads"], "digits": {**block, "split_seeds": [*seeds]}}}


def test_splits_of_the_same_data_are_one_data_set(tmp_path: Path) -> None:
    """Their hashes differ, and so do the accuracies of both models by split, but not their difference."""
    level = {"digits.s0": 0.0, "digits.s1": 0.06, "digits.s2": -0.05}

    def truth(run: Run) -> tuple[float, np.ndarray[Any, Any]]:
        share = {"vqc": 0.8, "mlp": 0.6}[run.model] + level[run.workload]
        return share, right(share, 200, run.seed)

    answer, rows = answer_of(
        split_in([0, 1, 2]), tmp_path, truth, lambda run: {"data_hash": run.workload[-1] * 64}
    )
    assert rows[["workload", "n"]].values.tolist() == [["digits", 9]] * 2
    assert answer["verdict"] == verdicts.BETTER
    row = rows.loc["vqc"]
    # The interval of a model's own accuracy has the splits, that of the difference, which all have, is narrower.
    assert row["value_high"] - row["value_low"] > 0.2 and row["high"] - row["low"] < 20
    assert row["value"] == pytest.approx(0.8 + 0.01 / 3, abs=0.02)


@pytest.mark.parametrize("layers", [[3], [1, 3]])
def test_without_validation_a_model_has_one_configuration(layers: list[int], tmp_path: Path) -> None:
    config, one = analysis.of(settings_of(seeds=4, layers=layers)), layers == [3]

    def unvalidated(run: Run) -> Mapping[str, Any]:
        result = factory.record(config, run)["quality"]
        test = {**result["test"], "accuracy": {"vqc": 0.9, "mlp": 0.6}[run.model], "count": 200}
        return {"quality": {**result, "validation": {}, "test": test}}

    factory.write_all(config, tmp_path, unvalidated)
    tables = factory.collect(factory.partial(config), tmp_path).tables
    assert (tables["answers"]["verdict"].tolist() == [verdicts.BETTER]) == one
    assert tables["quality"].set_index("model").loc[["vqc"], "chosen"].any() == one
