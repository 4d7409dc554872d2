"""The map of layouts: cells with known winners, by how much, and how sure."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from scipy.stats import t

from ketscale.analysis import catalogue
from ketscale.analysis.overviews import layouts
from ketscale.analysis.overviews.layouts import RATIO
from ketscale.grid import POINT, Run
from tests import records_factory as factory

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
def found(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The map of doctored records; those of batch 256 are of a busy machine."""
    config, results = factory.small_config(STUDIES, partial=True), tmp_path_factory.mktemp("map")
    quiet = factory.record(config, config.runs[0])["quiet"]

    def change(run: Run) -> dict[str, object]:
        gain = GAINS.get((run.size, run.layout), (1.0, 1.0, 1.0))[run.seed]
        busy = run.batch == 256 and run.layout != LAYOUTS[0]
        return {"step_s": 0.01 * (1 + run.seed) / gain, "quiet": {**quiet, "quiet": not busy}}

    factory.write_all(config, results, change)
    inputs = factory.collect(config, results).inputs
    figure, drawn = layouts.MAP.draw(inputs)
    words = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert len(words) == 8 and sum("(busy)" in text for text in words) == 4
    assert catalogue.figures(config).count("map") == 1
    return drawn.set_index(["size", "batch"])


def test_the_winner_of_each_cell(found: pd.DataFrame) -> None:
    assert found.xs(64, level="batch")["fastest"].to_dict() == {
        "q2-l3": "one core",
        "q4-l3": layouts.UNSURE,
        "q6-l3": "2 MPI ranks",
        "q8-l3": "2 threads",
    }
    assert found.xs(64, level="batch")["layout"].to_dict() == {
        "q2-l3": "cpu-n1r1t2",
        "q4-l3": "mpi-n1r2t1",
        "q6-l3": "mpi-n1r2t1",
        "q8-l3": "cpu-n1r1t2",
    }


def test_a_busy_machine_has_no_winner(found: pd.DataFrame) -> None:
    assert set(found.xs(256, level="batch")["fastest"]) == {layouts.UNSURE}


def test_by_how_much_with_an_interval_widened_for_two_layouts(found: pd.DataFrame) -> None:
    cell = found.loc[("q6-l3", 64)]
    logs = [math.log(gain) for gain in GAINS["q6-l3", "mpi-n1r2t1"]]
    centre = sum(logs) / 3
    spread = math.sqrt(sum((value - centre) ** 2 for value in logs) / 2)
    half = t.ppf(1 - 0.05 / 2 / 2, 2) * spread / math.sqrt(3)
    assert cell["compared"] == 2 and cell["n"] == 3
    assert cell[RATIO] == pytest.approx(math.exp(centre))
    assert [cell["low"], cell["high"]] == pytest.approx([math.exp(centre - half), math.exp(centre + half)])
    assert cell["alone_s"] == pytest.approx(0.02)


def cell(*rows: tuple[str, float, float | None, float | None, int, str]) -> dict[str, Any]:
    """The cell of these layouts: of each the speedup with its interval, its seeds, and its flag."""
    names = ["layout", RATIO, f"{RATIO}_low", f"{RATIO}_high", f"{RATIO}_n", "flag"]
    group = pd.DataFrame(rows, columns=names).assign(workers=2, same_reference="cpu-n1r1t1")
    return layouts._cell(group)


def test_one_worker_is_the_fastest_only_if_no_layout_may_be_faster() -> None:
    slow = ("cpu-n1r1t2", 0.95, 0.94, 0.96, 3, "")
    assert cell(slow)["fastest"] == "one core"
    assert cell(slow, ("mpi-n1r2t1", 0.94, 0.3, 2.9, 3, ""))["fastest"] == layouts.UNSURE
    assert cell(slow, ("mpi-n1r2t1", 3.0, 2.9, 3.1, 3, "busy"))["fastest"] == layouts.UNSURE


def test_a_layout_of_one_seed_hides_no_winner_and_widens_nothing() -> None:
    found = cell(("cpu-n1r1t2", 1.8, 1.7, 1.9, 3, ""), ("mpi-n1r2t1", 1.82, None, None, 1, ""))
    assert (found["fastest"], found["compared"]) == ("2 threads", 1)
    assert [found["low"], found["high"]] == [1.7, 1.9]


def test_cores_and_gpus_have_cells_of_their_own(found: pd.DataFrame) -> None:
    usual = {
        **dict.fromkeys([*POINT, *layouts.CELL], "a"),
        "qubits": 4.0,
        "layers": 3.0,
        "batch": 64,
        "kind": "strong",
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
    config = factory.small_config({"strong": factory.default_study()["studies"]["strong"]}, partial=True)
    told = layouts.table(SimpleNamespace(scaling=scaling, config=config))  # type: ignore[arg-type]
    assert not told.duplicated(layouts.CELL).any()
    assert told.set_index("device")["fastest"].to_dict() == {"core": "2 MPI ranks", "GPU": "2 GPUs (DDP)"}


def test_the_words_of_a_cell_are_within_it(tmp_path: Path) -> None:
    given = {"begins": {**STUDIES["begins"], "axes": {**AXES, "batch": [1, 8, 64, 256]}}}
    config = factory.small_config(given, partial=True)
    factory.write_all(config, tmp_path)
    figure, _ = layouts.MAP.draw(factory.collect(config, tmp_path).inputs)
    figure.canvas.draw()
    for axes in figure.axes:
        boxes = [patch.get_window_extent() for patch in axes.patches]
        for text, box in zip(axes.texts, boxes, strict=True):
            words = text.get_window_extent()
            assert box.x0 <= words.x0 and words.x1 <= box.x1 and box.y0 <= words.y0 and words.y1 <= box.y1


def test_a_speedup_over_another_batch_is_not_on_the_map(tmp_path: Path) -> None:
    given = factory.default_study()["studies"]["weak"]
    config = factory.small_config({"weak": given}, partial=True)
    factory.write_all(config, tmp_path)
    assert layouts.table(factory.collect(config, tmp_path).inputs).empty
    assert "map" not in catalogue.figures(config)
