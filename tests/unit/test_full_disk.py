"""A results folder that cannot be written: one line names the file, and nothing is written in part."""

import os
import resource
from pathlib import Path

import pytest

from ketscale import cli, files
from ketscale.errors import in_words
from ketscale.jobs.locks import LOCK
from tests.process.integration import study

RUN = study.run(model="mlp", simulator="none", size="q0-l0", protocol="epochs")


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A study in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    study.write_config(tmp_path)


def message_of(capsys, *command):
    """The line that a failing command prints."""
    assert cli.main(command) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    return err.splitlines()[-1]


def test_a_folder_that_cannot_be_written_is_named(capsys):
    Path("results").symlink_to("nowhere")
    assert message_of(capsys, "prepare", "sentences").startswith(
        "ketscale: results: File exists, but it is not a folder"
    )
    assert not Path("nowhere").exists()


@pytest.fixture
def full():
    """No file may become larger than 100 bytes, as on a disk that is all but full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_does_not_fit_leaves_the_old_file(tmp_path, full):
    path = tmp_path / "metrics.json"
    files.write_atomic(path, b"old")
    with pytest.raises(OSError, match="File too large") as error:
        files.write_atomic(path, b"new" * 100)
    assert in_words(error.value) == f"{path}: File too large; free some space, and run the same command again"
    assert path.read_bytes() == b"old"
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_full_disk_is_named_and_holds_no_part_of_a_file(capsys, one_thread, full):
    for command in ("prepare sentences", "report --partial", f"train {study.record(RUN)}"):
        line = message_of(capsys, *command.split())
        assert line.startswith("ketscale: results/") and "File too large; free some space" in line
        assert not [path for path in Path("results").rglob("*") if path.is_file() and path.name != LOCK]
