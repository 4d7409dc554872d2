"""answers.csv: every ready-made study has an answer, whatever is there (test_sentences.py has what is said)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from ketscale import analysis
from ketscale.analysis import verdicts
from ketscale.config import Config
from tests import records_factory as factory
from tests.ready_made import WHOLE, small


def answered(config: Config, results: Path, change: factory.Change) -> pd.DataFrame:
    """The rows of answers.csv."""
    factory.write_all(config, results, change)
    factory.collect(factory.partial(config), results)
    return pd.read_csv(results / "tables/answers.csv")


@pytest.mark.parametrize("path", [factory.ROOT / "config.yaml", *WHOLE], ids=lambda path: path.stem)
def test_every_ready_made_study_is_answered_whatever_is_there(path: Path, tmp_path: Path) -> None:
    config = small(path)
    for name, change in factory.fates().items():
        found = answered(config, tmp_path / name, change)
        assert sorted(found["study"].unique()) == sorted(study.name for study in config.studies)
        assert found[["question", "answer", "verdict"]].notna().all().all()
        assert not found["answer"].str.contains(r"\bnan\b|\bNone\b(?! of)").any()
        assert found["answer"].str.endswith(".").all()
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


TWO = factory.small_config(
    {
        "asked": {
            "kind": "simulator",
            "question": "?",
            "axes": factory.point(simulator=["fused", "default.qubit"]),
        }
    }
)


def test_what_was_timed_with_two_codes_is_not_said_to_be_missing(tmp_path: Path) -> None:
    code = factory.record(TWO, TWO.runs[0])["code"]
    found = answered(
        TWO, tmp_path, lambda run: {"code": {**code, "imported": "nameHASH"}} if run.seed == 2 else {}
    )
    assert set(found["verdict"]) == set(found["verdict_of_point"]) == {verdicts.APART}
    assert found["answer"][0] == "Undecided (not comparable): default.qubit, other code."


def test_a_study_of_times_whose_protocol_is_not_timed_says_so(tmp_path: Path) -> None:
    untimed = factory.small_study(
        {
            "asked": {
                "kind": "simulator",
                "question": "?",
                "axes": factory.point(simulator=["fused", "default.qubit"]),
            }
        }
    )
    for protocol in untimed["protocols"].values():
        protocol["timed"] = False
    late = {"status": "timed_out", "reason": "the limit"}
    found = answered(
        analysis.of(untimed), tmp_path, lambda run: late if run.simulator == "default.qubit" else {}
    )
    assert found["answer"][0].startswith(
        "Open: times are compared, and no protocol of the study has timed: true ("
    )


def test_a_run_that_its_limit_ended_is_not_waited_for(tmp_path: Path) -> None:
    late = {"status": "timed_out", "reason": "the limit"}
    found = answered(TWO, tmp_path, lambda run: late if run.simulator == "default.qubit" else {})
    assert found["answer"][0] == (
        "Open: fewer than two values of simulator were timed at the same work (default.qubit: 3 timed out)."
    )


def test_weak_scaling_of_which_no_point_has_a_time_is_answered(tmp_path: Path) -> None:
    axes = factory.point(simulator="fused")
    points = [{"batch": 64}, {"batch": 128, "backend": "mpi-n1r2t1"}]
    made = factory.small_config({"asked": {"kind": "weak", "question": "?", "axes": axes, "points": points}})
    code = factory.record(made, made.runs[0])["code"]
    found = answered(
        made, tmp_path, lambda run: {"code": {**code, "imported": "nameHASH"}} if run.seed else {}
    )
    assert set(found["verdict"]) == {verdicts.APART}


def test_figures_and_answers_say_which_numbers_are_drawn(tmp_path: Path) -> None:
    """And no others: the note is about the simulators of the study alone."""
    given = factory.default_study()
    drawn = {"device": "fused", "batching": "broadcast", "shots": 100}
    given["simulators"] |= {
        "noisy": {**drawn, "gradient": "exact"},
        "shifted": {**drawn, "gradient": "shift"},
    }
    axes = factory.point(simulator=["fused", "noisy"])
    config = analysis.of(
        {**given, "studies": {"asked": {"kind": "simulator", "question": "?", "axes": axes}}}
    )
    factory.write_all(config, tmp_path, lambda run: {})
    analysed = factory.collect(config, tmp_path)
    said = "noisy: 100 shots, noisy value, exact gradient."
    assert analysed.parts[0].answer.notes[0] == said
    assert said[:-1] in " ".join(analysed.figures["asked"]["svg"].decode().split())
