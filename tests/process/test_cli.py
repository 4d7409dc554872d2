"""The command line: what each command is given, and what it says to a call that does not fit."""

import shlex
from pathlib import Path

import pytest

from ketscale import cli
from ketscale.jobs import launch, supervise
from ketscale.problems.registry import read_config
from tests.record_maker import ROOT

CONFIG = read_config(ROOT / "config.yaml")
ONE, OTHER = CONFIG.runs[:2]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """A folder without anything."""
    monkeypatch.chdir(tmp_path)


def refused(capsys, *arguments):
    assert cli.main(list(map(str, arguments))) == 2
    message = capsys.readouterr()
    assert message.out == "" and len(message.err.splitlines()) == 1
    return message.err


@pytest.mark.parametrize("command", ["train", "launch"])
def test_settings_of_another_run_are_refused_in_a_line(capsys, tmp_path, command):
    settings = CONFIG.settings(OTHER).text
    message = refused(capsys, command, f"results/{ONE.path}", "--settings", settings)
    assert OTHER.path in message and ONE.path in message and "--settings" in message
    assert not list(tmp_path.iterdir())


def test_a_launch_that_fails_before_its_ranks_start_says_so_in_its_runs_folder(capsys, tmp_path, monkeypatch):
    """Snakemake has made the folder, and what is said is in train.log alone; a call by hand leaves no note."""
    (tmp_path / "results" / ONE.folder).mkdir(parents=True)
    refused(capsys, "launch", f"results/{ONE.path}", "--settings", CONFIG.settings(OTHER).text)
    assert supervise.read_note(tmp_path / "results" / ONE.folder) is None
    monkeypatch.setenv("KETSCALE_CALL", "a-call")
    message = refused(capsys, "launch", f"results/{ONE.path}", "--settings", CONFIG.settings(OTHER).text)
    note = supervise.read_note(tmp_path / "results" / ONE.folder)
    assert message == f"ketscale: {note['reason']}\n"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["train", "results/runs/nonsense"], "not the path of a run"),
        (["train", f"results/{ONE.path}", "--settings", "[" * 100_000], "--settings: not JSON"),
        (["report", "--study", "{", "--local", "{}"], "--study: not JSON"),
        (["train", f"results/{ONE.path}", "--settings", "{}"], "--settings: not settings of this version"),
        (["train", f"results/{ONE.path}", "--config", "absent.yaml"], "absent.yaml"),
        (["fetch", "digits", "--config", ROOT / "config.yaml"], "there is nothing to fetch"),
        (["prepare", "digit", "--config", ROOT / "config.yaml"], "did you mean digits?"),
    ],
)
def test_a_call_that_does_not_fit_is_answered_in_a_line_and_leaves_nothing(
    capsys, tmp_path, arguments, message
):
    assert message in refused(capsys, *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("kind: accuracy", "kind: accurate", "no kind of study is called accurate"),
        ("models:", "models:\n  own: {kind: mlp, width: none}", "models.own.width"),
        ("protocols:", "protocols:\n  own: {precision: fp32}", "protocols.own"),
    ],
)
def test_no_command_works_on_a_config_whose_tables_would_be_refused(
    capsys, tmp_path, monkeypatch, old, new, message
):
    """A config is checked for all that a study uses of it: training for hours is no use if the tables are refused afterwards."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "config.yaml").read_text()
    assert f"{old}\n" in text
    (tmp_path / "config.yaml").write_text(text.replace(f"{old}\n", f"{new}\n", 1))
    commands = [["train", f"results/{ONE.path}"], ["launch", f"results/{ONE.path}"], ["prepare", "digits"]]
    commands += [["fetch", "digits"], ["report"]]
    # The others neither work on a study nor compare its runs.
    commands += [["status"], ["plan"]] if "study" not in message else []
    for command in commands:
        assert message in refused(capsys, *command), command
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize(
    "record, features, expected",
    [
        ("out/mine", None, "out/mine/features/digits/features.json"),
        ("results", "else/where.json", "else/where.json"),
    ],
)
def test_ranks_read_the_features_of_their_results_folder_or_those_given(
    monkeypatch, record, features, expected
):
    started, manifests = [], []
    monkeypatch.setattr("ketscale.jobs.supervise.run", lambda command, *rest: started.append(command) or 0)
    monkeypatch.setattr(
        "ketscale.jobs.session.train", lambda settings, folder, manifest, *rest: manifests.append(manifest)
    )
    monkeypatch.setattr("ketscale.process.end", lambda status: None)
    option = ["--features", features] if features else []
    settings = CONFIG.settings(ONE).text
    assert cli.main(["launch", f"{record}/{ONE.path}", "--settings", settings, *option]) == 0
    prefix = launch.prefix(ONE)
    assert started[0].startswith(f"{prefix} ketscale train ")
    cli.main(shlex.split(started[0].removeprefix(f"{prefix} ketscale ")))
    assert manifests == [Path(expected)]
