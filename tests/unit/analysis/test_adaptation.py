"""Studies of models that adapt, for any family whose metrics say after how many steps."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ketscale.analysis import kinds, verdicts
from ketscale.analysis.analysed import Analysed
from ketscale.config import Config, Metric, Model
from ketscale.grid import Run
from ketscale.problems.registry import FAMILIES
from tests import records_factory as factory
from tests.unit.analysis.test_kinds import AXES, TOY

STEPS = (0, 2, 7)


class Learner(Model, frozen=True, kw_only=True):
    """A model that adapts."""

    control: ClassVar[str | None] = "best"


class Best(Model, frozen=True, kw_only=True):
    """A model without adaptation."""


FAMILY = dataclasses.replace(
    TOY,
    models={"learner": Learner, "best": Best},
    metrics=(
        Metric("error", "error", "", "down"),
        *(Metric(f"error_{steps}", f"error after {steps}", "", "down") for steps in STEPS),
        Metric("apart", "distance of tasks", "m", None),
        Metric("undefined", "undefined for these tasks", "", None),
    ),
)


def config(**axes: Any) -> Config:
    """A study of two workloads, with one variant more of the model that adapts."""
    settings = copy.deepcopy(factory.default_study())
    settings["workloads"] |= {"gate": {}, "wide": {"kind": "gate"}}
    settings["models"] = {"fast": {"kind": "learner"}}
    settings["simulators"]["expm"] = {"device": "expm"}
    defaults = {**AXES, "workload": ["gate", "wide"], "model": ["learner", "fast", "best"], **axes}
    settings["studies"] = {"asked": {"kind": "accuracy", "question": "?", "axes": defaults}}
    config = Config.of({**settings, "partial": True}, {**FAMILIES, FAMILY.name: FAMILY})
    kinds.check(config)
    return config


def errors(run: Run) -> dict[str, Any]:
    """Adaptation halves the error with each step; `best` has a tenth, and the tasks of `wide` differ ten times as much."""
    if run.model == "fast" and run.seed == 2:
        return {"status": "diverged", "reason": "loss is NaN at step 7"}
    start = {"learner": 0.1, "fast": 0.2, "best": 0.01}[run.model] * (1 + run.seed)
    start *= 1 + 0.1 * run.seed * (run.model == "best")
    course = {f"error_{steps}": None if run.model == "best" else start / 2**steps for steps in STEPS}
    metrics = {"loss": 0.1, "error": start, **course, "apart": {"gate": 3.0, "wide": 30.0}[run.workload]}
    metrics["undefined"] = None
    return {"quality": {"epochs": 30, "best_epoch": 20, "chosen": {}, "validation": metrics, "test": metrics}}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    factory.write_all(config(), folder, errors)
    factory.draw(config(), folder)
    return folder


def test_models_that_adapt_have_verdicts_beside_what_does_not(results: Path) -> None:
    result = Analysed.read(config(), results)
    rows = result.tables["quality"].set_index(["workload", "model"])
    assert len(rows) == 6 and (rows["study"] == "asked").all()
    # The geometric mean of 0.1, 0.2 and 0.3.
    assert rows["value"]["gate", "learner"] == pytest.approx(6 ** (1 / 3) / 10)
    assert rows[["n", "failed"]].loc[("wide", "fast")].tolist() == [2, 1]
    # Nothing is asked of what does not adapt.
    words = {"learner": verdicts.WORSE, "fast": verdicts.CANNOT_TELL}
    words_of = rows["verdict"].dropna()
    assert words_of.to_dict() == {(name, model): words[model] for name in ("gate", "wide") for model in words}
    ratio = rows.loc["gate", "learner"]
    assert (ratio["control"], ratio["unit"]) == ("best", "times")
    assert ratio["effect"] == pytest.approx(10 / 1.32 ** (1 / 3)) and ratio["low"] > 1
    assert rows.loc[("wide", "fast"), "why"].startswith(f"{verdicts.FEW}; 1 of 3 seeds of fast failed")
