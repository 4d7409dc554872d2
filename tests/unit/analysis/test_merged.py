"""One page of several results folders, and of several machines in one folder: what is of each is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ketscale.analysis import report
from ketscale.analysis.analysed import Analysed
from ketscale.config import Config
from ketscale.grid import Run
from tests import records_factory as factory
from tests.unit.analysis.test_report import Page

STUDIES = factory.default_study()["studies"]
SPEED = factory.small_config({name: STUDIES[name] for name in ("strong", "parity")}, partial=True)
DEPTH = factory.small_config({"depth": STUDIES["depth"]}, title="Depth", partial=True)
KEYS = ("one", "far/two", "my_study")


def on(config: Config, run: Run, cpu: str) -> dict[str, object]:
    """The machine of a run, with this processor and a host of its own."""
    machine = factory.record(config, run)["machine"]
    return {"machine": {**machine, "host": cpu.split()[0], "cpu": cpu}}


def measured(config: Config, results: Path, cpu: str, slower: float = 1.0) -> None:
    """Records of a machine with this processor, and their report."""

    def change(run: Run) -> dict[str, object]:
        return {**on(config, run, cpu), "step_s": slower * factory.step_time(run, config.sizes(run))}

    factory.write_all(config, results, change)
    report.build(config, results)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two machines with the same study and one of them with another one; a page beside them."""
    root = tmp_path_factory.mktemp("machines")
    measured(SPEED, root / "one", "Fast CPU")
    measured(SPEED, root / "far/two", "Slow CPU", 3.0)
    measured(DEPTH, root / "my study", "Fast CPU")
    (root / "pages").mkdir()
    report.merge([root / "one", root / "far/two", root / "my study"], root / "pages/all.html")
    return root


@pytest.fixture(scope="module")
def page(place: Path) -> str:
    """The merged page's HTML."""
    return (place / "pages/all.html").read_text()


def test_ids_are_unique_and_links_lead_to_sections_and_files(place: Path, page: str) -> None:
    found = Page(page)
    assert len(found.ids) == len(set(found.ids))
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    files = {link for link in found.links if not link.startswith("#")}
    assert f"../far/two/{min(SPEED.runs).path}" in files and "../my%20study/tables/runs.csv" in files
    assert all((place / "pages" / link.replace("%20", " ")).exists() for link in files)
    assert all(link.startswith("data:") for link in found.loaded)


def test_every_folder_has_its_machine_answers_and_figures(page: str) -> None:
    opening = page.split('id="answers"')[1].split("</table>")[0]
    for key, config in zip(KEYS, (SPEED, SPEED, DEPTH), strict=True):
        assert all(f'href="#{key}-study-{study.name}"' in opening for study in config.studies)
        assert all(f'<section id="{key}-study-{study.name}">' in page for study in config.studies)
    two = page.split('<h2 id="far/two-answers">')[1].split("<h2")[0]
    assert "Slow CPU, 2 cores" in two and "Fast CPU" not in two
    assert 'href="#far/two-runs" data-filter="=strong"' in two


def test_a_study_that_two_machines_measured_is_told_for_each(tmp_path: Path) -> None:
    given = factory.default_study()["studies"]["strong"]
    given = {**given, "axes": {**given["axes"], "seed": [0, 1, 2, 3, 4, 5]}}
    config = factory.small_config({"strong": given}, partial=True)

    def change(run: Run) -> dict[str, object]:
        slow = run.seed > 2
        gain = (2.0 if slow else 1.0) if run.ranks * run.threads > 1 else 1.0
        found = on(config, run, "Slow CPU" if slow else "Fast CPU")
        return {**found, "step_s": (3 if slow else 1) * 0.01 * (1 + 0.01 * run.seed) / gain}

    factory.write_all(config, tmp_path, change)
    found = Analysed.of(config, tmp_path)
    fast, slow = found.parts
    assert "Fast" in fast.host and "Slow" in slow.host
    assert {fast.figure, slow.figure} <= set(found.figures) and fast.figure != slow.figure
    gains = found.tables["scaling"].groupby("on")["speedup_same"].max()
    assert gains[fast.host] == pytest.approx(1.0) and gains[slow.host] == pytest.approx(2.0)
    assert found.tables["scaling"]["absent"].sum() == 0
    page = report.rendered([found]).decode()
    assert page.count('<section id="study-strong') == 2 and f"On {slow.host}" in page
