"""The page: self-contained, escaped, complete, and in a browser sortable, filterable, and no wider than a phone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import ketscale
from ketscale.analysis import catalogue, report
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.report import cells, provenance
from ketscale.analysis.report.columns import Group
from ketscale.grid import Run
from tests import records_factory as factory

KEPT = ("simulators", "strong", "depth", "accuracy", "parity")
STUDIES = {name: factory.default_study()["studies"][name] for name in KEPT}
CONFIG = factory.small_config(STUDIES, title="A <b>bold</b> & risky title", partial=True)
FUSED = [run for run in CONFIG.runs if run.simulator == "fused" and run.protocol == "timing"]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with a missing and a diverged run, answered, judged, drawn and reported."""
    root = tmp_path_factory.mktemp("study")

    def change(run: Run) -> dict[str, object] | None:
        if run.simulator == "qiskit" and run.protocol == "timing":
            return None
        if run.size == "q4-l6" and run.seed == 1:
            return {"status": "diverged", "reason": "loss is <NaN> at step 7"}
        return {}

    factory.write_all(CONFIG, root, change)
    found = Analysed.of(CONFIG, root)
    tables = {**found.tables, "answers": answered(), "claims": judged(found.tables["claims"])}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Analysed, "of", lambda *about: replace(found, tables=tables))
        report.build(CONFIG, root)
    return root


def answered() -> pd.DataFrame:
    """An answer to one question."""
    row = {"study": "strong", "answer": "Two ranks <pay>.", "verdict": "pays", "of": "speedup of 2 ranks",
           "effect": 1.5, "low": 1.25, "high": 1.75, "n": 3}  # fmt: skip
    return pd.DataFrame([row])


def judged(claims: pd.DataFrame) -> pd.DataFrame:
    """Verdicts on some claims, one with several records."""
    paths = [f"results/{run.path}" for run in FUSED[:3]]
    given = [
        ("0.1", "not measured", 0),
        ("0.2", "undecided", 0),
        ("0.3", "supported", 3),
        ("0.4", "refuted", 1),
    ]
    rows = [
        {"id": number, "verdict": word, "records": " ".join(paths[:count]) or None}
        for number, word, count in given
    ]
    return pd.DataFrame(rows, columns=claims.columns)


@pytest.fixture(scope="module")
def page(results: Path) -> str:
    """The report's HTML."""
    return (results / "report.html").read_text()


