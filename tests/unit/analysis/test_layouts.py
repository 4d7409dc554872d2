"""The map of layouts: cells with known winners, by how much, and how sure."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from ketscale.analysis import verdicts
from ketscale.analysis.drawing import overviews, style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.grid import Run
from tests import records_factory as factory

LAYOUTS = ("cpu-n1r1t1", "cpu-n1r1t2", "mpi-n1r2t1", "gpu-n1r1t1", "ddp-n1r2t1")
AXES = factory.point(qubits=[2, 4, 6, 8], batch=[64, 256], simulator="fused", backend=list(LAYOUTS))
# By size and layout, the time on one core over the time there, for seeds 0, 1 and 2; two GPUs are five times as fast as one.
GAINS = {
    ("q2-l3", "cpu-n1r1t2"): (0.5, 0.51, 0.49), ("q2-l3", "mpi-n1r2t1"): (0.3, 0.31, 0.29),
    ("q4-l3", "cpu-n1r1t2"): (1.0, 1.1, 1.0), ("q4-l3", "mpi-n1r2t1"): (1.5, 1.0, 2.0),
    ("q6-l3", "cpu-n1r1t2"): (1.5, 1.52, 1.48), ("q6-l3", "mpi-n1r2t1"): (1.8, 1.9, 1.7),
    ("q8-l3", "cpu-n1r1t2"): (1.7, 1.72, 1.68), ("q8-l3", "mpi-n1r2t1"): (1.2, 1.22, 1.18),
}  # fmt: skip
CORES = {"q2-l3": "one core", "q4-l3": overviews.UNSURE, "q6-l3": "two MPI ranks", "q8-l3": "two threads"}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """Doctored records; those of batch 256 on several cores are of a busy machine."""
    study = {"begins": {"kind": "break-even", "question": "?", "axes": AXES}}
    config, results = factory.small_config(study, partial=True), tmp_path_factory.mktemp("map")

    def change(run: Run) -> dict[str, object]:
        gain = 5.0 if run.backend == "ddp" else GAINS.get((run.size, run.layout), (1.0, 1.0, 1.0))[run.seed]
        busy = run.batch == 256 and run.layout in LAYOUTS[1:3]
        return {"step_s": 0.01 * (1 + run.seed) / gain, **({"quiet": factory.BUSY} if busy else {})}

    factory.write_all(config, results, change)
    tables = {
        name: frame for name, frame in factory.collect(config, results).tables.items() if name != "answers"
    }
    style.theme()
    return Inputs(config, results, **tables)


def fastest(inputs: Inputs) -> dict[tuple[str, str, int], str]:
    """The winner of each cell: by the device, the size and the batch."""
    figure, cells = overviews.layouts(inputs) or (None, pd.DataFrame())
    style.plt.close(figure)
    found = zip(cells["layout"], cells["size"], cells["batch"], cells["fastest"], strict=True)
    return {("GPU" if "ddp" in layout else "core", size, batch): name for layout, size, batch, name in found}


def test_the_winner_of_each_cell_and_none_of_a_busy_machine(inputs: Inputs) -> None:
    """Cores are compared with cores, and GPUs with GPUs."""
    cores = {("core", size, 64): name for size, name in CORES.items()} | {
        ("core", size, 256): overviews.UNSURE for size in CORES
    }
    assert fastest(inputs) == cores | {
        ("GPU", size, batch): "two GPUs (DDP)" for size in CORES for batch in (64, 256)
    }


@pytest.mark.parametrize(("rows", "name", "effect"), [
    ([(0.8, verdicts.SLOWER)], "one core", 0.8),
    ([(0.8, verdicts.SLOWER), (0.94, verdicts.CANNOT_TELL)], overviews.UNSURE, 0.94),
    ([(0.8, verdicts.SLOWER), (0.99, verdicts.SAME)], overviews.UNSURE, 0.99),
    # What one seed says hides no winner.
    ([(1.8, verdicts.FASTER), (1.9, verdicts.CANNOT_TELL)], "two threads", 1.8),
    ([(1.8, verdicts.FASTER), (1.9, verdicts.FASTER)], "two MPI ranks", 1.9),
])  # fmt: skip
def test_one_worker_is_the_fastest_only_if_no_layout_may_be_faster(
    rows: list[tuple[float, str]], name: str, effect: float
) -> None:
    made = [
        {"layout": layout, "effect": ratio, "verdict": verdict}
        for layout, (ratio, verdict) in zip(LAYOUTS[1:], rows, strict=False)
    ]
    found = overviews._fastest(pd.DataFrame(made))
    assert (found["fastest"], found["effect"]) == (name, effect)


def test_the_order_of_studies_that_share_points_changes_nothing(inputs: Inputs) -> None:
    other = inputs.speed.assign(study="another", verdict=verdicts.CANNOT_TELL)
    one, two = (
        fastest(replace(inputs, speed=pd.concat(order)))
        for order in ((inputs.speed, other), (other, inputs.speed))
    )
    assert one == two and set(one.values()) == {overviews.UNSURE}


def test_a_row_or_a_single_cell_is_no_map(inputs: Inputs) -> None:
    assert overviews.layouts(replace(inputs, speed=inputs.speed[inputs.speed["batch"] == 64])) is None
