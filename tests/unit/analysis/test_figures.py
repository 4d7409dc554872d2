"""Figures: all of the catalogue, without dates, honest about what is missing; and the words of answers."""

from __future__ import annotations

import re
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from ketscale.analysis import catalogue, report
from ketscale.analysis.drawing import plots, style
from ketscale.analysis.kinds import accuracy
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.problems.registry import FAMILIES
from tests import records_factory as factory
from tests.record_maker import beside

FORMATS = ("svg", "png", "narrow.svg", "csv")
CONFIG = factory.three_seeds_config(title="A <b>bold</b> & risky title", partial=True)


def draw(config: Config, results: Path) -> None:
    """Tables, figures and the page."""
    report.build(config, results)


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
    draw(CONFIG, root)
    return root


def test_every_figure_has_its_files_and_there_is_no_other(results: Path) -> None:
    names = [figure.name for figure in catalogue.figures_of(CONFIG) if figure.name != "map"]
    expected = {f"{name}.{kind}" for name in names for kind in FORMATS}
    assert {path.name for path in (results / "figures").iterdir()} == expected


def test_every_study_has_its_figure_and_the_overviews_follow_the_kinds() -> None:
    weak = factory.small_config({"weak": CONFIG.given["studies"]["weak"]})
    assert [figure.name for figure in catalogue.figures_of(weak)] == ["weak", "spans"]
    studies = [study.name for study in CONFIG.studies if study.kind != "parity"]
    names = [figure.name for figure in catalogue.figures_of(CONFIG)]
    assert names == [*studies, "map", "spans"]


def test_no_study_has_the_name_of_an_overview() -> None:
    with pytest.raises(UserError, match=r"studies\.spans: spans is the name of a figure of all studies"):
        factory.small_config({"spans": CONFIG.given["studies"]["weak"]})


def test_a_figure_is_the_same_file_when_drawn_again(results: Path) -> None:
    again = factory.collect(CONFIG, results).figures["depth"]
    assert {kind: (results / f"figures/depth.{kind}").read_bytes() for kind in FORMATS} == again


def test_figures_for_papers_have_two_widths_their_text_and_no_font_of_type_3(
    results: Path, tmp_path: Path
) -> None:
    shutil.copytree(results / "runs", tmp_path / "runs")
    shutil.copytree(results / "features", tmp_path / "features")
    # Two studies are enough; the figure of spans is among theirs.
    some = {name: CONFIG.given["studies"][name] for name in ("strong", "depth")}
    report.papers(factory.small_config(some, partial=True), tmp_path)
    made = {path.name for path in (tmp_path / "paper").iterdir()}
    assert {"spans.svg", "spans.pdf", "spans.narrow.svg", "spans.narrow.pdf"} <= made
    assert not (tmp_path / "report.html").exists()
    for ending, width in style.WIDTHS.items():
        text = (tmp_path / f"paper/spans.{ending}svg").read_text()
        found = float(re.search(r'width="([\d.]+)pt"', text)[1]) / 72  # type: ignore[index]
        assert width <= found < width + 0.2
        # Text is text; where it was measured is in the metadata alone.
        assert re.search(r"<text[^>]*>share of a sampled step</text>", text)
        assert re.search("<dc:description>.*Synthetic CPU.*aaaaaaaaaa", text) and text.count("Synthetic") == 1
        fonts = (tmp_path / f"paper/spans.{ending}pdf").read_bytes()
        assert b"/Type3" not in fonts and b"/FontFile2" in fonts
    shown = (results / "figures/spans.svg").read_text()
    assert shown.count("Synthetic") == 2


def test_the_shares_of_a_step_add_up(results: Path) -> None:
    spans = pd.read_csv(results / "figures/spans.csv")
    total = spans.groupby(["batch", "simulator", "layout", "features"])["share"].sum()
    assert total.tolist() == pytest.approx([1.0] * len(total))
    assert not spans["span"].str.endswith(".total").any()


