"""The page is self-contained and escaped, its links lead somewhere, the file to send has all of it, and figures are honest."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import yaml
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex

from ketscale.analysis import figures, report
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.columns import RUNS
from ketscale.analysis.drawing import style
from ketscale.analysis.report.page import Pictures, table_of
from ketscale.grid import Run
from ketscale.words import duration
from tests import records_factory as factory

STUDIES = factory.default_study()["studies"]
CONFIG = factory.small_config(STUDIES, title="A <b>bold</b> & risky title", partial=True)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report, and the file to send, of a missing, a busy and a diverged point, and of one that timed out."""
    root = tmp_path_factory.mktemp("study")

    def change(run: Run) -> dict[str, object] | None:
        timed = run.protocol == "timing"
        if timed and run.layout == "mpi-n1r1t1":
            return {"quiet": factory.BUSY}
        if timed and run.simulator == "default.qubit-loop-shift":
            return {"status": "timed_out", "reason": "its time was over"}
        diverged = {"status": "diverged", "reason": "loss is <NaN> at step 7"}
        return None if run.simulator == "qiskit" else diverged if (run.size, run.seed) == ("q4-l6", 1) else {}

    factory.write_all(CONFIG, root, change)
    report.build(CONFIG, root)
    return root


class Page(HTMLParser):
    """The ids of a page, what it loads, and its links to files."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.loaded: list[str] = []
        links: list[str] = []
        self.links = links
        self.feed(text)
        self.files = {link for link in links if not link.startswith("#")}
        assert {link[1:] for link in links if link.startswith("#")} <= {*self.ids}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        arguments = {name: value or "" for name, value in attrs}
        self.ids += [arguments["id"]] if "id" in arguments else []
        self.links += [arguments["href"]] if tag == "a" else []
        self.loaded += [
            arguments[name] for name in ("src", "srcset", "data", "poster", "action") if name in arguments
        ]
        self.loaded += [arguments["href"]] if tag == "link" else []


def test_the_page_loads_nothing_escapes_all_text_and_its_links_lead_somewhere(results: Path) -> None:
    page = (results / "report.html").read_text()
    result = Page(page)
    assert result.loaded and all(link.startswith("data:") for link in result.loaded)
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest", page)
    assert len(result.ids) == len(set(result.ids))
    assert {f"figures/strong.{kind}" for kind in ("svg", "png", "csv")} <= result.files
    assert "tables/runs.csv" in result.files and any(link.startswith("runs/") for link in result.files)
    assert all((results / link).exists() for link in result.files)
    runs = page.split('id="runs"')[1].split("</table>")[0]
    assert runs.index("not run yet") < runs.index("completed"), "what is missing comes first"
    assert "A &lt;b&gt;bold&lt;/b&gt; &amp; risky title" in page
    assert "loss is <NaN>" not in page and "loss is &lt;NaN&gt; at step 7" in page
    assert "<b>" not in page


def test_every_study_has_its_answer_and_its_verdict_which_the_page_explains(results: Path) -> None:
    page, answers = (results / "report.html").read_text(), pd.read_csv(results / "tables/answers.csv")
    assert answers["study"].sort_values().tolist() == sorted(STUDIES)
    rows = re.findall(r'data-head="answer">(.*?)</td><td.*?href="#verdict-.*?">(.*?)</a>', page)
    assert {verdict for _, verdict in rows} <= {*re.findall(r'<dt id="verdict-[\w-]+">(.*?)</dt>', page)}
    assert [verdict for _, verdict in rows] == answers["verdict"].tolist()


def test_times_are_sorted_by_their_value(results: Path) -> None:
    steps = re.findall(r'data-head="step" data-value="(.*?)">(.*?)<', (results / "report.html").read_text())
    result = {words.replace("\u00a0", " "): float(value) for value, words in steps}
    assert result["750 µs"] == pytest.approx(7.5e-4) and result["2 ms"] == pytest.approx(2e-3)


def test_rows_and_figures_without_room_are_in_their_files(results: Path) -> None:
    runs = Analysed.read(CONFIG, results).tables["runs"]
    table = table_of("runs", runs, RUNS, CONFIG, 7)
    assert (len(table.rows), table.size, table.file) == (7, len(runs), "tables/runs.csv")
    picture = Pictures(results, remaining=9).of("strong", figures.figures_of(CONFIG)[0])
    assert picture and picture["drawing"] == "figures/strong.svg"


def test_the_config_of_the_page_makes_the_same_runs(results: Path) -> None:
    text = (results / report.PAGE).read_text().partition('<pre class="whole" tabindex="0">')[2]
    repeat = factory.analysis.of(yaml.safe_load(unescape(text.partition("</pre>")[0])))
    assert set(repeat.runs) == set(CONFIG.runs) and repeat.text == CONFIG.text


def test_every_figure_has_its_files_and_there_is_no_other(results: Path) -> None:
    names = [figure.name for figure in figures.figures_of(CONFIG)]
    expected = {f"{name}.{kind}" for name in names for kind in ("svg", "png", "csv")}
    assert {path.name for path in (results / "figures").iterdir()} == expected


def test_the_shares_of_a_step_add_up(results: Path) -> None:
    spans = pd.read_csv(results / "figures/spans.csv").set_index("simulator")
    shares = spans.loc[:, "data":"outside any span"]  # type: ignore[misc]
    assert shares.sum(axis=1).tolist() == pytest.approx([1.0] * len(spans))
    assert not [name for name in spans if name.endswith("total")]
    # A sampled step is as long as its spans, of which the circuit's are 0.25 and 0.3.
    assert shares["circuit.forward"].tolist() == pytest.approx([0.25] * len(spans))


def test_a_study_without_any_run_has_a_page_and_no_figure(tmp_path: Path) -> None:
    config = factory.small_config({"weak": STUDIES["weak"]}, partial=True)
    report.build(config, tmp_path)
    assert "15 runs: 15 missing" in (tmp_path / "report.html").read_text()
    # An output of the workflow.
    assert list((tmp_path / "figures").iterdir()) == []


def test_figures_have_the_width_of_two_columns_and_say_what_they_show(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(figures, "MOST", 1)
    axes = factory.point(backend=["cpu-n1r1t1", "mpi-n1r2t1"], seed=[0])
    other = factory.point(simulator="lightning.qubit", batch=8, protocol="quality", seed=[0])
    studies = {
        "strong": {"kind": "strong", "question": "?", "axes": axes},
        "quality": {"kind": "accuracy", "question": "?", "axes": other},
    }
    config = factory.small_config(studies)
    factory.write_all(config, tmp_path)
    report.build(config, tmp_path)
    text = (tmp_path / "figures/spans.svg").read_text()
    assert float(text.split('width="')[1].split("pt")[0]) / 72 == pytest.approx(style.WIDTH)
    words = " ".join(re.findall(r"<text[^>]*>(.*?)</text>", text))
    assert "1 seed per point" in words and "Not drawn: 1 point more" in words
    # lightning.qubit is another study's, whose points are not drawn.
    assert "default.qubit: " in words and "lightning.qubit: " not in words


def test_lines_have_intervals_and_are_hollow_where_the_machine_was_busy() -> None:
    figure, axes = plt.subplots()
    points = pd.DataFrame(
        {"line": [*"baaa"], "x": [1, 10, 8, 9], "y": [1.0, 2.0, 3.0, 2.5], "low": [float("nan"), 1.5, 2.5, 2.0],
         "high": [1.0, 2.5, 4.0, 3.0], "hollow": [False, True, False, False]}
    )  # fmt: skip
    style.curves(axes, points, "x", "y", ("low", "high"))
    # 8 comes before 10, and a single point has no line.
    assert [list(line.get_xdata()) for line in axes.lines] == [[8, 9, 10]]
    a, b = (marks for marks in axes.collections if isinstance(marks, PathCollection))
    assert a.get_offsets()[:, 0].tolist() == [8, 9, 10] and b.get_offsets()[:, 0].tolist() == [1]
    assert [to_hex(face) for face in a.get_facecolors()] == [style.PALETTE[0], style.PALETTE[0], "#ffffff"]
    legend = axes.get_legend()
    assert legend and [words.get_text() for words in legend.get_texts()] == ["a", "b"]
    plt.close(figure)


def test_ticks_of_durations_are_two_or_more_and_never_touch() -> None:
    for width, low, high in [(2.0, 2e-4, 9e3), (4.0, 8, 9000), (2.0, 1.1e-3, 1.9e-3), (9.0, 0.9, 70)]:
        figure, axes = plt.subplots(figsize=(width, 2))
        axes.set_xlim(low, high)
        style.logarithmic(axes.xaxis, duration)
        figure.canvas.draw()
        labels = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
        plt.close(figure)
        assert len(labels) >= 2 and all(left.x1 < right.x0 for left, right in pairwise(labels))


def test_points_that_differ_in_more_than_the_swept_axis_are_on_lines_of_their_own(tmp_path: Path) -> None:
    axes = factory.point(batch=[16, 64], layers=[1, 3], qubits=[2, 4], seed=0)
    kinds = {"sweep": "batch", "deeper": "depth"}
    config = factory.small_config(
        {name: {"kind": kind, "question": "?", "axes": axes} for name, kind in kinds.items()}
    )
    factory.write_all(config, tmp_path)
    factory.draw(config, tmp_path)
    for name, axis in (("sweep", "batch"), ("deeper", "layers")):
        lines = pd.read_csv(tmp_path / f"figures/{name}.csv").groupby("line")
        assert len(lines) == 4 and (lines[axis].nunique() == 2).all() and (lines.size() == 2).all()
