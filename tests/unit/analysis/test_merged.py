"""One page of several results folders, and of several machines in one folder: what is of each is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ketscale.analysis import report
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.drawing import style
from ketscale.config import Config
from ketscale.grid import Run
from tests import records_factory as factory
from tests.unit.analysis.test_report import Page

STUDIES = factory.default_study()["studies"]
SPEED = factory.small_config({"strong": STUDIES["strong"]}, partial=True)


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


def test_each_folder_of_a_merged_page_has_its_own_sections_files_and_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two machines with the same study; the page is beside them. No figure is drawn in full."""
    monkeypatch.setattr(
        style, "files", lambda *_: dict.fromkeys(("svg", "png", "narrow.svg", "csv"), b"<svg></svg>")
    )
    measured(SPEED, tmp_path / "one", "Fast CPU")
    measured(SPEED, tmp_path / "my study", "Slow CPU", 3.0)
    (tmp_path / "pages").mkdir()
    report.merge([tmp_path / "one", tmp_path / "my study"], tmp_path / "pages/all.html")
    page = (tmp_path / "pages/all.html").read_text()
    found = Page(page)
    assert len(found.ids) == len(set(found.ids))
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    files = {link for link in found.links if not link.startswith("#")}
    assert f"../one/{min(SPEED.runs).path}" in files and "../my%20study/tables/runs.csv" in files
    assert all((tmp_path / "pages" / link.replace("%20", " ")).exists() for link in files)
    two = page.split('<h2 id="my_study-answers">')[1].split("<h2")[0]
    assert "Slow CPU, 2 cores" in two and "Fast CPU" not in two


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
    assert fast.figure != slow.figure
    gains = found.tables["scaling"].groupby("on")["speedup_same"].max()
    assert gains[fast.host] == pytest.approx(1.0) and gains[slow.host] == pytest.approx(2.0)
    assert found.tables["scaling"]["absent"].sum() == 0
