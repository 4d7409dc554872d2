"""What a killed writer leaves is removed by the next one, and nothing of a writer that lives."""

import os
import time
from pathlib import Path

import pytest

from ketscale import cli, files
from ketscale.jobs import session
from tests.process.integration import study


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_only_what_is_a_day_old_is_removed_and_other_files_stay(folder):
    others = {".a.json.01234567-1.tmp", ".a.json.1.tmp", ".0123.01234567-1.x_y1z.tmp"}
    own = {"a.tmp", ".a.tmp", ".a.json.x.tmp", "a.json.1.tmp", "metrics.json"}
    for name in others | own:
        (folder / name).touch()
    files.clear(folder, folder / "none")
    assert set(os.listdir(folder)) == others | own
    for name in others | own:
        os.utime(folder / name, (0, time.time() - 90000))
    files.clear(folder)
    assert set(os.listdir(folder)) == own


def abandoned(place):
    """The temporary file of a writer that was killed two days ago."""
    path = Path(place) / f"{files.temporary_prefix(Path('x'))}tmp"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (0, time.time() - 172800))
    return path


def test_the_next_stage_removes_what_the_last_left(folder):
    study.write_config(folder)
    left = {
        "prepare sentences": abandoned("results/features/sentences"),
        "report --partial": abandoned("results/tables"),
    }
    for command, path in left.items():
        assert path.exists()
        assert cli.main(command.split()) == 0
        assert not path.exists(), command


def test_the_next_process_of_a_run_removes_what_the_last_left(folder, digits_features, one_thread):
    run = study.run()
    home = study.results(folder, run)
    left = [abandoned(home / place) for place in (".", "checkpoint", "checkpoint/finished")]
    session.train(study.settings(run), home, digits_features)
    assert not [path for path in left if path.exists()]
