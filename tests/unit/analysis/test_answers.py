"""answers.csv: every ready-made study has an answer, whatever is there, and it is that of its leading row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ketscale import analysis, strict_json
from ketscale.analysis import verdicts, wording
from ketscale.analysis.analysed import _cautions
from ketscale.config import Config
from ketscale.grid import PREPARED, Run, Study
from tests import records_factory as factory
from tests.ready_made import WHOLE, small
from tests.sentences import faults
from tests.unit.analysis.test_speed import CASES, DIVERGED, TWO, analysed, settings_of

LEADING = ["point", "reference", "effect", "low", "high", "unit", "verdict", "why"]


def answered(config: Config, results: Path, change: factory.Change) -> dict[str, pd.DataFrame]:
    """The tables of a config, whose answers nobody minds."""
    factory.write_all(config, results, change)
    tables = dict(factory.collect(factory.partial(config), results).tables)
    assert not faults(tables["answers"])
    return tables


# Each kind of study; the others are tested at night.
FIRST = ("better-than-classical", "control", "eeg-published", "images", "sentences")
PATHS = [
    pytest.param(path, marks=[] if path.stem in FIRST else pytest.mark.nightly, id=path.stem)
    for path in WHOLE
]


@pytest.mark.parametrize("unit", ["", float("nan")])
def test_an_effect_without_a_unit_is_a_number(unit: Any) -> None:
    assert wording.amount(0.3, 0.1, 0.5, unit) == ("0.3", "0.1 to 0.5")


@pytest.mark.parametrize("path", [factory.ROOT / "config.yaml", *PATHS])
def test_every_ready_made_study_is_answered_whatever_is_there(path: Path, tmp_path: Path) -> None:
    config = small(path)
    for name, change in factory.fates().items():
        tables = answered(config, tmp_path / name, change)
        result = tables["answers"]
        assert sorted(result["study"].unique()) == sorted(study.name for study in config.studies)
        assert result[["question", "answer", "verdict"]].notna().all().all()
        assert name != "none" or set(result["verdict"]) == {verdicts.MISSING}
        missing = result[result["verdict"].isin([verdicts.MISSING, verdicts.FAILED])]
        assert name != "whole" or {*missing["why"]} <= {"no control"}
        for table in (tables["speed"], tables["quality"], tables["fits"], result):
            assert {*table["verdict"].dropna()} <= {*verdicts.MEANINGS}
            known = table.dropna(subset=["low", "high"])
            assert ((known["low"] <= known["effect"]) & (known["effect"] <= known["high"])).all()
        # What leads is a row of the study.
        rows = pd.concat(
            [tables[name][["study", *LEADING]].astype(object) for name in ("speed", "quality", "fits")]
        )
        led = result.dropna(subset=["effect"])[["study", *LEADING]].astype(object)
        assert {*map(tuple, led.where(led.notna(), None).values)} <= {
            *map(tuple, rows.where(rows.notna(), None).values)
        }


def test_studies_are_answered_in_an_order_that_is_not_that_of_the_config(tmp_path: Path) -> None:
    settings = factory.default_study()
    by_name = dict(sorted(settings["studies"].items()))
    one, two = (
        answered(analysis.of({**settings, "studies": studies}), tmp_path / str(number), lambda run: None)[
            "answers"
        ]
        for number, studies in enumerate((settings["studies"], by_name))
    )
    assert list(by_name) != list(settings["studies"])
    pd.testing.assert_frame_equal(one, two)


def lead(settings: dict[str, Any], results: Path, change: factory.Change) -> dict[str, Any]:
    """The only answer."""
    (answer,) = analysed(settings, results, change)["answers"].to_dict("records")
    return answer


def test_verdicts_are_counted_and_seeds_named(tmp_path: Path) -> None:
    case = CASES["strong"]
    answer = lead(case.settings, tmp_path, lambda run: {"step_s": case.step_s(run)})
    assert answer["answer"].startswith("Two MPI ranks: faster, 1.6 times as fast as one core (")
    assert answer["answer"].endswith("Of 3 comparisons: 1 faster, 1 slower, 1 same.")
    assert answer["n"] == 3 and pd.isna(answer["notes"])


def test_leaks_and_what_has_not_completed_are_told(tmp_path: Path) -> None:
    def change(run: Run) -> dict[str, Any] | None:
        manifest = tmp_path / PREPARED.format(workload=run.workload)
        strict_json.write(manifest, {**strict_json.of_note(manifest), "leaks": ["code"]})
        if run.ranks > 1:
            return {0: None, 1: DIVERGED}.get(run.seed, {})
        return {"quiet": factory.BUSY}

    notes = lead(settings_of("strong", backend=["cpu-n1r1t1", TWO]), tmp_path, change)["notes"].splitlines()
    assert "possible leak: code alone predicts" in notes[0]
    assert notes[1] == "Of 6 runs, 1 diverged and 1 missing." and "busy" in notes[2]


@pytest.mark.parametrize(
    ("change", "verdict"), [(lambda run: DIVERGED, verdicts.FAILED), (lambda run: None, verdicts.MISSING)]
)
def test_a_study_without_a_time_has_failed_or_is_missing(
    change: factory.Change, verdict: str, tmp_path: Path
) -> None:
    assert lead(settings_of("batch", batch=[16, 64]), tmp_path, change)["verdict"] == verdict


def test_times_of_two_codes_are_not_compared(tmp_path: Path) -> None:
    settings = settings_of("weak", [{"batch": 64}, {"batch": 128, "backend": TWO}])
    config = analysis.of(settings)
    code = factory.record(config, config.runs[0])["code"]
    other = {"code": {**code, "imported": "nameHASH"}}
    answer = lead(settings, tmp_path, lambda run: other if run.seed else {})
    assert answer["verdict"] == verdicts.NOT_COMPARABLE and answer["why"].startswith("other code")


@pytest.mark.parametrize(("batch", "message"), [(2, "faster from 4 ms"), (8, ""), (1, "faster from 2 ms")])
def test_a_layout_is_faster_from_the_work_on_above_which_it_surely_is(
    batch: int, message: str, tmp_path: Path
) -> None:
    """One core takes 2 ms for each sample, and two ranks half of that; at one batch the times are not comparable."""

    def change(run: Run) -> dict[str, Any]:
        other = {"packages": {"torch": "2.13"}} if run.ranks == 2 and run.batch == batch else {}
        return {"step_s": 0.002 * run.batch / run.ranks, **other}

    notes = lead(
        settings_of("break-even", backend=["cpu-n1r1t1", TWO], batch=[1, 2, 4, 8]), tmp_path, change
    )["notes"]
    assert message in notes if message else "faster" not in str(notes)


def test_the_cheapest_simulator_at_each_error_is_named(tmp_path: Path) -> None:
    case = CASES["convergence"]
    notes = lead(case.settings, tmp_path, case.step_s)["notes"]
    assert [note.split()[-1] for note in notes.splitlines() if "cheapest" in note] == ["exact."] * 3


def test_graphs_of_some_runs_and_not_of_others_are_noted() -> None:
    graphs, kernels, core = (
        {"gpu_hours": hours, "replayed": steps} for hours, steps in ((1.0, 5), (1.0, 0), (None, None))
    )
    config, study = factory.default_config(), Study("s", "strong", "?", ())
    both, one = (
        [*_cautions(study, [], runs, config, {})] for runs in ([graphs, kernels], [graphs, core, graphs])
    )
    assert len(both) == 1 and one == []
