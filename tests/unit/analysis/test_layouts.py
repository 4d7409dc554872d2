"""The map of layouts: cells with known winners, by how much, and how sure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from ketscale.analysis import catalogue, verdicts
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.overviews import layouts
from ketscale.analysis.overviews.layouts import RATIO
from ketscale.grid import POINT, Run
from tests import records_factory as factory
from tests.record_maker import beside

LAYOUTS = ("cpu-n1r1t1", "cpu-n1r1t2", "mpi-n1r2t1")
AXES = factory.point(qubits=[2, 4, 6, 8], batch=[64, 256], simulator="fused", backend=list(LAYOUTS))
STUDIES = {"begins": {"kind": "break-even", "question": "Which?", "axes": AXES}}
# A sweep has verdicts of its own on growth, and those of the map and of scaling.csv all the same.
SWEPT = {"begins": {"kind": "qubits", "question": "What does a larger circuit cost?", "axes": AXES}}
# By size and layout, the time on one core over the time there, for seeds 0, 1 and 2.
GAINS = {
    ("q2-l3", "cpu-n1r1t2"): (0.5, 0.51, 0.49),
    ("q2-l3", "mpi-n1r2t1"): (0.3, 0.31, 0.29),
    ("q4-l3", "cpu-n1r1t2"): (1.0, 1.1, 1.0),
    ("q4-l3", "mpi-n1r2t1"): (1.5, 1.0, 2.0),
    ("q6-l3", "cpu-n1r1t2"): (1.5, 1.52, 1.48),
    ("q6-l3", "mpi-n1r2t1"): (1.8, 1.9, 1.7),
    ("q8-l3", "cpu-n1r1t2"): (1.7, 1.72, 1.68),
    ("q8-l3", "mpi-n1r2t1"): (1.2, 1.22, 1.18),
}


@pytest.fixture(scope="module", params=[STUDIES, SWEPT], ids=["break-even", "qubits"])
def inputs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """Doctored records; those of batch 256 are of a busy machine."""
    config, results = factory.small_config(request.param, partial=True), tmp_path_factory.mktemp("map")

    def change(run: Run) -> dict[str, object]:
        gain = GAINS.get((run.size, run.layout), (1.0, 1.0, 1.0))[run.seed]
        busy = run.batch == 256 and run.layout != LAYOUTS[0]
        quiet = beside(others_share=0.4 if busy else 0.0)
        return {"step_s": 0.01 * (1 + run.seed) / gain, "quiet": quiet}

    factory.write_all(config, results, change)
    return factory.collect(config, results).inputs


@pytest.fixture(scope="module")
def found(inputs: Inputs) -> pd.DataFrame:
    """Their map."""
    style.theme()
    drawn = layouts.MAP.draw(inputs)
    assert drawn is not None
    words = [text.get_text() for axes in drawn[0].axes for text in axes.texts]
    assert len(words) == 8 and sum("(busy)" in text for text in words) == 4
    return drawn[1].set_index(["size", "batch"])


def test_the_winner_of_each_cell(found: pd.DataFrame) -> None:
    assert found.xs(64, level="batch")["fastest"].to_dict() == {
        "q2-l3": "one core",
        "q4-l3": layouts.UNSURE,
        "q6-l3": "two MPI ranks",
        "q8-l3": "two threads",
    }
    assert found.xs(64, level="batch")["layout"].to_dict() == {
        "q2-l3": "cpu-n1r1t2",
        "q4-l3": "mpi-n1r2t1",
        "q6-l3": "mpi-n1r2t1",
        "q8-l3": "cpu-n1r1t2",
    }


def test_a_busy_machine_has_no_winner(found: pd.DataFrame) -> None:
    assert set(found.xs(256, level="batch")["fastest"]) == {layouts.UNSURE}


def test_a_cell_quotes_the_comparison_of_its_study(found: pd.DataFrame) -> None:
    cell = found.loc[("q6-l3", 64)]
    assert cell[RATIO] == pytest.approx((1.8 * 1.9 * 1.7) ** (1 / 3)) and cell["n"] == 3
    assert 1 < cell[f"{RATIO}_low"] < 1.8 < cell[f"{RATIO}_high"]
    assert cell["same_step_s"] == pytest.approx(0.02)


def cell(*rows: tuple[str, float, str]) -> str:
    """The fastest in the cell of these layouts: of each the speedup, and the verdict of its study."""
    group = pd.DataFrame(rows, columns=["layout", RATIO, "verdict"])
    return str(layouts._cell(group.assign(workers=2, same_reference="cpu-n1r1t1"))["fastest"])


def test_one_worker_is_the_fastest_only_if_no_layout_may_be_faster() -> None:
    slow = ("cpu-n1r1t2", 0.95, verdicts.PAYS_NOT)
    assert cell(slow) == "one core"
    assert cell(slow, ("mpi-n1r2t1", 0.94, verdicts.NO_GAIN)) == layouts.UNSURE
    assert cell(slow, ("mpi-n1r2t1", 3.0, verdicts.DISTURBED)) == layouts.UNSURE


def test_a_layout_of_one_seed_hides_no_winner() -> None:
    sure = ("cpu-n1r1t2", 1.8, verdicts.PAYS)
    assert cell(sure, ("mpi-n1r2t1", 1.82, verdicts.FEW)) == "two threads"


def test_cores_and_gpus_have_cells_of_their_own(found: pd.DataFrame) -> None:
    usual = {
        **dict.fromkeys([*POINT, *layouts.CELL], "a"),
        "qubits": 4.0,
        "layers": 3.0,
        "kind": "strong",
        "study": "s",
        "same_step_s": 0.1,
        "verdict": verdicts.PAYS,
    }
    usual |= {"flag": "", "code": "c", f"{RATIO}_low": 1.5, f"{RATIO}_high": 1.7, f"{RATIO}_n": 3, "n": 3}
    one, two = {RATIO: 1.0, "workers": 1}, {RATIO: 1.6, "workers": 2}
    scaling = pd.DataFrame(
        [
            {**usual, **one, "layout": "cpu-n1r1t1", "step_s": 0.1, "same_reference": "cpu-n1r1t1"},
            {**usual, **two, "layout": "mpi-n1r2t1", "step_s": 0.06, "same_reference": "cpu-n1r1t1"},
            {**usual, **one, "layout": "gpu-n1r1t1", "step_s": 0.01, "same_reference": "gpu-n1r1t1"},
            {**usual, **two, "layout": "ddp-n1r2t1", "step_s": 0.006, "same_reference": "gpu-n1r1t1"},
        ]
    )
    scaling["backend"] = scaling["layout"]  # so that they are points of their own
    # A map has several sizes and batches.
    scaling = pd.concat([scaling.assign(size=size, batch=batch) for size in "ab" for batch in (64, 256)])
    config = factory.small_config({"strong": factory.default_study()["studies"]["strong"]}, partial=True)
    told = layouts.table(SimpleNamespace(scaling=scaling, config=config))  # type: ignore[arg-type]
    assert not told.duplicated(layouts.CELL).any()
    assert told.drop_duplicates("device").set_index("device")["fastest"].to_dict() == {
        "core": "two MPI ranks",
        "GPU": "two GPUs (DDP)",
    }


def test_the_order_of_studies_that_share_points_changes_nothing(inputs: Inputs) -> None:
    other = inputs.scaling.assign(study="another", verdict=verdicts.NO_GAIN)
    orders = (inputs.scaling, other), (other, inputs.scaling)
    one, two = (layouts.table(replace(inputs, scaling=pd.concat(order))) for order in orders)
    pd.testing.assert_frame_equal(one, two)


@pytest.mark.parametrize("column", ["size", "batch"])
def test_a_single_row_or_column_is_no_map(inputs: Inputs, column: str) -> None:
    one = inputs.scaling[inputs.scaling[column] == inputs.scaling[column].iloc[0]]
    assert layouts.MAP.draw(replace(inputs, scaling=one)) is None


def test_a_speedup_over_another_batch_is_not_on_the_map(tmp_path: Path) -> None:
    given = factory.default_study()["studies"]["weak"]
    config = factory.small_config({"weak": given}, partial=True)
    factory.write_all(config, tmp_path)
    assert layouts.table(factory.collect(config, tmp_path).inputs).empty
    assert layouts.MAP not in catalogue.overviews(config)