class Page(HTMLParser):
    """The ids of a page, what it loads, its links, its images' texts, and the levels of its headings."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.alts: list[str] = []
        self.levels: list[int] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag == "a" else []
        self.loaded += [
            given[name] for name in ("src", "srcset", "data", "poster", "action") if name in given
        ]
        self.loaded += [given["href"]] if tag == "link" else []
        self.alts += [given.get("alt", "")] if tag == "img" else []
        self.levels += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []


def test_the_page_is_small(page: str) -> None:
    assert 100_000 < len(page) < 5_000_000


def test_the_page_loads_nothing_and_its_links_lead_somewhere(results: Path, page: str) -> None:
    found = Page(page)
    assert found.loaded and all(link.startswith("data:") for link in found.loaded)
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest", page)
    assert len(found.ids) == len(set(found.ids))
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    files = {link for link in found.links if not link.startswith("#")}
    assert {f"figures/strong.{kind}" for kind in ("svg", "pdf", "png", "csv")} <= files
    assert {FUSED[0].path, "tables/runs.csv"} <= files
    assert all((results / link).exists() for link in files)


def test_headings_skip_no_level_and_images_have_texts(page: str) -> None:
    found = Page(page)
    assert found.levels[0] == 1 and found.levels.count(1) == 1
    assert all(deeper <= level + 1 for level, deeper in zip(found.levels, found.levels[1:], strict=False))
    assert len(found.alts) == len(catalogue.figures(CONFIG)) and all(found.alts)


def test_every_figure_is_there_once_with_its_caption(page: str) -> None:
    for figure in catalogue.figures_of(CONFIG):
        assert page.count(f'<figure id="figure-{figure.name}">') == 1
        assert f"<figcaption>{figure.caption}</figcaption>" in page


def test_a_study_has_its_question_answer_effect_and_figure(page: str) -> None:
    article = page.split('<article id="study-strong">')[1].split("</article>")[0]
    question, said, effect, figure = (
        article.index(text)
        for text in (
            "<h3>Does a second rank or thread shorten the step at a fixed global batch of 64?</h3>",
            '<p class="answer">Two ranks &lt;pay&gt;.</p>',
            "speedup of 2 ranks: 1.5 (95 % interval 1.25 to 1.75, n = 3)",
            '<figure id="figure-strong">',
        )
    )
    assert question < said < effect < figure
    assert page.index('id="study-strong"') < page.index('id="study-accuracy"') < page.index('id="verdicts"')


def test_a_verdict_names_its_records_and_their_rows(page: str) -> None:
    verdicts = page.split('id="table-claims"')[1].split("</details>\n</td>")[0]
    assert "<summary>3 records</summary>" in verdicts
    for run in FUSED[:3]:
        assert (
            f'<a href="#run-{run.name}">{run.name}</a>' in verdicts
            and f'<a href="{run.path}">record</a>' in verdicts
        )
        assert f'<tr id="run-{run.name}">' in page


def test_verdicts_on_what_was_measured_come_first(page: str) -> None:
    verdicts = page.split('id="table-claims"')[1].split("<tbody>")[1].split("</tbody>")[0]
    words = ("supported", "refuted", "undecided", "not measured")
    found = [cell for cell in re.findall(r"<td[^>]*>([^<]*)</td>", verdicts) if cell in words]
    assert found == list(words)


def test_the_page_shows_what_is_missing_and_why(page: str) -> None:
    missing = "results/runs/digits/vqc/q4-l3-b64/qiskit/cpu-n1r1t1/timing/seed0/metrics.json"
    assert re.search(rf"<strong>missing</strong>: <code>{re.escape(missing)}</code>: not run yet", page)


def test_all_text_is_escaped(page: str) -> None:
    assert "A &lt;b&gt;bold&lt;/b&gt; &amp; risky title" in page
    assert "loss is &lt;NaN&gt; at step 7" in page
    assert "<b>" not in page


def test_columns_of_one_name_or_count_are_said_once_and_empty_ones_left_out() -> None:
    table = pd.DataFrame(
        {
            "study": ["a", "a"],
            "batch": [64, 64],
            "step_s": 0.5,
            "low": [0.5, None],
            "high": [0.75, 1.0],
            "dt": None,
        }
    )
    heads = {"study": "study", "batch": "batch", "step_s": "step (ms)", "low..high": "interval", "dt": "dt"}
    nowhere = {"": cells.Place("", "", frozenset())}
    found = cells.of("scaling", (Group("all", heads),), {"scaling": table}, nowhere)
    assert found.heads == [("all", False, ["study", "step (ms)", "interval"])]
    assert found.alike == [("batch", "64")]
    assert [[cell.text for cell in row.cells] for row in found.rows] == [
        ["a", "500", "0.5 to 0.75"],
        ["a", "500", ""],
    ]


def test_numbers_have_four_digits_and_the_unit_of_their_heading() -> None:
    assert cells.cell(0.0012345, "step (ms)") == cells.Cell("1.234", "number")
    assert cells.cell(4e8, "memory (MB)").text == "400"
    assert cells.cell(12345.6).text == "12,346"
    assert cells.cell(True).text == "yes" and cells.cell(float("nan")).text == ""


def test_the_citation_is_that_of_the_project_with_the_commit_and_machine_of_the_runs(results: Path) -> None:
    cited = yaml.safe_load((factory.ROOT / "CITATION.cff").read_text())
    assert (cited["title"], cited["authors"]) == (provenance.TITLE, [{"name": provenance.AUTHOR}])
    assert (cited["license"], cited["version"]) == (provenance.LICENCE, ketscale.__version__)
    entry = provenance.bibtex(pd.read_csv(results / "tables/runs.csv"), "ketscale")
    assert entry.startswith("@software{ketscale,\n  author = {{The KetScale developers}},\n")
    assert "  version = {0.1.0},\n  year = {2026},\n" in entry and "Commit aaaaaaaaaa. " in entry
    assert "2026-01-01 00:00 to 2026-01-01 00:01 UTC on Synthetic CPU, 2 cores, 8 GiB of memory" in entry
    assert entry.count("{") == entry.count("}")


def test_the_config_of_the_page_makes_the_same_runs() -> None:
    text, digest = provenance.config_text(CONFIG)
    again = factory.analysis.of(yaml.safe_load(text))
    assert set(again.runs) == set(CONFIG.runs) and provenance.config_text(again)[1] == digest


# Loads the page in a frame of a phone's or a screen's width, uses it, and writes what it found as JSON.
HARNESS = """<!doctype html><iframe src="report.html" width="{width}" height="800"></iframe><script>
addEventListener("load", async () => {{
  const frame = document.querySelector("iframe").contentWindow, page = frame.document;
  const pause = () => new Promise(done => setTimeout(done, 100));
  const box = page.getElementById("table-runs"), search = box.querySelector("[type=search]");
  const rows = () => [...box.querySelectorAll("tbody tr")].filter(row => !row.hidden);
  const column = name => [...box.querySelectorAll("th")].findIndex(head => head.textContent === name);
  const texts = name => rows().map(row => row.cells[column(name)].textContent);
  const filter = text => {{ search.value = text; search.dispatchEvent(new frame.Event("input")); return rows().length; }};
  const found = {{inner: frame.innerWidth, wide: page.documentElement.scrollWidth}};
  for (const part of page.querySelectorAll("details")) part.open = true;
  found.wide = Math.max(found.wide, page.documentElement.scrollWidth);
  const head = () => box.querySelectorAll("th")[column("step (ms)")];
  head().firstElementChild.click();
  found.up = texts("step (ms)");
  found.sorted = head().ariaSort;
  head().firstElementChild.click();
  found.down = texts("step (ms)");
  found.all = rows().length;
  found.fused = [filter("simulator=fused"), [...new Set(texts("simulator"))], box.querySelector("output").textContent];
  found.two = filter("mpi seed=1");
  found.none = filter("no such text");
  found.cleared = filter("");
  const [check] = [...box.querySelectorAll("[type=checkbox]")].filter(each => each.checked).slice(-1);
  const shown = () => [...box.querySelectorAll("th")].filter(each => !each.hidden).length;
  found.columns = [shown(), (check.click(), shown()), (check.click(), shown())];
  filter("no such text");
  box.open = false;
  const link = page.querySelector("#table-claims td a[href^='#run-']");
  link.click();
  await pause();
  found.target = [box.open, page.querySelector("tr:target").hidden, page.querySelector("tr:target").id];
  page.querySelector("[data-filter='study=strong']").click();
  found.points = page.querySelector("#table-scaling output").textContent;
  const button = page.querySelector("button.enlarge"), dialog = page.querySelector("dialog");
  button.focus();
  found.focusable = page.activeElement === button;
  button.click();
  found.enlarged = [dialog.open, dialog.querySelectorAll("img[alt]").length];
  dialog.requestClose();
  await pause();
  found.closed = !dialog.open;
  found.images = [...page.images].filter(image => image.complete && image.naturalWidth).length;
  document.body.append(Object.assign(document.createElement("pre"), {{id: "found", textContent: JSON.stringify(found)}}));
}});
</script>"""


def browse(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What a headless browser says of harness.html in a folder."""
    assert BROWSER is not None
    return subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr",
         "--allow-file-access-from-files", "--virtual-time-budget=5000", "--window-size=1400,1000",
         f"--user-data-dir={folder / 'profile'}", *options, f"file://{folder}/harness.html"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_in_a_browser(results: Path, page: str, tmp_path: Path, width: int) -> None:
    shutil.copy(results / "report.html", tmp_path)
    (tmp_path / "harness.html").write_text(HARNESS.format(width=width))
    said = browse(tmp_path, "--dump-dom")
    dump = re.search(r'<pre id="found">(.*?)</pre>', said.stdout)
    assert dump, said.stderr
    found: dict[str, Any] = json.loads(
        dump[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")
    )
    assert "CONSOLE" not in said.stderr
    assert found["inner"] == width and found["wide"] <= width
    steps = [float(text.replace(",", "")) for text in found["up"] if text]
    assert found["sorted"] == "ascending" and steps == sorted(steps) and len(set(steps)) > 5
    assert [float(text.replace(",", "")) for text in found["down"] if text] == steps[::-1]
    runs = pd.read_csv(results / "tables/runs.csv")
    count = int((runs["simulator"] == "fused").sum())
    assert found["fused"] == [count, ["fused"], f"{count} of {len(runs)} rows"]
    assert found["two"] == int(((runs["backend"] == "mpi") & (runs["seed"] == 1)).sum()) > 0
    assert (found["none"], found["cleared"], found["all"]) == (0, len(runs), len(runs))
    every, fewer, again = found["columns"]
    assert fewer < every == again
    assert found["target"] == [True, False, f"run-{FUSED[0].name}"]
    assert re.fullmatch(r"5 of \d+ rows", found["points"])
    assert found["focusable"] and found["enlarged"] == [True, 1] and found["closed"]
    assert found["images"] == len(catalogue.figures(CONFIG)) + 1
