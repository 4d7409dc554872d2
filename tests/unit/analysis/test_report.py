"""The page is self-contained and escaped, its links lead somewhere, and the file to send has all of it."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import yaml

from ketscale.analysis import catalogue, report
from ketscale.analysis.report import provenance
from ketscale.grid import Run
from tests import records_factory as factory
from tests.record_maker import beside

FORMATS = ("svg", "png", "narrow.svg", "csv")
STUDIES = factory.default_study()["studies"]
CONFIG = factory.small_config(STUDIES, title="A <b>bold</b> & risky title", partial=True)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report, and the file to send, of a missing, a busy and a diverged point, and of one that timed out."""
    root = tmp_path_factory.mktemp("study")

    def change(run: Run) -> dict[str, object] | None:
        if run.simulator == "qiskit":
            return None
        if run.layout == "mpi-n1r1t1" and run.protocol == "timing":
            return {"quiet": beside(others_share=0.4)}
        if run.simulator == "default.qubit-loop-shift" and run.protocol == "timing":
            return {"status": "timed_out", "reason": "its time was over"}
        if run.size == "q4-l6" and run.seed == 1:
            return {"status": "diverged", "reason": "loss is <NaN> at step 7"}
        return {}

    factory.write_all(CONFIG, root, change)
    report.build(CONFIG, root, zipped=True)
    return root


class Page(HTMLParser):
    """The ids of a page, what it loads, and its links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag == "a" else []
        self.loaded += [
            given[name] for name in ("src", "srcset", "data", "poster", "action") if name in given
        ]
        self.loaded += [given["href"]] if tag == "link" else []


def test_the_page_loads_nothing_escapes_all_text_and_its_links_lead_somewhere(results: Path) -> None:
    shown = (results / "report.html").read_text()
    found = Page(shown)
    assert found.loaded and all(link.startswith("data:") for link in found.loaded)
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest", shown)
    assert len(found.ids) == len(set(found.ids))
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    files = {link for link in found.links if not link.startswith("#")}
    assert {f"figures/strong.{kind}" for kind in ("svg", "png", "csv")} <= files
    assert "tables/runs.csv" in files and any(link.startswith("runs/") for link in files)
    assert all((results / link).exists() for link in files)
    runs = shown.split('id="runs"')[1].split("</table>")[0]
    assert runs.index("not run yet") < runs.index("completed"), "what is missing comes first"
    assert "A &lt;b&gt;bold&lt;/b&gt; &amp; risky title" in shown
    assert "loss is <NaN>" not in shown and "loss is \\u003cNaN> at step 7" in shown
    assert "<b>" not in shown


def test_the_config_of_the_page_makes_the_same_runs() -> None:
    text = provenance.config_text(CONFIG)
    again = factory.analysis.of(yaml.safe_load(text))
    assert set(again.runs) == set(CONFIG.runs) and again.text == CONFIG.text


def test_the_file_to_send_has_all_that_its_page_leads_to(results: Path) -> None:
    data = (results / "report.zip").read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as sent:
        files = {name: sent.read(name) for name in sent.namelist()}
        # Readable, once unpacked.
        assert {entry.external_attr >> 16 for entry in sent.infolist()} == {0o644}
    found = Page(files["report.html"].decode())
    paths = {link for link in found.links if not link.startswith("#")}
    assert paths and paths <= set(files)
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    assert "tables/config.json" in files and f"figures/{CONFIG.studies[0].name}.svg" in files
    digests = dict(line.split("  ")[::-1] for line in files["records.sha256"].decode().splitlines())
    records = {path.relative_to(results).as_posix(): path for path in results.glob("runs/**/metrics.json")}
    assert digests == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in records.items()}


def test_every_figure_has_its_files_and_there_is_no_other(results: Path) -> None:
    names = [figure.name for figure in catalogue.figures_of(CONFIG) if figure.name != "map"]
    expected = {f"{name}.{kind}" for name in names for kind in FORMATS}
    assert {path.name for path in (results / "figures").iterdir()} == expected


def test_the_shares_of_a_step_add_up(results: Path) -> None:
    spans = pd.read_csv(results / "figures/spans.csv")
    total = spans.groupby(["batch", "simulator", "layout", "features"])["share"].sum()
    assert total.tolist() == pytest.approx([1.0] * len(total))
    assert not spans["span"].str.endswith(".total").any()
