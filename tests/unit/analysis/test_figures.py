"""Figures: all of the catalogue, without dates, honest about what is missing; and the words of answers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from ketscale.analysis import catalogue, report
from ketscale.analysis.drawing import plots, style
from ketscale.grid import Run
from tests import records_factory as factory
from tests.record_maker import beside

FORMATS = ("svg", "png", "narrow.svg", "csv")
CONFIG = factory.three_seeds_config(title="A <b>bold</b> & risky title", partial=True)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default study with a missing, a busy and a diverged point, and one that timed out, drawn and reported."""
    root = tmp_path_factory.mktemp("study")

    def change(run: Run) -> dict[str, object] | None:
        if run.simulator == "qiskit" and run.seed == 2:
            return None
        if run.layout == "mpi-n1r1t1" and run.protocol == "timing":
            return {"quiet": beside(others_share=0.4)}
        if run.simulator == "default.qubit-loop-shift" and run.protocol == "timing":
            return {"status": "timed_out", "reason": "its time was over"}
        if run.size == "q4-l6" and run.seed == 1:
            return {"status": "diverged", "reason": "loss is <NaN> at step 7"}
        return {}

    factory.write_all(CONFIG, root, change)
    report.build(CONFIG, root)
    return root


def test_every_figure_has_its_files_and_there_is_no_other(results: Path) -> None:
    names = [figure.name for figure in catalogue.figures_of(CONFIG) if figure.name != "map"]
    expected = {f"{name}.{kind}" for name in names for kind in FORMATS}
    assert {path.name for path in (results / "figures").iterdir()} == expected


def test_a_figure_is_the_same_file_when_drawn_again(results: Path) -> None:
    again = factory.collect(CONFIG, results).figures["depth"]
    assert {kind: (results / f"figures/depth.{kind}").read_bytes() for kind in FORMATS} == again


def test_the_shares_of_a_step_add_up(results: Path) -> None:
    spans = pd.read_csv(results / "figures/spans.csv")
    total = spans.groupby(["batch", "simulator", "layout", "features"])["share"].sum()
    assert total.tolist() == pytest.approx([1.0] * len(total))
    assert not spans["span"].str.endswith(".total").any()


def test_a_study_without_any_run_has_a_page_and_no_figure(tmp_path: Path) -> None:
    config = factory.small_config({"weak": CONFIG.given["studies"]["weak"]}, partial=True)
    report.build(config, tmp_path)
    assert "15 runs: 15 missing" in (tmp_path / "report.html").read_text()
    # An output of the workflow.
    assert list((tmp_path / "figures").iterdir()) == []


def test_lines_have_intervals_and_are_hollow_where_the_machine_was_busy() -> None:
    figure, axes = plt.subplots()
    points = pd.DataFrame(
        {"line": ["b", "a", "a"], "x": [1, 10, 8], "y": [1.0, 3.0, 2.0], "low": [float("nan"), 2.5, 1.5], "high": [1.0, 4.0, 2.5],
         "hollow": [False, True, False]}
    )  # fmt: skip
    ends = plots.curves(axes, points, "x", "y", ("low", "high"))
    assert [(height, name) for height, name, _ in ends] == [(3.0, "a"), (1.0, "b")]
    # 8 comes before 10.
    assert [list(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) > 1] == [[8, 10]]
    faces = {line.get_xdata()[0]: line.get_mfc() for line in axes.lines if line.get_marker() == "o"}
    assert faces[10] == "white" and faces[8] == style.colour(0)
    plt.close(figure)


def test_ticks_of_durations_are_two_or_more_and_never_touch() -> None:
    for width, low, high in [(2.0, 2e-4, 9e3), (4.0, 8, 9000), (2.0, 1.1e-3, 1.9e-3), (9.0, 0.9, 70)]:
        figure, axes = plt.subplots(figsize=(width, 2))
        axes.set_xlim(low, high)
        style.log_seconds(axes.xaxis)
        figure.canvas.draw()
        labels = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
        plt.close(figure)
        assert len(labels) >= 2 and all(left.x1 < right.x0 for left, right in pairwise(labels))


def test_points_that_differ_in_more_than_the_swept_axis_are_on_lines_of_their_own(tmp_path: Path) -> None:
    shared = factory.point(batch=[16, 64], layers=[1, 3], qubits=[2, 4], seed=0)
    config = factory.small_config(
        {
            "sweep": {"kind": "batch", "question": "?", "axes": shared},
            "deeper": {"kind": "depth", "question": "?", "axes": shared},
        }
    )
    factory.write_all(config, tmp_path)
    factory.draw(config, tmp_path)
    for name, axis in (("sweep", "batch"), ("deeper", "layers")):
        drawn = pd.read_csv(tmp_path / f"figures/{name}.csv")
        assert (drawn.groupby("line")[axis].nunique() == 2).all()
        assert (drawn.groupby("line").size() == 2).all()
        assert drawn["line"].nunique() == 4
