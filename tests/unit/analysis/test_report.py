"""The page: self-contained, escaped, complete, and in a browser sortable, filterable, and no wider than a phone."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
import zipfile
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import ketscale
from ketscale.analysis import report, verdicts
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds.kind import Answer, Told
from ketscale.analysis.report import cells, provenance
from ketscale.analysis.wording import shown as shown_value
from ketscale.grid import Run
from tests import records_factory as factory

KEPT = ("simulators", "strong", "depth", "accuracy", "parity")
STUDIES = {name: factory.default_study()["studies"][name] for name in KEPT}
CONFIG = factory.small_config(STUDIES, title="A <b>bold</b> & risky title", partial=True)
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LARGEST_BYTES = 5_000_000
PAIR = Estimate(1.5, 1.25, 1.75, 3)
# The answer to one question, with more rows than a page of them.
POINTS = tuple(
    Told(
        f"batch {2**at}",
        "one <core>",
        PAIR.times(1 + at),
        "times as fast",
        verdicts.PAYS,
        {"step": f"{at} ms"},
    )
    for at in range(30)
)
STRONG = Answer(
    "Two ranks <pay>: 1.5 times as fast.", verdicts.PAYS, "speedup of 2 ranks", PAIR, "times as fast"
)
STRONG = replace(STRONG, short="Two ranks <pay>.", rows=POINTS, notes=("A note.",))


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


@pytest.fixture(scope="module")
def analysed(results: Path) -> Analysed:
    """What they say, with an answer of our own to one question."""
    found = Analysed.of(CONFIG, results)
    parts = [replace(part, answer=STRONG) if part.study.name == "strong" else part for part in found.parts]
    return changed(found, parts=tuple(parts))


def changed(analysed: Analysed, **parts: Any) -> Analysed:
    """The same with other parts; figures are not drawn again."""
    found = replace(analysed, **{name: part for name, part in parts.items() if name != "figures"})
    vars(found)["figures"] = parts.get("figures", analysed.figures)
    return found


@pytest.fixture(scope="module")
def shown(analysed: Analysed) -> str:
    """The page's HTML."""
    return report.rendered([analysed]).decode()


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


def chapter(text: str, study: str) -> str:
    """The part of a page about a study."""
    return text.split(f'<section id="study-{study}">')[1].split("</section>")[0]


def test_the_page_loads_nothing_and_its_links_lead_somewhere(results: Path, shown: str) -> None:
    found = Page(shown)
    assert found.loaded and all(link.startswith("data:") for link in found.loaded)
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest", shown)
    assert len(found.ids) == len(set(found.ids))
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    files = {link for link in found.links if not link.startswith("#")}
    assert {f"figures/strong.{kind}" for kind in ("svg", "png", "csv")} <= files
    assert "tables/runs.csv" in files and any(link.startswith("runs/") for link in files)
    assert all((results / link).exists() for link in files)


def test_the_page_opens_with_one_table_of_all_questions(analysed: Analysed, shown: str) -> None:
    opening = shown.split('id="answers"')[1].split("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", opening.split("<tbody>")[1], re.DOTALL)
    assert len(rows) == len(CONFIG.studies) and shown.index('id="answers"') < shown.index("<section")
    (strong,) = [row for row in rows if 'href="#study-strong"' in row]
    told = [unescape(re.sub("<.*?>", "", cell)) for cell in re.findall("<td.*?>(.*?)</td>", strong)]
    question = next(study.question for study in CONFIG.studies if study.name == "strong")
    assert told == [question, "Two ranks <pay>.", "1.5 times as fast", "1.25 to 1.75", "pays"]
    assert all(len((part.answer.short or "").split()) <= 12 for part in analysed.parts)


def test_a_verdict_leads_to_its_meaning(shown: str) -> None:
    assert "Verdicts hold together for all comparisons of a study" in shown
    assert f'<dt id="verdict-pays">pays</dt><dd>{verdicts.MEANINGS[verdicts.PAYS]}</dd>' in shown
    assert '<a class="verdict" href="#verdict-pays">pays</a>' in chapter(shown, "strong")
    said = set(re.findall('class="verdict" href="#verdict-(.*?)"', shown))
    assert set(re.findall('<dt id="verdict-(.*?)"', shown)) >= said


