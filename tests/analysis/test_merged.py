"""One page of several results folders: every folder's answers, figures and rows are its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from ketscale.analysis import catalogue, report
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.report import merged
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import Run
from tests import records_factory as factory
from tests.analysis.test_report import Page

STUDIES = factory.default_study()["studies"]
SPEED = factory.small_config({name: STUDIES[name] for name in ("strong", "parity")}, partial=True)
DEPTH = factory.small_config({"depth": STUDIES["depth"]}, title="Depth", partial=True)


def measured(config: Config, results: Path, cpu: str, slower: float = 1.0) -> None:
    """Records of a machine with this processor, with their tables and figures."""

    def change(run: Run) -> dict[str, object]:
        machine = factory.record(config, run)["machine"]
        step_s = slower * factory.step_time(run, config.sizes(run))
        return {"machine": {**machine, "cpu": cpu}, "step_s": step_s}

    factory.write_all(config, results, change)
    factory.draw(config, results)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two machines with the same study and one of them with another one; a page beside them."""
    root = tmp_path_factory.mktemp("machines")
    measured(SPEED, root / "one", "Fast CPU")
    measured(SPEED, root / "far/two", "Slow CPU", 3.0)
    measured(DEPTH, root / "my study", "Fast CPU")
    # Claims that two machines have measured.
    verdicts = {root / "one": "supported", root / "far/two": "refuted"}
    of = Analysed.of

    def judged(config: Config, results: Path) -> Analysed:
        found = of(config, results)
        claims = found.tables["claims"].astype(object)
        if results in verdicts:
            said = {"verdict": verdicts[results], "records": f"results/{SPEED.runs[0].path}"}
            claims = pd.DataFrame(
                [{"id": number, **said} for number in ("0.1", "0.10")], columns=claims.columns
            )
        return replace(found, tables={**found.tables, "claims": claims})

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Analysed, "of", judged)
        report.merge([root / "one", root / "far/two", root / "my study"], root / "pages/all.html")
        yield root


@pytest.fixture(scope="module")
def page(place: Path) -> str:
    """The merged page's HTML."""
    return (place / "pages/all.html").read_text()


KEYS = ("one", "two", "my_study")


def test_ids_are_unique_and_links_lead_to_rows_and_files(place: Path, page: str) -> None:
    found = Page(page)
    assert len(found.ids) == len(set(found.ids))
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    files = {link for link in found.links if not link.startswith("#")}
    assert f"../far/two/{SPEED.runs[0].path}" in files and "../my%20study/tables/claims.csv" in files
    assert all((place / "pages" / link.replace("%20", " ")).exists() for link in files)
    assert all(link.startswith("data:") for link in found.loaded)


def test_every_citation_has_a_key_of_its_own(page: str) -> None:
    assert re.findall(r"@software\{(.*?),", page) == ["ketscale-1", "ketscale-2", "ketscale-3"]


def test_headings_skip_no_level(page: str) -> None:
    levels = Page(page).levels
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(deeper <= level + 1 for level, deeper in pairwise(levels))


def test_every_folder_has_its_machine_answers_and_figures(place: Path, page: str) -> None:
    one, two, depth = KEYS
    for key, config in ((one, SPEED), (two, SPEED), (depth, DEPTH)):
        assert all(f'id="{key}-study-{study.name}"' in page for study in config.studies)
        assert all(f'id="{key}-figure-{name}"' in page for name in catalogue.figures(config))
    own = page.split(f'id="{two}-answers"')[1].split('<h3 class="folder"')[0]
    assert "Slow CPU, 2 cores" in own and "Fast CPU" not in own
    assert f'data-filter="results={two} study=strong"' in own


def test_rows_name_their_folder(place: Path) -> None:
    found = merged.tables(merged.chapters([place / "one", place / "far/two", place / "my study"], place))
    one, two, depth = KEYS
    runs = found["runs"]
    assert runs["results"].value_counts().to_dict() == {
        one: len(SPEED.runs),
        two: len(SPEED.runs),
        depth: len(DEPTH.runs),
    }
    assert all("Slow CPU, 2 cores" in words for words in runs.loc[runs["results"] == two, "hardware"])
    step = runs[runs["simulator"] == "fused"].groupby("results")["step_s"].max()
    assert step[two] == pytest.approx(3 * step[one])


def test_a_claim_has_a_row_for_each_folder_that_tests_it(place: Path) -> None:
    found = merged.tables(merged.chapters([place / "one", place / "far/two", place / "my study"], place))
    one, two, _ = KEYS
    told = found["claims"][["id", "results", "verdict"]].to_numpy().tolist()
    assert told == [
        ["0.1", one, "supported"],
        ["0.1", two, "refuted"],
        ["0.10", one, "supported"],
        ["0.10", two, "refuted"],
    ]


def test_folders_have_the_shortest_names_that_tell_them_apart(tmp_path: Path) -> None:
    assert merged._names([tmp_path / "a/results", tmp_path / "b/results"]) == ["a/results", "b/results"]
    assert merged._names([tmp_path / "a/x", tmp_path / "b/100% y"]) == ["x", "100__y"]


def test_what_cannot_be_merged_is_said(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "merged.html"
    for folders, said in (
        ([place / "one"], "merge needs two results folders or more"),
        ([place / "one", tmp_path / "none"], "none/tables/config.json: no such file; run `ketscale report`"),
        ([place / "one", place / "far/../one"], "given twice"),
    ):
        with pytest.raises(UserError, match=re.escape(said)):
            report.merge(folders, out)
    broken = tmp_path / "broken"
    shutil.copytree(place / "one", broken)
    for content, said in (
        (b"{", "not JSON"),
        (b"\xff{}", "not JSON"),
        (b"{}", "config.json: config: title is missing"),
    ):
        (broken / "tables/config.json").write_bytes(content)
        with pytest.raises(UserError, match=said):
            report.merge([place / "one", broken], out)
    shutil.copy(place / "one/tables/config.json", broken / "tables")
    (broken / SPEED.runs[0].path).write_text("{")
    report.merge([place / "one", broken], out)
    assert "refused" in out.read_text()


def test_the_command(place: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ketscale", "merge", "one", "far/two", "--out", str(tmp_path / "m.html")]
    subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=120)
    assert '<h3 class="folder" id="two-answers">two</h3>' in (tmp_path / "m.html").read_text()