def test_a_study_without_any_run_has_a_page_and_no_figure(tmp_path: Path) -> None:
    config = factory.small_config({"weak": CONFIG.given["studies"]["weak"]}, partial=True)
    draw(config, tmp_path)
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


def test_panels_of_one_data_set_have_as_many_lines_and_the_same_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seven lines are too many for a panel. Each is a hundredth as high as the one before; other data have their own limits."""
    monkeypatch.setattr(style, "footnote", lambda *_: None)
    monkeypatch.setattr(plots, "data", lambda name, _: name)
    rows = [
        {"workload": data, "line": f"line {n}", "study": "", "at": 10 ** (n // 4), "hollow": False,
         "value": 100.0**-n, "low": 0.5 * 100.0**-n, "high": 2 * 100.0**-n}
        for data, lines in (("many", 7), ("few", 2)) for n in range(lines)
    ]  # fmt: skip
    figure, _ = plots.lines(
        pd.DataFrame(rows), SimpleNamespace(config=None), "at", "value", ("low", "high"),
        lambda axes, part: axes.set(xlabel="at", yscale="log", ylim=(None, part["high"].max())),
    )  # fmt: skip
    few, first, second = figure.axes
    titles = ["".join(axes.get_title(side) for side in ("left", "center")) for axes in figure.axes]
    assert titles == ["few", "many (1 of 2)", "many (2 of 2)"]
    assert [len(axes.texts) for axes in figure.axes] == [2, 4, 3]
    assert first.get_xlim() == second.get_xlim() and first.get_ylim() == second.get_ylim()
    low, high = first.get_ylim()
    assert low <= 0.5 * 100.0**-6 and high == 2 and few.get_ylim()[0] > 1e-3
    plt.close(figure)


def test_a_seed_that_has_stopped_ends_there_and_epochs_are_whole() -> None:
    rows = [
        {"line": "a", "seed": seed, "epoch": epoch, "validation": 0.5}
        for seed in (0, 1)
        for epoch in range(1 + 2 * seed)
    ]
    _, (axes,) = style.panels(1)
    accuracy._learning(axes, pd.Series(["a"]), FAMILIES["images"].headline, pd.DataFrame(rows))
    lines = [line.get_xdata().tolist() for line in axes.lines if line.get_marker() != "o"]
    ends = [line.get_xdata().tolist() for line in axes.lines if line.get_marker() == "o"]
    assert lines == [[0], [0, 1, 2]] and ends == [[0], [2]], "a single epoch is a point"
    assert all(tick == round(tick) for tick in axes.get_xticks())
    plt.close()


@pytest.mark.parametrize(
    "low, high", [(2e-4, 9e3), (8, 9000), (1.1e-3, 1.9e-3), (0.9, 70), (3e-3, 2e-2), (50, 61)]
)
@pytest.mark.parametrize("width", [2.0, 4.0, 9.0])
def test_ticks_of_durations_are_two_or_more_and_never_touch(low: float, high: float, width: float) -> None:
    figure, axes = plt.subplots(figsize=(width, 2))
    axes.set_xlim(low, high)
    style.log_seconds(axes.xaxis)
    figure.canvas.draw()
    labels = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
    plt.close(figure)
    assert len(labels) >= 2
    assert all(left.x1 < right.x0 for left, right in pairwise(labels))


def test_points_that_differ_in_more_than_the_swept_axis_are_on_lines_of_their_own(tmp_path: Path) -> None:
    shared = factory.point(batch=[16, 64], layers=[1, 3], qubits=[2, 4], seed=0)
    config = factory.small_config(
        {
            "sweep": {"kind": "batch", "question": "?", "axes": shared},
            "deeper": {"kind": "depth", "question": "?", "axes": shared},
        }
    )
    factory.write_all(config, tmp_path)
    draw(config, tmp_path)
    for name, axis in (("sweep", "batch"), ("deeper", "layers")):
        drawn = pd.read_csv(tmp_path / f"figures/{name}.csv")
        assert (drawn.groupby("line")[axis].nunique() == 2).all()
        assert (drawn.groupby("line").size() == 2).all()
        assert drawn["line"].nunique() == 4
