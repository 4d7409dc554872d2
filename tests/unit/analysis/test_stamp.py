"""Tables, figures and page are those of the config, the records and the data that they were made from, or made again."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ketscale import analysis, cli
from ketscale.analysis import analysed, report, stamp
from ketscale.config import Config
from ketscale.jobs import baselines
from tests import records_factory as factory

STRONG = {
    "kind": "strong",
    "question": "Do two ranks pay?",
    "axes": factory.point(backend=["cpu-n1r1t1", "mpi-n1r2t1", "mpi-n1r4t1"]),
}
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


def why(made: Path, config: Config = CONFIG) -> str:
    """Why the report must be made again."""
    found = stamp.outdated(config, made)
    assert found is not None
    return found


def test_what_is_as_it_was_made_is_not_made_again_and_would_be_the_same(made: Path) -> None:
    assert stamp.outdated(CONFIG, made) is None
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    assert cli.main(["report"]) == 0
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before


def test_other_baselines_are_named(made: Path) -> None:
    file = baselines.path(CONFIG, made, FIRST.workload)
    assert file is not None
    baselines.write(file, factory.FEATURES, [baselines.Baseline("bigram", test=0.5)])
    assert "baselines have changed" in why(made)


def test_another_config_gets_no_page_of_these_numbers(made: Path) -> None:
    other = analysis.of({**GIVEN, "title": "Config B"})
    assert "report.html: made for another config than this one ('Config B')" in why(made, other)
    report.build(other, made)
    assert stamp.outdated(other, made) is None and stamp.outdated(CONFIG, made) is not None


def test_what_was_edited_or_deleted_is_named_and_made_again(made: Path) -> None:
    names = ("tables/answers.csv", "tables/config.json", "figures/strong.svg", "report.html")
    before = {name: (made / name).read_bytes() for name in names}
    for name, content in before.items():
        path = made / name
        path.write_bytes(content.replace(b"e", b"f", 1))
        assert why(made) == f"{path}: is not the file that was made: edited or damaged"
        path.unlink()
        assert why(made) == f"{path}: is missing"
        path.write_bytes(content)
    (made / "report.html").unlink()
    (made / "tables/answers.csv").write_text("")
    assert cli.main(["report"]) == 0
    assert {name: (made / name).read_bytes() for name in names} == before
    assert stamp.outdated(CONFIG, made) is None


def test_a_figure_of_an_earlier_report_goes(made: Path) -> None:
    fewer = analysis.of(factory.small_study({"other": STRONG}))
    report.build(fewer, made)
    assert not (made / "figures/strong.svg").exists() and (made / "figures/other.svg").exists()


def other_record(results: Path) -> object:
    return factory.write(CONFIG, results, factory.record(CONFIG, FIRST, step_s=0.5))


FEATURES = "features/digits/features.json"


@pytest.mark.parametrize(
    "change",
    [
        other_record,
        lambda results: (results / FIRST.path).unlink(),
        lambda results: (results / FIRST.path).write_text("{"),
        lambda results: (results / FEATURES).write_text(json.dumps({"hash": "0" * 64})),
        lambda results: (results / FEATURES).unlink(),
    ],
)
def test_other_records_or_data_need_another_report(made: Path, change: Callable[[Path], object]) -> None:
    change(made)
    assert "changed" in why(made)


def test_a_record_that_changes_while_the_report_is_made_does_not_agree_with_it(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = analysed.records.read

    def slowly(config: Config, results: Path) -> object:
        other_record(results)
        return read(config, results)

    monkeypatch.setattr(analysed.records, "read", slowly)
    report.build(CONFIG, made)
    assert f"{FIRST.seed}/metrics.json has changed or gone" in why(made)


def test_a_report_of_another_version_is_made_again(made: Path) -> None:
    path = made / "stamp.json"
    given = json.loads(path.read_text())
    given["sources"]["version"] = "0.0.0"
    path.write_text(json.dumps(given))
    assert "made by KetScale 0.0.0" in why(made)


def test_a_partial_report_is_not_a_whole_one(tmp_path: Path) -> None:
    factory.write_all(CONFIG, tmp_path, lambda run: None if run == LAST else {})
    report.build(PARTIAL, tmp_path)
    assert stamp.outdated(PARTIAL, tmp_path) is None
    assert "had no record" in why(tmp_path)
    factory.write(CONFIG, tmp_path, factory.record(CONFIG, LAST))
    # Snakemake makes a page of all runs that are there.
    assert "records came" in why(tmp_path, PARTIAL)


def test_two_calls_that_write_the_same_report_both_end_well(tmp_path: Path) -> None:
    """The files are those of one of them, meanwhile and afterwards."""
    found, ended = stamp.Sources.of(PARTIAL, tmp_path), threading.Event()
    files = [f"{folder}/{number}.csv" for folder in ("tables", "figures") for number in range(8)]
    read: list[str | None] = []

    def write(content: bytes) -> None:
        stamp.write(tmp_path, dict.fromkeys(files, content), found, complete=False)

    def look() -> None:
        while not ended.is_set():
            read.append(stamp.outdated(PARTIAL, tmp_path))

    write(b"neither")
    reader = threading.Thread(target=look)
    reader.start()
    writers = [
        threading.Thread(target=lambda content=content: [write(content) for _ in range(8)])
        for content in (b"one", b"another")
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    ended.set()
    reader.join()
    assert read and set(read) == {None} and stamp.outdated(PARTIAL, tmp_path) is None
    assert {(tmp_path / name).read_bytes() for name in files} in ({b"one"}, {b"another"})
