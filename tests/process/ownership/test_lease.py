"""Invariant: one writer a run; a dead one is followed by exactly one, and a frozen one stops before it writes."""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from ketscale import process
from ketscale.errors import UserError
from ketscale.jobs.ownership import lease
from ketscale.jobs.ownership.lease import Lease

DEADLINE_S = 60.0

# Acquires, says so, and at each line of its input says whether it may still write; then it releases.
WRITER = """
import sys
from pathlib import Path
from ketscale.errors import UserError
from ketscale.jobs.ownership.lease import Lease
mine = Lease(Path(sys.argv[1]), interval_s=0.05)
print(mine.try_acquire(), flush=True)
for _ in sys.stdin:
    try:
        mine.check()
        print("held", flush=True)
    except UserError as error:
        print(error, flush=True)
mine.release()
"""


@pytest.fixture(autouse=True)
def outside_slurm(monkeypatch):
    """Nothing but a test says which job and node it is, whatever runs these tests."""
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_CLUSTER_NAME", "SLURMD_NODENAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def make(tmp_path):
    """Makes leases on one folder, with short times, and releases them in the end."""
    made = []

    def lease_of(**keywords):
        made.append(Lease(tmp_path, **({"interval_s": 0.05, "patience_s": 0.6} | keywords)))
        return made[-1]

    yield lease_of
    for one in made:
        one.release()


@pytest.fixture
def clock(monkeypatch):
    """The contender's monotonic clock, which stands still unless a test moves it."""
    hand = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(lease, "time", SimpleNamespace(monotonic=lambda: hand.now))
    return hand


def write(folder, generation=1, **changes):
    """A lease as a process on another host left it."""
    content = process.identity() | {"host": "elsewhere", "interval_s": 0.05, "token": "theirs"}
    content |= {
        "since": "2026-01-02T03:00:00Z",
        "beat": 3,
        "at": "2026-01-02T03:04:05Z",
        "released": False,
        "finished": False,
    } | changes
    (folder / "lease").mkdir(exist_ok=True)
    (folder / "lease" / f"{generation}.json").write_text(json.dumps(content))
    return content


def files(folder):
    return sorted(os.listdir(folder / "lease"))


def wait_for(condition):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "not within a minute"
        time.sleep(0.01)


@pytest.fixture
def start():
    """Starts Python programs that talk through pipes, and kills what is left of them in the end."""
    started = []

    def run(program, *arguments, **environment):
        command = [sys.executable, "-c", program, *map(str, arguments)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, env=os.environ | environment, **pipes))
        return started[-1]

    yield run
    for child in started:
        child.kill()
        child.communicate()


@pytest.fixture
def gone():
    """The id of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        pass
    return process.pid


def state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_a_free_folder_is_taken_at_once_and_beats(tmp_path, make):
    mine = make()
    assert lease.read(tmp_path) is None
    assert mine.try_acquire() and mine.try_acquire()
    mine.check()
    assert mine.former is None
    content = lease.read(tmp_path)
    assert content["pid"] == os.getpid() and content["released"] is False
    wait_for(lambda: lease.read(tmp_path)["beat"] >= content["beat"] + 3)
    wait_for(lambda: lease.read(tmp_path)["at"] > content["at"])
    assert lease.read(tmp_path)["since"] == content["since"]
    mine.check()
    mine.release()
    mine.release()
    assert files(tmp_path) == ["1.json"] and lease.read(tmp_path)["released"] is True
    following = make()
    assert following.try_acquire() and following.former["released"] is True


def test_a_killed_process_of_this_host_is_followed_at_once(tmp_path, make, start, clock):
    writer = start(WRITER, tmp_path)
    assert writer.stdout.readline() == "True\n"
    mine = make()
    assert not mine.try_acquire()
    writer.kill()
    wait_for(lambda: state(writer.pid) == "Z")  # nobody has waited for it yet: dead all the same
    assert mine.try_acquire()
    assert mine.former["pid"] == writer.pid and mine.former["released"] is False
    assert "2.json" in files(tmp_path) and "1.json" not in files(tmp_path)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_former_life_of_this_job_and_what_is_damaged_are_followed(
    tmp_path, make, clock, monkeypatch, damaged
):
    """At once, and after the patience: what a contender that died has left may be empty."""
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    write(tmp_path, job="77", restarts=2)  # another step of this life
    assert not make().try_acquire()
    write(tmp_path, job="77", restarts=1, beat=8)
    mine = make(patience_s=60.0)
    if damaged:
        (tmp_path / "lease" / "2.json").write_bytes(b"")
        for _ in range(60):
            assert not mine.try_acquire()
            clock.now += 1.0
    assert mine.try_acquire() and mine.former["beat"] == 8


def test_processes_of_another_boot_or_host_or_with_the_same_number_are_told_apart(
    tmp_path, make, gone, clock
):
    me = process.identity()
    for other in ({"boot": "b"}, {"pid_namespace": "pid:[1]"}, {"host": "h"}):
        write(tmp_path, **({"host": me["host"], "pid": gone} | other))
        assert not make().try_acquire(), other
    write(tmp_path, host=me["host"], started=me["started"] - 0.01)
    assert make().try_acquire()


def test_another_host_is_held_while_it_beats_and_stale_after_the_patience(tmp_path, make, clock):
    mine = make(patience_s=60.0)
    for beat in range(70):
        write(tmp_path, beat=beat, at="1999-01-01T00:00:00Z")  # a clock years behind does not matter
        assert not mine.try_acquire()
        clock.now += 1.0
    for _ in range(59):
        assert not mine.try_acquire()
        clock.now += 1.0
    assert mine.try_acquire()  # a minute after it first saw the last beat
    assert mine.former["beat"] == 69


RACER = """
import sys, time
from pathlib import Path
from ketscale.jobs.ownership.lease import Lease
mine = Lease(Path(sys.argv[1]))
print("ready", flush=True)
while not Path(sys.argv[2]).exists():
    pass
