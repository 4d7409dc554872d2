"""The lock of a host: any user can take it, who holds it is said, and nothing but a file can be one."""

import errno
import getpass
import os
import subprocess
import sys

import pytest

from ketscale.errors import UserError
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
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "held\n"
        started.append(process)
        return process

    yield hold
    for process in started:
        process.communicate()


@pytest.mark.parametrize("timed, kind", [(True, "LOCK_EX"), (True, "LOCK_SH"), (False, "LOCK_EX")])
def test_who_holds_the_host_is_said_with_user_and_run(held, timed, kind):
    process = held(kind)
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


def test_two_who_make_the_lock_at_once_take_the_same(lock, monkeypatch):
    real = os.open

    def slower(path, flags, *mode):
        if flags & os.O_CREAT:
            os.close(real(path, flags, *mode))
        return real(path, flags, *mode)

    monkeypatch.setattr(os, "open", slower)
    take(True)


@pytest.mark.parametrize(
    "make",
    [
        lambda lock: lock.mkdir(),
        lambda lock: lock.symlink_to("elsewhere"),
        lambda lock: os.mkfifo(lock),
        lambda lock: lock.parent.rmdir(),
    ],
    ids=["folder", "link", "pipe", "no-folder"],
)
def test_what_cannot_be_the_lock_is_named(lock, make):
    make(lock)
    with pytest.raises(UserError, match=f"{lock}: cannot be the lock .* set TMPDIR"):
        take(True)
    assert not (lock.parent / "elsewhere").exists()


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
    """Starts a process that holds the lock as a timed rank of a run of so many, whatever its variables say."""
    started = []

    def start(ranks, **variables):
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", RANK, str(lock.parent), str(ranks)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | variables,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


LEFT = [
    {},
    {"LOCAL_RANK": "abc", "OMPI_COMM_WORLD_LOCAL_RANK": ""},
]


@pytest.mark.parametrize("left", LEFT)
def test_all_ranks_of_a_launcher_hold_the_host_whatever_variables_others_left(rank, left):
    ranks = [rank(3, **left) for _ in range(3)]
    assert [process.stdout.readline() for process in ranks] == ["in\n"] * 3


@pytest.mark.parametrize("left", LEFT)
def test_a_run_of_one_rank_waits_for_others_of_the_same_shell(rank, left):
    first, second = rank(1, **left), None
    assert first.stdout.readline() == "in\n"
    second = rank(1, **left)
    assert second.stdout.readline().startswith(f"waits for process {first.pid} ")
    first.kill()
    while (said := second.stdout.readline()).startswith("waits"):
        pass
    assert said == "in\n"


def test_ranks_of_another_launcher_wait(rank, lock):
    """As of another mpirun, which is the parent of its ranks; one of them says for whom."""
    ours = rank(2)
    assert ours.stdout.readline() == "in\n"
    launcher = f"import subprocess, sys; [c.wait() for c in [subprocess.Popen([sys.executable, '-c', {RANK!r}, *sys.argv[1:]]) for _ in '12']]"
    with subprocess.Popen(
        [sys.executable, "-c", launcher, str(lock.parent), "2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as others:
        assert others.stdout.readline().startswith(f"waits for process {ours.pid} ")
        ours.kill()
        said = []
        while said.count("in\n") < 2:
            said.append(others.stdout.readline())
            assert said[-1], said
        others.stdin.close()
        assert others.wait(60) == 0
