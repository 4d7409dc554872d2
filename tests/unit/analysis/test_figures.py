"""Figures: honest about what is missing, and which points are on a line."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from ketscale.analysis import report
from ketscale.analysis.drawing import plots, style
from tests import records_factory as factory


def test_a_study_without_any_run_has_a_page_and_no_figure(tmp_path: Path) -> None:
    config = factory.small_config({"weak": factory.default_study()["studies"]["weak"]}, partial=True)
    report.build(config, tmp_path)
    assert "15 runs: 15 missing" in (tmp_path / "report.html").read_text()
    # An output of the workflow.
    assert list((tmp_path / "figures").iterdir()) == []


def test_figures_for_papers_have_two_widths_and_no_font_of_type_3(tmp_path: Path) -> None:
    axes = factory.point(backend=["cpu-n1r1t1", "mpi-n1r2t1"], seed=[0])
    config = factory.small_config({"strong": {"kind": "strong", "question": "?", "axes": axes}})
    factory.write_all(config, tmp_path)
    report.papers(config, tmp_path)
    for ending, width in style.WIDTHS.items():
        text = (tmp_path / f"paper/spans.{ending}svg").read_text()
        found = float(text.split('width="')[1].split("pt")[0]) / 72
        assert width <= found < width + 0.2
        # A paper has the note as metadata alone.
        assert "1 seed per point" not in text.split("</metadata>")[1]
        fonts = (tmp_path / f"paper/spans.{ending}pdf").read_bytes()
        assert b"/Type3" not in fonts and b"/FontFile2" in fonts
    assert not (tmp_path / "report.html").exists()
    report.build(config, tmp_path)
    assert "1 seed per point" in (tmp_path / "figures/spans.svg").read_text().split("</metadata>")[1]


def test_lines_have_intervals_and_are_hollow_where_the_machine_was_busy() -> None:
    figure, axes = plt.subplots()
    points = pd.DataFrame(
        {"line": ["b", "a", "a"], "x": [1, 10, 8], "y": [1.0, 2.0, 3.0], "low": [float("nan"), 1.5, 2.5], "high": [1.0, 2.5, 4.0],
         "hollow": [False, True, False]}
    )  # fmt: skip
    ends = plots.curves(axes, points, "x", "y", ("low", "high"))
    assert [(height, name) for height, name, _ in ends] == [(2.0, "a"), (1.0, "b")]
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