def test_claims_are_on_the_page_only_if_a_study_tests_one(analysed: Analysed, shown: str) -> None:
    claims = analysed.tables["claims"]
    none = report.rendered([changed(analysed, tables={**analysed.tables, "claims": claims.head(0)})]).decode()
    assert "Published claims" not in none
    row = dict.fromkeys(claims.columns) | {
        "id": "0.1",
        "statement": "It <pays>.",
        "verdict": verdicts.SUPPORTED,
    }
    one = changed(analysed, tables={**analysed.tables, "claims": pd.DataFrame([row])})
    assert "It &lt;pays&gt;." in report.rendered([one]).decode().split("Published claims")[1]


def test_what_is_missing_comes_first_with_the_reason_and_what_ended_on_purpose_is_no_fault(
    analysed: Analysed, shown: str
) -> None:
    assert re.search('<p class="warning"><a href="#runs">.* completed, 1 diverged and .* missing', shown)
    runs = shown.split('id="runs"')[1].split("</table>")[0]
    assert runs.index("not run yet") < runs.index("completed")
    states = analysed.tables["completeness"].assign(state="completed")
    states.loc[states.index[:3], "state"] = "timed_out"
    whole = report.rendered([changed(analysed, tables={**analysed.tables, "completeness": states})]).decode()
    assert 'class="warning"' not in whole
    assert re.search('<p class="state"><a href="#runs">.* completed and 3 timed out</a>', whole)


def test_all_text_is_escaped(shown: str) -> None:
    assert "A &lt;b&gt;bold&lt;/b&gt; &amp; risky title" in shown
    assert "loss is <NaN>" not in shown and "loss is \\u003cNaN> at step 7" in shown
    assert "<b>" not in shown


