"""The page is self-contained and escaped, its links lead somewhere, and the file to send has all of it."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from ketscale.analysis import report
from ketscale.analysis.report import provenance
from ketscale.grid import Run
from tests import records_factory as factory

KEPT = ("simulators", "strong", "depth", "accuracy", "parity")
STUDIES = {name: factory.default_study()["studies"][name] for name in KEPT}
CONFIG = factory.small_config(STUDIES, title="A <b>bold</b> & risky title", partial=True)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of a study with a missing and a diverged run, and its report and the file to send."""
    root = tmp_path_factory.mktemp("study")

    def change(run: Run) -> dict[str, object] | None:
        if run.simulator == "qiskit" and run.protocol == "timing":
            return None
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
