"""Studies of adaptation: what they refuse, tabulate and draw, for any family whose metrics say after how many steps."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from ketscale.analysis import analysed, catalogue, kinds
from ketscale.config import Config, Metric, Model
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.problems.registry import FAMILIES
from tests import records_factory as factory
from tests.analysis.test_kinds import AXES, TOY

STEPS = (0, 2, 7)


class Learner(Model, frozen=True, kw_only=True):
    """A model that adapts."""

    adapts: ClassVar[bool] = True


class Best(Model, frozen=True, kw_only=True):
    """A model without adaptation."""


FAMILY = dataclasses.replace(
    TOY,
    models={"learner": Learner, "best": Best},
    metrics=(
        Metric("error", "error", "", "down"),
        *(Metric(f"error_{steps}", f"error after {steps}", "", "down", after=steps) for steps in STEPS),
        Metric("apart", "distance of tasks", "m", None),
        Metric("undefined", "undefined for these tasks", "", None),
    ),
)


def config(**axes: Any) -> Config:
    """A study of two workloads, with one variant more of the model that adapts."""
    given = copy.deepcopy(factory.default_study())
    given["workloads"] |= {"gate": {}, "wide": {"kind": "gate"}}
    given["models"] = {"fast": {"kind": "learner"}}
    given["simulators"]["expm"] = {"device": "expm"}
    usual = {**AXES, "workload": ["gate", "wide"], "model": ["learner", "fast", "best"], **axes}
    given["studies"] = {"asked": {"kind": "adaptation", "question": "?", "axes": usual}}
    made = Config.of({**given, "partial": True}, {**FAMILIES, FAMILY.name: FAMILY})
    kinds.check(made)
    return made


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"protocol": "timing"}, "adaptation needs validation and test, but protocol timing has steps"),
        ({"model": "best"}, "needs a model that adapts, and none is trained on gate; add one"),
    ],
)
def test_a_study_without_a_course_is_refused(axes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=rf"studies.asked: .*{said}"):
        config(**axes)


def test_a_family_that_measures_no_adaptation_is_refused() -> None:
    study = {"kind": "adaptation", "question": "?", "axes": factory.point(protocol="quality")}
    with pytest.raises(UserError, match="adaptation steps, and models of digits have none; leave it out"):
        factory.small_config({"asked": study})


def errors(run: Run) -> dict[str, Any]:
    """Adaptation halves the error with each step; `best` has a tenth, and the tasks of `wide` differ ten times as much."""
    if run.model == "fast" and run.seed == 2:
        return {"status": "diverged", "reason": "loss is NaN at step 7"}
    start = {"learner": 0.1, "fast": 0.2, "best": 0.01}[run.model] * (1 + run.seed)
    course = {f"error_{steps}": None if run.model == "best" else start / 2**steps for steps in STEPS}
    metrics = {"loss": 0.1, "error": start, **course, "apart": {"gate": 3.0, "wide": 30.0}[run.workload]}
    metrics["undefined"] = None
    return {"quality": {"epochs": 30, "best_epoch": 20, "validation": metrics, "test": metrics}}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study, tabulated and drawn."""
    folder = tmp_path_factory.mktemp("results")
    factory.write_all(config(), folder, errors)
    factory.draw(config(), folder)
    return folder


def test_its_rows_are_those_of_quality(results: Path) -> None:
    rows = pd.read_csv(results / "tables/quality.csv").set_index(["workload", "model"])
    assert len(rows) == 6 and (rows["study"] == "asked").all()
    assert rows["value"]["gate", "learner"] == pytest.approx(0.2)
    assert rows["error_2"]["gate", "learner"] == pytest.approx(0.05)
    assert pd.isna(rows["error_2"]["gate", "best"])
    assert rows[["n", "failed"]].loc[("wide", "fast")].tolist() == [2, 1]
    assert rows["apart"]["wide", "best"] == 30


def test_the_answer_has_the_gain_of_adaptation_and_the_optimum(results: Path) -> None:
    said = pd.read_csv(results / "tables/answers.csv").iloc[0]["answer"]
    # The learner is chosen on validation data: the optimum is better, but does not adapt.
    assert "on gate (generated data), learner (2 qubits, 2 levels) reaches a test error of 0.2 " in said
    assert "from 0.2 after 0 adaptation steps (each sample's own optimum, best, 0.02)" in said
    assert said.count("learner") == 2 and "fast" not in said


def test_a_curve_is_the_mean_and_range_over_finished_seeds(results: Path) -> None:
    drawn = pd.read_csv(results / "figures/adaptation.csv").set_index("metric")
    groups = dict(list(drawn.groupby(["workload", "curve"])))
    fast = groups["gate", "fast"]
    assert fast["after"].dropna().tolist() == list(STEPS)
    assert fast["value"].tolist() == pytest.approx([0.3, 0.3 / 4, 0.3 / 2**7, 3.0])
    assert fast.loc["error_0", ["n", "value_low", "value_high"]].tolist() == pytest.approx([2, 0.2, 0.4])
    assert groups["wide", "best"].index.tolist() == ["error", "apart"]


def test_workloads_are_side_by_side_with_the_optimum_as_a_level(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysed.style, "files", lambda *given: {})
    figure, _ = _drawn(results)
    panels = figure.axes
    assert [axes.get_title(loc="left") for axes in panels] == ["asked: gate", "wide"]
    for axes, apart in zip(panels, ("3", "30"), strict=True):
        assert axes.get_yscale() == "log"
        assert [label.get_text() for label in axes.get_xticklabels()] == [str(steps) for steps in STEPS]
        dashed = [y for line in axes.lines if line.get_ls() == "--" for y in line.get_ydata()]
        assert dashed == pytest.approx([0.02, 0.02])
        names, numbers = (text.get_text().splitlines() for text in axes.texts)
        assert names == ["columns, with best", "error", "distance of tasks (m)"]
        assert numbers == ["", "0.02", apart]
    assert any("2 diverged" in text.get_text() for text in figure.texts)
    plt.close(figure)


def _drawn(results: Path) -> Any:

    (asked,) = catalogue.figures_of(config())
    return asked.draw(factory.collect(config(), results).inputs)


def test_a_study_without_a_finished_run_says_so(tmp_path: Path) -> None:
    factory.draw(config(), tmp_path)
    assert "No finished run" in (tmp_path / "figures/adaptation.svg").read_text()