def test_thousands_of_runs_in_many_studies_are_a_page_of_five_megabytes(analysed: Analysed) -> None:
    strong = next(part for part in analysed.parts if part.study.name == "strong")
    rows = tuple(
        replace(POINTS[0], point=f"a point of many that a study has, number {at}") for at in range(80)
    )
    many = [
        replace(
            strong,
            study=replace(strong.study, name=f"study{at}"),
            answer=replace(STRONG, rows=rows),
            figure="strong",
        )
        for at in range(64)
    ]
    figure = dict.fromkeys(("svg", "narrow.svg"), b"<svg>" + b" " * 60000)
    config = replace(CONFIG, studies=tuple(part.study for part in many))
    times = -(-5_000 // len(analysed.tables["completeness"]))
    tables = {**analysed.tables, "completeness": pd.concat([analysed.tables["completeness"]] * times)}
    large = changed(analysed, config=config, parts=tuple(many), figures={"strong": figure}, tables=tables)
    made = report.rendered([large])
    assert len(made) < LARGEST_BYTES
    # What has no room is led to.
    assert b'src="figures/strong.svg"' in made and b'src="data:image' in made
    assert b"12 of 80 rows" in made and b"study63" in made


def test_the_citation_is_that_of_the_project_with_the_commit_and_machine_of_the_runs(
    analysed: Analysed,
) -> None:
    cited = yaml.safe_load((factory.ROOT / "CITATION.cff").read_text())
    assert (cited["title"], cited["authors"]) == (provenance.TITLE, [{"name": provenance.AUTHOR}])
    assert (cited["license"], cited["version"]) == (provenance.LICENCE, ketscale.__version__)
    entry = provenance.bibtex(analysed.tables["runs"], "ketscale")
    assert entry.startswith("@software{ketscale,\n  author = {{The KetScale developers}},\n")
    assert "  version = {0.1.0 aaaaaaaaaa},\n  year = {2026},\n" in entry
    assert "2026-01-01 00:00 to 2026-01-01 00:01 UTC on" in entry and "Synthetic CPU, 2 cores" in entry
    assert entry.count("{") == entry.count("}")


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


# Loads the page in a frame of a phone's or a screen's width, uses it, and writes what it found as JSON.
HARNESS = """<!doctype html><iframe src="report.html" width="{width}" height="800"></iframe><script>
addEventListener("load", async () => {{
  const frame = document.querySelector("iframe").contentWindow, page = frame.document;
  const box = page.getElementById("runs"), search = box.querySelector("[type=search]");
  const rows = () => [...box.querySelectorAll("tbody tr")];
  const column = name => [...box.querySelectorAll("th")].findIndex(head => head.textContent === name);
  const texts = name => rows().map(row => row.cells[column(name)].textContent);
  const said = () => box.querySelector("output").textContent;
  const filter = text => {{ search.value = text; search.dispatchEvent(new frame.Event("input")); return said(); }};
  const [back, next] = [...box.querySelectorAll(".more button")];
  const found = {{inner: frame.innerWidth, wide: page.documentElement.scrollWidth}};
  for (const part of page.querySelectorAll("details")) part.open = true;
  found.wide = Math.max(found.wide, page.documentElement.scrollWidth);
  const head = () => box.querySelectorAll("th")[column("step (ms)")];
  head().firstElementChild.click();
  found.up = texts("step (ms)");
  found.sorted = head().ariaSort;
  head().firstElementChild.click();
  found.down = texts("step (ms)");
  found.pages = [said(), (next.click(), said()), back.disabled, (back.click(), said()), back.disabled];
  found.fused = [filter("/fused/"), texts("run").every(text => text.includes("/fused/"))];
  found.two = filter("/mpi seed1");
  found.none = filter("no such text");
  found.cleared = filter("");
  found.link = (filter("completed"), rows()[0].cells[0].querySelector("a").getAttribute("href"));
  page.querySelector("[data-filter='=strong']").click();
  found.points = said();
  const points = page.querySelector("#study-strong .rows");
  found.verdict = points.querySelector("td.verdict a").hash;
  found.images = await Promise.all([...page.images].map(image => image.decode().then(() => image.naturalWidth)));
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
def test_the_page_in_a_browser(analysed: Analysed, shown: str, tmp_path: Path, width: int) -> None:
    (tmp_path / "report.html").write_text(shown)
    (tmp_path / "harness.html").write_text(HARNESS.format(width=width))
    said = browse(tmp_path, "--dump-dom")
    dump = re.search(r'<pre id="found">(.*?)</pre>', said.stdout)
    assert dump, said.stderr
    found: dict[str, Any] = json.loads(unescape(dump[1]))
    assert "CONSOLE" not in said.stderr
    assert found["inner"] == width and found["wide"] <= width
    up, down = ([float(text.replace(",", "")) for text in found[way]] for way in ("up", "down"))
    runs = analysed.tables["runs"]
    steps = [float(shown_value(value, 1e3).replace(",", "")) for value in sorted(runs["step_s"].dropna())]
    assert found["sorted"] == "ascending" and len(set(up)) > 3
    assert up == steps[: cells.FIRST] and down == steps[: -cells.FIRST - 1 : -1]
    count, every = int((runs["simulator"] == "fused").sum()), len(CONFIG.runs)
    assert found["pages"] == [
        f"1 to 12 of {every} rows", f"13 to 24 of {every} rows", False, f"1 to 12 of {every} rows", True,
    ]  # fmt: skip
    assert found["fused"] == [f"1 to 12 of {count} rows", True]
    two = sum(run.backend == "mpi" and run.seed == 1 for run in CONFIG.runs)
    assert found["two"] == f"1 to {two} of {two} rows" and two > 0
    assert (found["none"], found["cleared"]) == ("0 to 0 of 0 rows", f"1 to 12 of {every} rows")
    assert found["link"] in {run.path for run in CONFIG.runs}
    strong = len(next(study for study in CONFIG.studies if study.name == "strong").runs)
    assert found["points"] == f"1 to {cells.FIRST} of {strong} rows" and found["verdict"] == "#verdict-pays"
    assert len(found["images"]) == len(analysed.figures) and all(found["images"])
