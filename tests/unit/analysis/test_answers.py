"""answers.csv: every ready-made study has an answer, whatever is there, and each sentence keeps its limits."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from ketscale import analysis
from ketscale.analysis import verdicts
from ketscale.config import Config
from tests import records_factory as factory
from tests.ready_made import WHOLE, small
from tests.sentences import faults


def answered(config: Config, results: Path, change: factory.Change) -> pd.DataFrame:
    """The rows of answers.csv."""
    factory.write_all(config, results, change)
    found = factory.collect(factory.partial(config), results)
    assert not [fault for part in found.parts for fault in faults(part.answer)]
    return pd.read_csv(results / "tables/answers.csv")


# Each kind of study; the others are tested at night.
FIRST = ("better-than-classical", "control", "eeg-published", "images", "sentences", "trainability")
PATHS = [
    pytest.param(path, marks=[] if path.stem in FIRST else pytest.mark.nightly, id=path.stem)
    for path in WHOLE
]


@pytest.mark.parametrize("path", [factory.ROOT / "config.yaml", *PATHS])
def test_every_ready_made_study_is_answered_whatever_is_there(path: Path, tmp_path: Path) -> None:
    config = small(path)
    for name, change in factory.fates().items():
        found = answered(config, tmp_path / name, change)
        assert sorted(found["study"].unique()) == sorted(study.name for study in config.studies)
        assert found[["question", "answer", "verdict"]].notna().all().all()
        assert not found["answer"].str.contains(r"\bnan\b|\bNone\b(?! of)").any()
        assert found["answer"].str.endswith(".").all()
        assert {*found["verdict"], *found["verdict_of_point"].dropna()} <= {*verdicts.MEANINGS}
        if name == "whole":
            assert (found["verdict"] != verdicts.OPEN).all()
        if name == "none":
            assert set(found["verdict"]) == {verdicts.OPEN}
        known = found.dropna(subset=["low", "high"])
        assert ((known["low"] <= known["effect"]) & (known["effect"] <= known["high"])).all()


def test_studies_are_answered_in_an_order_that_is_not_that_of_the_config(tmp_path: Path) -> None:
    given = factory.default_study()
    orders = []
    for name, studies in (
        ("as given", given["studies"]),
        ("by name", dict(sorted(given["studies"].items()))),
    ):
        config = analysis.of({**given, "studies": studies})
        orders.append(list(answered(config, tmp_path / name, lambda run: None)["study"].unique()))
    assert list(given["studies"]) != sorted(given["studies"])
    assert orders[0] == orders[1]


def test_weak_scaling_of_which_no_point_has_a_time_is_answered(tmp_path: Path) -> None:
    axes = factory.point(simulator="fused")
    points = [{"batch": 64}, {"batch": 128, "backend": "mpi-n1r2t1"}]
    made = factory.small_config({"asked": {"kind": "weak", "question": "?", "axes": axes, "points": points}})
    code = factory.record(made, made.runs[0])["code"]
    found = answered(
        made, tmp_path, lambda run: {"code": {**code, "imported": "nameHASH"}} if run.seed else {}
    )
    assert set(found["verdict"]) == {verdicts.APART}
