"""The lock of a host: any user can take it, and who holds it is said."""

import errno
import getpass
import os
import subprocess
import sys

import pytest

from ketscale.jobs.ownership import host_lock

HOLDER = """
import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, getattr(fcntl, sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def lock(tmp_path, monkeypatch):
    """A lock that no other test uses."""
    monkeypatch.setattr(host_lock.tempfile, "tempdir", str(tmp_path))
    return host_lock.path()


class Waited(Exception):
    """The lock is held; the message says by whom."""


def take(timed):
    def waits(whom):
        raise Waited(whom)

    with host_lock.hold(timed, 1, waits):
        pass


@pytest.fixture
def held(lock):
    """Holds the lock, in a process whose arguments are those of a run's."""
    started = []

    def hold(kind):
        lock.touch()
        command = [sys.executable, "-c", HOLDER, str(lock), kind, "results/runs/a/seed0/metrics.json"]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline() == "held\n"
        return started[-1]

    yield hold
    for process in started:
        process.communicate()


@pytest.mark.parametrize("timed, kind", [(True, "LOCK_SH"), (False, "LOCK_EX")])
def test_who_holds_the_host_is_said_once_with_user_and_run(held, timed, kind, tmp_path, monkeypatch):
    process = held(kind)
    (tmp_path / "locks").write_text(2 * host_lock._LOCKS.read_text())  # as it may be read on a busy machine
    monkeypatch.setattr(host_lock, "_LOCKS", tmp_path / "locks")
    with pytest.raises(Waited) as said:
        take(timed)
    assert str(said.value) == f"process {process.pid} of {getpass.getuser()} (results/runs/a/seed0)"


def test_untimed_runs_share_the_host(held):
    held("LOCK_SH")
    take(False)


def test_a_second_user_can_take_the_lock_that_a_first_one_made(lock, monkeypatch):
    """As the kernel does with fs.protected_regular=2: O_CREAT of another user's file in a sticky folder fails."""
    take(False)
    assert lock.stat().st_mode & 0o777 == 0o666
    real = os.open

    def protected(path, flags, *mode):
        if flags & os.O_CREAT and os.path.exists(path) and not flags & os.O_EXCL:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, flags, *mode)

    monkeypatch.setattr(os, "open", protected)
    take(True)


RANK = """
import os, sys, tempfile
from ketscale.jobs.ownership import host_lock
tempfile.tempdir = sys.argv[1]
with host_lock.hold(True, int(sys.argv[2]), lambda whom: print(f"waits for {whom}", flush=True)):
    print("in", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def rank(lock):
    """Starts a process that holds the lock as a timed rank of a run of so many."""
    started = []

    def start(ranks):
        command = [sys.executable, "-c", RANK, str(lock.parent), str(ranks)]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_all_ranks_of_a_launcher_hold_the_host(rank):
    ranks = [rank(2) for _ in range(2)]
    assert [process.stdout.readline() for process in ranks] == ["in\n"] * 2


def test_a_run_of_one_rank_waits_for_others_of_the_same_shell(rank):
    first = rank(1)
    assert first.stdout.readline() == "in\n"
    second = rank(1)
    assert second.stdout.readline().startswith(f"waits for process {first.pid} ")
    first.kill()
    while (said := second.stdout.readline()).startswith("waits"):
        pass
    assert said == "in\n"
