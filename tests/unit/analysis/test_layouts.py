"""The map of layouts: cells with known winners, by how much, and how sure."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from ketscale.analysis import verdicts
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.overviews import layouts
from ketscale.analysis.overviews.layouts import RATIO
from ketscale.grid import Run
from tests import records_factory as factory
from tests.record_maker import beside

LAYOUTS = ("cpu-n1r1t1", "cpu-n1r1t2", "mpi-n1r2t1")
AXES = factory.point(qubits=[2, 4, 6, 8], batch=[64, 256], simulator="fused", backend=list(LAYOUTS))
STUDIES = {"begins": {"kind": "break-even", "question": "Which?", "axes": AXES}}
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


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """Doctored records; those of batch 256 are of a busy machine."""
    config, results = factory.small_config(STUDIES, partial=True), tmp_path_factory.mktemp("map")

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


def test_the_order_of_studies_that_share_points_changes_nothing(inputs: Inputs) -> None:
    other = inputs.scaling.assign(study="another", verdict=verdicts.NO_GAIN)
    orders = (inputs.scaling, other), (other, inputs.scaling)
    one, two = (layouts.table(replace(inputs, scaling=pd.concat(order))) for order in orders)
    pd.testing.assert_frame_equal(one, two)
