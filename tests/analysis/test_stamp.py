"""Tables, figures and page are used only for the config, the records and the data that they were made from."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ketscale import analysis, cli
from ketscale.analysis import catalogue, report, stamp, tables
from ketscale.config import Config
from ketscale.errors import UserError
from tests import records_factory as factory

STRONG = {
    "kind": "strong",
    "question": "Do two ranks pay?",
    "axes": factory.point(backend=["cpu-n1r1t1", "mpi-n1r2t1"]),
}
GIVEN = factory.small_study({"strong": STRONG}, title="Config A")
CONFIG = analysis.of(GIVEN)
PARTIAL = factory.partial(CONFIG)
FIRST, *_, LAST = CONFIG.runs
FILES = [f"{table}.csv" for table in catalogue.TABLES]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with config.yaml and results of it, tables, figures and page included."""
    project = tmp_path_factory.mktemp("made")
    (project / "config.yaml").write_text(yaml.safe_dump(GIVEN))
    factory.write_all(CONFIG, project / "results")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(project)
        assert [cli.main([stage]) for stage in ("collect", "figures", "report")] == [0, 0, 0]
    return project


@pytest.fixture
def made(made_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of its results; the folder around them is the current one."""
    shutil.copytree(made_once, tmp_path / "made")
    monkeypatch.chdir(tmp_path / "made")
    return Path("results")


def refused(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """What a command says that refuses, and changes nothing."""
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert cli.main(command) == 2
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before
    return capsys.readouterr().err


def test_what_is_as_it_was_made_is_used_again(made: Path) -> None:
    assert stamp.outdated(CONFIG, made) is None
    page = (made / "report.html").read_bytes()
    assert cli.main(["figures"]) == cli.main(["report"]) == 0
    assert (made / "report.html").read_bytes() == page


@pytest.mark.parametrize("stage", ["figures", "report"])
def test_another_config_gets_neither_figures_nor_a_page_of_these_numbers(
    made: Path, capsys: pytest.CaptureFixture[str], stage: str
) -> None:
    Path("b.yaml").write_text(yaml.safe_dump({**GIVEN, "title": "Config B"}))
    said = refused(capsys, stage, "--config", "b.yaml")
    assert (
        "results/tables: made for another config than this one ('Config B'); run `ketscale collect`" in said
    )
    assert cli.main(["collect", "--config", "b.yaml"]) == 0
    # The figures are still those of the other tables.
    assert "results/figures: drawn from other tables" in refused(capsys, "report", "--config", "b.yaml")


@pytest.mark.parametrize("name", ["answers.csv", "claims.csv", "config.json", "stamp.json"])
def test_an_edited_table_is_named_whoever_reads_it(
    made: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = made / "tables" / name
    path.write_bytes(path.read_bytes()[:-3])
    for stage in ("figures", "report"):
        assert f"{path}: " in (said := refused(capsys, stage)) and "run `ketscale collect` again" in said
    found = stamp.outdated(CONFIG, made)
    assert found is not None and found[0] == "tables/stamp.json"
    shutil.copytree(made, "other")
    shutil.copy(made / "tables" / FILES[0], "other/tables")
    assert "results/tables/" in refused(capsys, "merge", "results", "other")


@pytest.mark.parametrize("name", ["strong.svg", "spans.csv"])
def test_an_edited_or_deleted_figure_is_named(
    made: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = made / "figures" / name
    path.write_bytes(path.read_bytes() + b" ")
    assert f"{path}: is not the file that was made" in refused(capsys, "report")
    path.unlink()
    assert f"{path}: is missing; run `ketscale figures` again" in refused(capsys, "report")
    found = stamp.outdated(CONFIG, made)
    assert found is not None and found[0] == "figures/stamp.json"


def other_record(results: Path) -> None:
    factory.write(CONFIG, results, factory.record(CONFIG, FIRST, step_s=0.5))


def no_record(results: Path) -> None:
    (results / FIRST.path).unlink()


def damaged_record(results: Path) -> None:
    (results / FIRST.path).write_text("{")


def other_data(results: Path) -> None:
    (results / "features/digits/features.json").write_text(json.dumps({"hash": "0" * 64}))


@pytest.mark.parametrize("change", [other_record, no_record, damaged_record, other_data])
def test_other_records_or_data_need_other_tables(
    made: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], None]
) -> None:
    change(made)
    said = refused(capsys, "report")
    assert "changed" in said and "run `ketscale collect` again" in said
    found = stamp.outdated(CONFIG, made)
    assert found is not None and found[0] == "tables/stamp.json"


def test_a_record_that_changes_while_tables_are_made_of_it_does_not_agree_with_them(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = tables.records.read

    def slowly(config: Config, results: Path) -> object:
        other_record(results)
        return read(config, results)

    monkeypatch.setattr(tables.records, "read", slowly)
    tables.collect(CONFIG, made)
    with pytest.raises(UserError, match=f"{FIRST.seed}/metrics.json has changed or gone"):
        stamp.tables(CONFIG, made)


def test_tables_of_another_version_or_ledger_are_refused(made: Path) -> None:
    path = made / "tables/stamp.json"
    for name, said in (("version", "made by KetScale 0.0.0"), ("ledger", "judged other claims")):
        before = path.read_text()
        path.write_text(json.dumps(json.loads(before) | {name: "0.0.0"}))
        with pytest.raises(UserError, match=said):
            stamp.tables(CONFIG, made)
        path.write_text(before)


def test_a_folder_that_was_copied_without_its_runs_is_used(made: Path) -> None:
    shutil.rmtree(made / "runs")
    shutil.rmtree(made / "features")
    assert cli.main(["figures"]) == cli.main(["report"]) == 0


def test_a_partial_collection_stays_while_runs_end_but_is_not_a_whole_one(tmp_path: Path) -> None:
    factory.write_all(CONFIG, tmp_path, lambda run: None if run == LAST else {})
    tables.collect(PARTIAL, tmp_path)
    assert stamp.outdated(PARTIAL, tmp_path) is None
    found = stamp.outdated(CONFIG, tmp_path)
    assert found is not None and "had no record" in found[1]
    factory.write(CONFIG, tmp_path, factory.record(CONFIG, LAST))
    stamp.tables(CONFIG, tmp_path)
    # Snakemake makes a page of all runs that are there.
    found = stamp.outdated(PARTIAL, tmp_path)
    assert found is not None and "records came" in found[1]


def test_a_page_says_which_package_made_its_tables(made: Path) -> None:
    from ketscale import __version__

    assert f"<dt>tables</dt><dd>KetScale {__version__}</dd>" in (made / "report.html").read_text()


def test_two_calls_that_write_the_same_tables_both_end_well(tmp_path: Path) -> None:
    """A reader finds the tables of one of them, meanwhile and afterwards."""
    found, ended = stamp.records(CONFIG, tmp_path), threading.Event()
    read: list[set[bytes]] = []
    faults: list[Exception] = []

    def write(content: bytes) -> None:
        stamp.write_tables(PARTIAL, tmp_path, dict.fromkeys(FILES, content), found, complete=False)

    def often(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            faults.append(error)

    def look() -> None:
        while not ended.is_set():
            read.append(set(stamp.tables(CONFIG, tmp_path).contents.values()))

    write(b"neither")
    reader = threading.Thread(target=often, args=[look])
    reader.start()
    writers = [
        threading.Thread(target=often, args=[lambda content=content: [write(content) for _ in range(8)]])
        for content in (b"one", b"another")
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    ended.set()
    reader.join()
    assert not faults
    assert all(len(contents) == 1 for contents in read)
    assert set(stamp.tables(CONFIG, tmp_path).contents.values()) in ({b"one"}, {b"another"})


def test_a_call_that_holds_the_tables_for_ever_is_not_waited_for(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamp, "_PATIENCE_S", 0.05)
    with stamp._lock(made / "tables", stamp.fcntl.LOCK_EX), pytest.raises(UserError, match="another call"):
        report.build(CONFIG, made)


@pytest.mark.parametrize("gone", ["tables/stamp.json", "figures/stamp.json", "tables", "figures"])
def test_what_has_no_stamp_any_more_is_made_again(made: Path, gone: str) -> None:
    path = made / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    stage, why = stamp.outdated(CONFIG, made) or ("", "")
    assert stage == f"{gone.partition('/')[0]}/stamp.json" and "is missing" in why


def test_nothing_is_said_about_what_was_never_made(made: Path) -> None:
    for name in ("tables", "figures"):
        shutil.rmtree(made / name)
    (made / "report.html").unlink()
    assert stamp.outdated(CONFIG, made) is None


def test_a_pipe_in_place_of_a_stamp_is_named(made: Path) -> None:
    (made / "tables/stamp.json").unlink()
    os.mkfifo(made / "tables/stamp.json")
    stage, why = stamp.outdated(CONFIG, made) or ("", "")
    assert stage == "tables/stamp.json" and "is a pipe" in why


@pytest.mark.parametrize("name", ["../../x.csv", "a\0b", "/etc/hostname"])
def test_a_stamp_names_files_of_its_folder_alone(made: Path, name: str) -> None:
    path = made / "tables/stamp.json"
    said = json.loads(path.read_text())
    said["files"][name] = "0" * 64
    path.write_text(json.dumps(said))
    with pytest.raises(UserError, match=r"stamp\.json: damaged"):
        stamp.tables(CONFIG, made)


def test_a_page_that_was_edited_is_made_again(made: Path) -> None:
    page = made / "report.html"
    assert stamp.outdated(CONFIG, made) is None
    for change in (lambda text: text.replace(b"</body>", b" </body>"), lambda text: text + b"\n"):
        before = page.read_bytes()
        page.write_bytes(change(before))
        assert page.read_bytes() != before
        assert stamp.outdated(CONFIG, made) == (
            "report.html",
            f"{page}: is not the file that was made: edited or damaged",
        )
        page.write_bytes(before)
