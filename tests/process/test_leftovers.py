"""What a killed writer leaves is removed by the next one, and nothing of a writer that lives."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ketscale import cli, files
from ketscale.jobs import session
from tests.process.integration import study

# Ends, or waits, in the middle of its write.
WRITER = """
import os, sys, time
from pathlib import Path
from ketscale import files
from ketscale.problems import store
def stop(_):
    print("writing", flush=True)
    os.kill(os.getpid(), {signal})
os.fsync = stop
{write}
"""
WRITES = {
    "file": "files.write_atomic(Path('metrics.json'), b'new')",
    "folder": "store.publish(Path('features.json'), {'code_version': 1, 'data_hash': 'd', 'settings': {}}, "
    "['a'], lambda folder: (folder / 'a').touch() or {})",
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextlib.contextmanager
def writer(write, how):
    """A process that is in the middle of its write, when `how` has been done to it."""
    code = WRITER.format(write=WRITES[write], signal=int(how))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        if how == signal.SIGKILL:
            process.wait()
        yield
        process.kill()


@pytest.mark.parametrize("write", WRITES)
def test_what_a_killed_writer_leaves_is_removed(folder, write):
    with writer(write, signal.SIGKILL):
        assert len(os.listdir(folder)) == 1
        files.clear(folder, folder / "none")
    assert os.listdir(folder) == []


@pytest.mark.parametrize("write", WRITES)
def test_what_a_living_writer_writes_stays(folder, write):
    with writer(write, signal.SIGSTOP):
        files.clear(folder)
    assert len(os.listdir(folder)) == 1


def test_of_another_machine_only_what_is_a_day_old_is_removed_and_other_files_stay(folder):
    others = {".a.json.01234567-1.tmp", ".a.json.1.tmp", ".0123.01234567-1.x_y1z.tmp"}
    own = {"a.tmp", ".a.tmp", ".a.json.x.tmp", "a.json.1.tmp", "metrics.json"}
    for name in others | own:
        (folder / name).touch()
    files.clear(folder)
    assert set(os.listdir(folder)) == others | own
    for name in others | own:
        os.utime(folder / name, (0, time.time() - 90000))
    files.clear(folder)
    assert set(os.listdir(folder)) == own


@pytest.fixture
def abandoned():
    """Makes the temporary file of a process that has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    own = files.temporary_prefix(Path("x"))

    def leave(place):
        path = Path(place) / f"{own.replace(str(os.getpid()), str(ended.pid))}tmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path

    return leave


def test_the_next_stage_removes_what_the_last_left(folder, abandoned):
    study.write_config(folder)
    left = {
        "prepare sentences": abandoned("results/features/sentences"),
        "report --partial": abandoned("results/tables"),
    }
    for command, path in left.items():
        assert path.exists()
        assert cli.main(command.split()) == 0
        assert not path.exists(), command


def test_the_next_process_of_a_run_removes_what_the_last_left(folder, digits_features, one_thread, abandoned):
    run = study.run()
    home = study.results(folder, run)
    left = [abandoned(home / place) for place in (".", "checkpoint", "checkpoint/finished")]
    session.train(study.settings(run), home, digits_features, None)
    assert not [path for path in left if path.exists()]
