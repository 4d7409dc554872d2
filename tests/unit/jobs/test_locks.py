"""Invariants: one writer a run, and a timed run has its host to itself; the kernel gives back what a killed process held."""

import errno
import os
import subprocess
import sys

import pytest

from ketscale import process
from ketscale.jobs import host_lock, locks
from ketscale.jobs.locks import Lock

WRITER = """
import sys
from pathlib import Path
from ketscale.jobs.locks import Lock
lock = Lock(Path(sys.argv[1]))
print(lock.acquire(), flush=True)
sys.stdin.read()
lock.finished = True
lock.release()
"""
RUN = """
import sys
from ketscale.jobs import host_lock
with host_lock.hold(sys.argv[2] == "timed"):
    print("in", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def outside_slurm(monkeypatch, tmp_path):
    """No job, and a host that no other test uses."""
    for name in ("SLURM_JOB_ID", "SLURMD_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def start(tmp_path):
    """Starts processes with a program, and ends those that are left."""
    started = []

    def start_one(program, *arguments):
        command = [sys.executable, "-c", program, str(tmp_path), *arguments]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield start_one
    for one in started:
        one.kill()
        one.communicate()


def test_one_process_writes_and_the_next_follows_it(tmp_path, start):
    lock = Lock(tmp_path)
    assert locks.holder(tmp_path) is locks.last(tmp_path) is None
    assert lock.acquire() and lock.acquire() and lock.former is None
    holder = locks.holder(tmp_path)
    assert (holder.host, holder.pid, holder.job) == (process.node_name(), os.getpid(), None)
    second = start(WRITER)
    assert second.stdout.readline() == "False\n"
    second.communicate("")
    lock.release()
    assert locks.holder(tmp_path) is None and locks.last(tmp_path).until
    # It gave the lock back without having finished.
    third = start(WRITER)
    assert third.stdout.readline() == "True\n" and not lock.acquire()
    third.communicate("")
    assert locks.last(tmp_path).finished
    assert lock.acquire() and lock.former is None
    lock.release()
    assert lock.acquire() and lock.former.pid == os.getpid()
    lock.release()


def test_a_killed_process_is_followed_and_named(tmp_path, start):
    writer = start(WRITER)
    assert writer.stdout.readline() == "True\n"
    assert locks.holder(tmp_path).pid == writer.pid
    writer.kill()
    writer.wait()
    assert locks.holder(tmp_path) is None
    assert (locks.last(tmp_path).pid, locks.last(tmp_path).until) == (writer.pid, None)
    lock = Lock(tmp_path)
    assert lock.acquire() and lock.former.pid == writer.pid
    # Nothing was done: the next one goes on from what the killed one left.
    lock.release(untouched=True)
    assert (locks.last(tmp_path).pid, locks.last(tmp_path).until) == (writer.pid, None)
    assert lock.acquire() and lock.former.pid == writer.pid
    lock.release()


def test_a_file_system_without_locks_has_a_lock_too(tmp_path, monkeypatch, start):
    def missing(descriptor, kind):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", missing)
    one, other = Lock(tmp_path), Lock(tmp_path)
    with pytest.warns(UserWarning, match="flock"):  # noqa: PT031
        assert one.acquire()
        assert not other.acquire() and locks.holder(tmp_path).pid == os.getpid()
        one.release()
        assert other.acquire()
        other.release()


@pytest.mark.parametrize("holder, timed, waits", [("timed", "", 1), ("", "timed", 1), ("", "", 0)])
def test_a_timed_run_has_its_host_to_itself(start, holder, timed, waits):
    first = start(RUN, holder)
    assert first.stdout.readline() == "in\n"
    second = start(RUN, timed)
    if waits:
        assert host_lock.WAITS in second.stderr.readline()
        first.kill()
    assert second.stdout.readline() == "in\n"


def test_a_second_user_can_take_the_lock_that_a_first_one_made(monkeypatch):
    """As the kernel does with fs.protected_regular=2: O_CREAT of another user's file in a sticky folder fails."""
    with host_lock.hold(False):
        assert host_lock.path().stat().st_mode & 0o777 == 0o666
    real = os.open

    def protected(path, flags, *mode):
        if flags & os.O_CREAT and os.path.exists(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, flags, *mode)

    monkeypatch.setattr(os, "open", protected)
    with host_lock.hold(True):
        pass
