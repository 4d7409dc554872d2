"""Figures and the page: all of the catalogue, without dates, small, self-contained, honest about what is missing."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from ketscale.analysis import answers, catalogue, figures, quality, report, tables
from ketscale.analysis.figures import speed
from ketscale.errors import UserError
from tests.unit import records_factory as factory

CONFIG = {**factory.three_seeds_config(), "title": "A <b>bold</b> & risky title"}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default study with a missing, a busy and a diverged point, drawn and reported."""
    root = tmp_path_factory.mktemp("study")

    def change(run: factory.grid.Run) -> dict[str, object] | None:
        if run.simulator == "qiskit" and run.seed == 2:
            return None
        if run.place == "mpi-n1r1t1" and run.protocol == "timing":
            return {"quiet": {"quiet": False, "others_share": 0.4, "steal_share": 0.0}}
        if run.layers == 6 and run.seed == 1:
            return {"status": "diverged", "reason": "loss is <NaN> at step 7"}
        return {}

    factory.write_all(CONFIG, root, change)
    tables.collect(CONFIG, root, root / "tables", partial=True)
    figures.draw(CONFIG, root / "tables", root / "figures")
    report.build(CONFIG, root / "tables", root / "figures", root / "report.html")
    return root


@pytest.fixture(scope="module")
def page(results: Path) -> str:
    """The report's HTML."""
    return (results / "report.html").read_text()


def test_every_figure_of_the_catalogue_has_its_four_files_and_no_other(results: Path) -> None:
    expected = {f"{name}.{kind}" for name in catalogue.figures(CONFIG) for kind in catalogue.FORMATS}
    assert {path.name for path in (results / "figures").iterdir()} == expected


def test_the_catalogue_follows_the_kinds_of_studies() -> None:
    assert catalogue.figures({"studies": {"a": {"kind": "weak"}}}) == ("strategies", "spans", "weak")
    assert "qubits" not in catalogue.figures(CONFIG)
    assert set(catalogue.FIGURES) == set(figures.DRAWERS)


def test_a_figure_is_the_same_file_when_drawn_again(results: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(catalogue, "figures", lambda config: ("depth",))
    figures.draw(CONFIG, results / "tables", tmp_path)
    for kind in catalogue.FORMATS:
        assert (tmp_path / f"depth.{kind}").read_bytes() == (results / f"figures/depth.{kind}").read_bytes()


def test_each_figure_has_a_caption(results: Path) -> None:
    assert all(report.caption(name) for name in (*catalogue.FIGURES, *catalogue.TABLES))


def test_fits_leave_out_what_is_flagged(results: Path) -> None:
    depth = pd.read_csv(results / "figures/depth.csv")
    assert depth["intercept_s"].notna().all()
    assert depth.set_index("layers")["n"].to_dict() == {1: 3, 3: 3, 6: 2}


def test_the_shares_of_a_step_add_up(results: Path) -> None:
    spans = pd.read_csv(results / "figures/spans.csv")
    total = spans.groupby(["batch", "simulator", "place", "features"])["share"].sum()
    assert total.tolist() == pytest.approx([1.0] * len(total))
    assert not spans["span"].str.endswith(".total").any()


def test_totals_of_strategies_are_epochs_of_the_quality_runs(results: Path) -> None:
    rows = pd.read_csv(results / "figures/strategies.csv")
    assert (rows["total_s"] / rows["epoch_s"]).tolist() == pytest.approx(rows["epochs"].tolist())
    assert rows["strategy"].iloc[0].startswith("fused")


def test_a_study_without_any_run_still_gives_every_figure_and_a_page(tmp_path: Path) -> None:
    config = factory.small_config({"weak": CONFIG["studies"]["weak"]})
    tables.collect(config, tmp_path, tmp_path / "tables", partial=True)
    figures.draw(config, tmp_path / "tables", tmp_path / "figures")
    report.build(config, tmp_path / "tables", tmp_path / "figures", tmp_path / "report.html")
    assert "15 runs of the study are not done" in (tmp_path / "report.html").read_text()


def test_a_missing_table_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"runs\.csv: no such table; run `ketscale collect` first"):
        figures.draw(CONFIG, tmp_path, tmp_path)


def test_the_page_is_small(page: str) -> None:
    assert 100_000 < len(page) < report.LARGEST_BYTES


