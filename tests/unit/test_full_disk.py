"""A results folder that cannot be written: one line names the file, and nothing is written in part."""

import errno
import os
import re
import resource
from pathlib import Path

import pytest

from ketscale import cli, files
from ketscale.errors import in_words
from ketscale.jobs import supervise
from tests.process.integration import study

RUN = study.run(model="mlp", simulator="none", size="q0-l0", protocol="epochs")
BENCH = "bench simulators --qubits 2 --batch 1 --ansatz vqc --simulators kronecker,default.qubit --json results/b.json"
COMMANDS = ["prepare sentences", "report --partial", f"train {study.record(RUN)}", BENCH]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A study in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    study.write_config(tmp_path)


def said(capsys, *command):
    """The line that a failing command prints."""
    assert cli.main(command) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    return err.splitlines()[-1]


@pytest.fixture(params=["link", "file", "read-only"])
def results(request, monkeypatch):
    """A results folder in which nothing can be written, and what is said of it."""
    if request.param == "link":
        Path("results").symlink_to("nowhere")
        return "results: File exists, but it is not a folder"
    if request.param == "file":
        Path("results").touch()
        return "Not a directory|results: File exists, but it is not a folder"

    def refused(path, *_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "mkdir", refused)
    return "Read-only file system; it cannot be written here"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[0])
def test_a_folder_that_cannot_be_written_is_named(capsys, one_thread, results, command):
    line = said(capsys, *command.split())
    assert line.startswith("ketscale: results") and re.search(results, line)
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("nowhere"), lambda path: path.touch()])
def test_status_names_results_that_are_no_folder(capsys, make):
    make(Path("results"))
    assert (
        said(capsys, "status")
        == "ketscale: results: is not a folder, nor a link to one; move it away or set `results`"
    )


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


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[0])
def test_a_full_disk_is_named_and_holds_no_part_of_a_file(capsys, one_thread, full, command):
    line = said(capsys, *command.split())
    assert line.startswith("ketscale: results/") and "File too large; free some space" in line
    assert not [path for path in Path("results").rglob("*") if path.is_file()]


def test_a_note_that_cannot_be_written_is_said_and_ends_nothing(capsys, monkeypatch, tmp_path):
    (tmp_path / supervise.NOTE).mkdir()
    supervise.leave_note_of("launch", tmp_path, "it was told to stop")
    assert capsys.readouterr().err == f"ketscale: {tmp_path / supervise.NOTE}: is not a file\n"


def test_a_device_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is not a file"):
        files.write_atomic(tmp_path / "pipe", b"")


def test_a_fault_of_the_program_is_not_the_users():
    assert in_words(OSError(errno.EIO, "x")) is None and in_words(ValueError("x")) is None
    assert in_words(FileNotFoundError(errno.ENOENT, "missing", "a\nb")) == r"a\nb: missing"
    assert in_words(OSError(errno.ENOSPC, "No space left on device")).startswith("the output: No space left")
