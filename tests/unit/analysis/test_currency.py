"""Whether the tables of a folder are those of the config, the records and the data that are there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from ketscale import analysis, cli
from ketscale.analysis import analysed, report
from ketscale.config import Config
from tests import records_factory as factory

LAYOUTS = ["cpu-n1r1t1", "mpi-n1r2t1", "mpi-n1r4t1"]
STRONG = {"kind": "strong", "question": "Do two ranks pay?", "axes": factory.point(backend=LAYOUTS)}
GIVEN = factory.small_study({"strong": STRONG}, title="Config A")
CONFIG = analysis.of(GIVEN)
PARTIAL = factory.partial(CONFIG)
FIRST, *_, LAST = CONFIG.runs


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with config.yaml and results of it, tables, figures and page included."""
    project = tmp_path_factory.mktemp("made")
    (project / "config.yaml").write_text(yaml.safe_dump(GIVEN))
    factory.write_all(CONFIG, project / "results")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(project)
        assert cli.main(["report"]) == 0
    return project


@pytest.fixture
def made(made_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of its results; the folder around them is the current one."""
    shutil.copytree(made_once, tmp_path / "made")
    monkeypatch.chdir(tmp_path / "made")
    return Path("results")


def other(made: Path, config: Config = CONFIG) -> bool:
    """Whether it is said that the tables are of something else."""
    return "made of another config, other records or data" in (analysed.outdated(config, made) or "")


def test_what_is_as_it_was_made_is_current_and_would_be_the_same(made: Path, made_once: Path) -> None:
    assert analysed.outdated(CONFIG, made_once / "results") is None
    assert analysed.outdated(CONFIG, made) is None, "a copy"
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    assert cli.main(["report"]) == 0
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before


def test_another_config_is_named_and_figures_of_an_earlier_report_go(made: Path) -> None:
    config = analysis.of({**factory.small_study({"other": STRONG}), "title": "Config A"})
    assert other(made, config) and other(made, analysis.of({**GIVEN, "title": "Config B"}))
    (made / "figures/mine.svg").write_text("<svg/>")
    report.build(config, made)
    assert analysed.outdated(config, made) is None and other(made)
    assert not [*made.glob("figures/strong.*")] and len([*made.glob("figures/other.*")]) == 3
    assert (made / "figures/mine.svg").exists()


def other_record(results: Path) -> object:
    return factory.write(CONFIG, results, factory.record(CONFIG, FIRST, step_s=0.5))


FEATURES = "features/digits/features.json"


@pytest.mark.parametrize("change", [
    other_record,
    lambda results: (results / FIRST.path).unlink(), lambda results: (results / FIRST.path).write_text("{"),
    lambda results: (results / FEATURES).write_text(json.dumps({"hash": "0" * 64})),
    lambda results: (results / FEATURES).unlink(),
])  # fmt: skip
def test_other_records_or_data_need_other_tables(made: Path, change: Callable[[Path], object]) -> None:
    change(made)
    assert other(made)


def test_tables_without_their_runs_are_left_alone_and_without_their_note_are_not(
    made: Path, tmp_path: Path
) -> None:
    assert analysed.outdated(CONFIG, tmp_path / "nothing") is None
    note = made / analysed.NOTE
    text = note.read_text()
    note.unlink()
    assert f"{note}: is missing" in (analysed.outdated(CONFIG, made) or "")
    note.write_text(text)
    shutil.rmtree(made / "runs")
    assert analysed.outdated(CONFIG, made) is None


@pytest.mark.parametrize("name", ["kinds/quality.py", "report/page.html.j2"])
def test_another_source_of_the_analysis_makes_other_tables(
    name: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = Path(analysis.__file__).parent
    shutil.copytree(sources, tmp_path / "analysis", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(analysed, "__file__", str(tmp_path / "analysis/currency.py"))
    monkeypatch.setattr(analysed, "_code", analysed._code.__wrapped__)
    assert analysed.outdated(CONFIG, made) is None
    (tmp_path / "analysis" / name).write_text("other")
    assert other(made)


def test_a_record_that_changes_or_comes_meanwhile_does_not_agree_with_the_tables(made: Path) -> None:
    read = analysed.records.read

    def slowly(config: Config, results: Path) -> object:
        other_record(results)
        return read(config, results)

    with patch.object(analysed.records, "read", slowly):
        report.tables(CONFIG, made)
    assert other(made)
    shutil.rmtree(made / LAST.folder)
    report.tables(PARTIAL, made)
    assert analysed.outdated(PARTIAL, made) is None
    factory.write(CONFIG, made, factory.record(CONFIG, LAST))
    assert other(made, PARTIAL)


def test_the_order_of_studies_changes_nothing(tmp_path: Path) -> None:
    """Snakemake hands the config over as text, whose studies are sorted."""
    config = factory.partial(factory.default_config())
    repeat = analysis.of({**json.loads(config.text), "partial": True})
    assert [study.name for study in repeat.studies] != [study.name for study in config.studies]
    assert analysed.digest(repeat, tmp_path) == analysed.digest(config, tmp_path)


def test_what_was_made_while_runs_were_missing_is_made_again_for_all(made: Path) -> None:
    (made / CONFIG.runs[0].path).unlink()
    report.tables(factory.partial(CONFIG), made)
    assert analysed.outdated(factory.partial(CONFIG), made) is None
    assert "no record that could be used" in (analysed.outdated(CONFIG, made) or "")