class Links(HTMLParser):
    """Collects everything that a page would load, and the ids that its own links name."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name in ("src", "href", "srcset", "data", "poster", "action"):
                (self.anchors.add if (value or "").startswith("#") else self.loaded.append)(value or "")


def test_the_page_loads_nothing_from_outside(page: str) -> None:
    links = Links()
    links.feed(page)
    assert links.loaded
    assert all(link.startswith("data:") for link in links.loaded)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest", page)
    assert {anchor[1:] for anchor in links.anchors} <= set(links.ids)
    assert len(links.ids) == len(set(links.ids))


def test_the_page_opens_with_three_computed_sentences(page: str) -> None:
    opening = re.findall(r"<p>(.*?)</p>", page.split('aria-label="The answer"')[1].split("</section>")[0])
    assert len(opening) == 3
    assert opening[0].startswith("The fastest simulator is fused, at 3.09 ms")
    assert "2x (2 to 2) faster than default.qubit" in opening[0]
    assert "2 MPI ranks 1.54x" in opening[1]
    assert "95 % interval over 3 seeds" in opening[2]


def test_the_page_shows_what_is_missing_and_why(page: str) -> None:
    missing = "results/runs/digits/vqc/q4-l3-b64/qiskit/cpu-n1r1t1/timing/seed2/metrics.json"
    assert re.search(rf"<strong>missing</strong>: <code>{re.escape(missing)}</code>: not run yet", page)


def test_all_text_is_escaped(page: str) -> None:
    assert "A &lt;b&gt;bold&lt;/b&gt; &amp; risky title" in page
    assert "loss is &lt;NaN&gt; at step 7" in page
    assert "<b>" not in page


@pytest.mark.parametrize(
    ("differences", "control", "verdict"),
    [
        ([0.01, -0.01, 0.0], 0.97, "too easy to tell apart"),
        ([0.01, -0.01, 0.0], 0.80, "cannot be told apart"),
        ([0.05, 0.06, 0.055], 0.80, "better than the control"),
        ([-0.05, -0.06, -0.055], 0.97, "worse than the control"),
        ([0.05], 0.80, "one seed cannot tell"),
    ],
)
def test_the_interval_over_seeds_decides_about_accuracy(
    differences: list[float], control: float, verdict: str
) -> None:
    base = dict.fromkeys(range(len(differences)), control)
    values = {seed: control + value for seed, value in enumerate(differences)}
    found = quality.paired_difference(values, base)
    assert quality.verdict(found, control) == verdict
    assert verdict in answers.VERDICTS or found is None or found.n == 1


def test_the_interval_is_students() -> None:
    found = quality.paired_difference({0: 1.0, 1: 2.0, 2: 3.0, 9: 5.0}, {0: 0.0, 1: 0.0, 2: 0.0})
    assert found is not None
    assert (found.mean, found.n) == (2.0, 3)
    assert found.high == pytest.approx(2.0 + 4.302653 / 3**0.5, rel=1e-6)


def test_a_ratio_to_a_busy_machine_is_hollow_and_a_quiet_time_is_not() -> None:
    _, panels = plt.subplots(1, 3)
    values = {"workers": [1], "speedup_best_serial": [1.0], "flag": ["busy reference"], "efficiency": [1.0]}
    times = ("step_s", "step_low_s", "step_high_s")
    values |= {key: [1.0] for key in ("speedup_same", "speedup_same_low", "speedup_same_high", *times)}
    speed._line(tuple(panels), pd.DataFrame(values), "mpi, ranks", "black", "o", 0.0)
    faces = [
        {line.get_mfc() for line in panel.lines if line.get_ls() == "None" and len(line.get_xdata())}
        for panel in panels
    ]
    plt.close()
    assert faces == [{"white"}, {"white"}, {"black"}]


def test_two_nodes_are_named_and_a_disturbed_ratio_has_no_verdict() -> None:
    assert answers._where("mpi-n2r2t1") == "2 MPI ranks on 2 nodes"
    point = pd.Series({"speedup_same_low": 2.0, "speedup_same_high": 2.2, "flag": ""})
    assert answers._gain(point) == ": it pays"
    point["flag"] = "busy reference"
    assert answers._gain(point) == ": too disturbed to say"