print(mine.try_acquire(), flush=True)
sys.stdin.read()
"""


def test_exactly_one_of_many_processes_follows(tmp_path, start, gone):
    write(tmp_path, host=process.identity()["host"], pid=gone)
    racers = [start(RACER, tmp_path, tmp_path / "go") for _ in range(4)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    (tmp_path / "go").touch()
    won = [racer.stdout.readline() for racer in racers]
    assert sorted(won) == ["False\n"] * 3 + ["True\n"]


def test_a_contender_that_slept_through_two_generations_holds_nothing(tmp_path, make, monkeypatch):
    write(tmp_path, released=True)
    slow, second, third = make(), make(), make()
    create = Lease._create

    def late(self, generation):
        monkeypatch.undo()
        assert second.try_acquire()
        second.release()
        assert third.try_acquire()
        assert "2.json" not in files(tmp_path)  # free to be created once more
        return create(self, generation)

    monkeypatch.setattr(Lease, "_create", late)
    assert not slow.try_acquire()
    third.check()
    third.release()
    assert files(tmp_path) == ["3.json"]


def test_a_frozen_owner_finds_out_and_leaves_the_new_lease_alone(tmp_path, make, start):
    owner = start(WRITER, tmp_path, SLURM_JOB_ID="1", SLURMD_NODENAME="elsewhere")
    assert owner.stdout.readline() == "True\n"
    print("", file=owner.stdin, flush=True)
    assert owner.stdout.readline() == "held\n"
    os.kill(owner.pid, signal.SIGSTOP)
    mine = make()
    wait_for(mine.try_acquire)
    assert mine.former["host"] == "elsewhere"
    os.kill(owner.pid, signal.SIGCONT)
    print("", file=owner.stdin, flush=True)
    told = owner.stdout.readline()
    assert "another process has taken over this run" in told and f"process {os.getpid()}" in told
    owner.communicate()
    assert owner.returncode == 0
    mine.check()
    assert lease.read(tmp_path)["released"] is False
    mine.release()
    assert files(tmp_path)[-1] == "2.json"


# Long intervals: it is `check` and `release` that find out here, not the heartbeat.
def test_check_looks_for_itself(tmp_path, make):
    mine = make(interval_s=3600.0)
    assert mine.try_acquire()
    write(tmp_path, generation=2)
    assert not mine.lost
    for _ in range(2):
        with pytest.raises(UserError, match=r"this process stops and writes nothing"):
            mine.check()
    (tmp_path / "lease" / "2.json").unlink()
    with pytest.raises(UserError, match=r"this process stops and writes nothing"):  # once lost, lost for good
        mine.check()
    assert not mine.try_acquire()
