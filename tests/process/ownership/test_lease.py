"""Invariant: one writer a run; a dead one is followed by exactly one, and a frozen one stops before it writes."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from ketscale import process, strict_json
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
    assert files(tmp_path)[-1] == "1.json"


def test_a_released_lease_is_free_at_once_and_leaves_no_hole(tmp_path, make):
    first, second = make(), make()
    assert first.try_acquire()
    first.release()
    first.release()
    assert files(tmp_path) == ["1.json"] and lease.read(tmp_path)["released"] is True
    assert second.try_acquire()
    assert second.former["released"] is True
    second.release()
    first.release()
    assert files(tmp_path) == ["2.json"] and lease.read(tmp_path)["released"] is True
    assert first.try_acquire()  # the same object again
    first.check()


def test_after_a_finished_run_nothing_came_before(make):
    first, second = make(), make()
    assert first.try_acquire()
    first.finished = True
    first.release()
    assert second.try_acquire()
    assert second.former is None


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


def test_a_recycled_process_id_is_not_the_owner(tmp_path, make, clock):
    me = process.identity()
    write(tmp_path, host=me["host"], started=me["started"] - 0.01)
    assert make().try_acquire()


def test_a_live_process_of_this_host_is_never_stale_by_time(tmp_path, make, clock):
    write(tmp_path, host=process.identity()["host"])
    mine = make()
    for _ in range(100):
        assert not mine.try_acquire()
        clock.now += 1.0


@pytest.mark.parametrize(
    "other", [{"boot": "b"}, {"boot": None}, {"pid_namespace": "pid:[1]"}, {"host": "h"}]
)
def test_process_ids_of_another_boot_or_container_or_host_say_nothing(tmp_path, make, gone, clock, other):
    write(tmp_path, **({"host": process.identity()["host"], "pid": gone} | other))
    assert not make().try_acquire()


def test_a_process_of_another_user_that_proc_hides_is_not_dead(tmp_path, make, clock, monkeypatch):
    write(tmp_path, host=process.identity()["host"], pid=2**22 + 1)  # above every process id

    def of_another_user(pid, number):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as hidden:
        hidden.setattr(os, "kill", of_another_user)
        assert not make().try_acquire()
    assert make().try_acquire()


def test_another_host_is_held_while_it_beats_and_stale_after_the_patience(tmp_path, make, clock):
    mine = make(patience_s=60.0)
    for beat in range(200):
        write(tmp_path, beat=beat, at="1999-01-01T00:00:00Z")  # a clock years behind does not matter
        assert not mine.try_acquire()
        clock.now += 1.0
    for _ in range(59):
        assert not mine.try_acquire()
        clock.now += 1.0
    assert mine.try_acquire()  # a minute after it first saw the last beat
    assert mine.former["beat"] == 199


def test_a_contender_that_was_frozen_itself_goes_on_watching(tmp_path, make, clock):
    write(tmp_path)
    mine = make(patience_s=60.0)
    assert not mine.try_acquire()
    clock.now += 3600.0
    assert not mine.try_acquire()
    write(tmp_path, beat=4)
    assert not mine.try_acquire()


def test_an_unreadable_lease_is_held(tmp_path, make, clock):
    (tmp_path / "lease" / "1.json").mkdir(parents=True)  # reading it fails, for root too
    mine = make()
    for _ in range(100):
        assert not mine.try_acquire()
        clock.now += 1.0
    assert "cannot be read" in mine.holder


@pytest.mark.parametrize("over, taken", [(True, True), (False, False), (None, False)])
def test_slurm_knows_whether_the_job_is_over(tmp_path, make, clock, over, taken):
    write(tmp_path, job="77")
    asked = []
    mine = make(job_over=lambda job: asked.append(job) or over, interval_s=10.0)
    assert mine.try_acquire() is taken
    assert mine.try_acquire() is taken
    assert asked == ["77"]  # not at every look
    if not taken:
        clock.now += 10.0
        assert not mine.try_acquire()
        assert asked == ["77", "77"]


def test_a_requeued_job_follows_its_former_life_at_once(tmp_path, make, clock, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    write(tmp_path, job="77", restarts=2)  # another step of this life
    assert not make().try_acquire()
    write(tmp_path, job="78", restarts=1)
    assert not make().try_acquire()
    write(tmp_path, job="77", restarts=1)
    assert make().try_acquire()


def test_a_job_of_another_cluster_is_another_job(tmp_path, make, clock, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "ours")
    write(tmp_path, job="77", restarts=1, cluster="theirs")
    assert not make().try_acquire()
    write(tmp_path, job="78", cluster="theirs")
    assert not make(job_over=lambda job: True).try_acquire()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[1]",
        b'{"token": "x"}',
    ],
)
def test_an_empty_or_damaged_lease_is_taken_over_after_the_patience(tmp_path, make, clock, raw):
    write(tmp_path, generation=9, beat=5)
    write(tmp_path, generation=10, beat=8)
    (tmp_path / "lease" / "11.json").write_bytes(raw)
    assert lease.read(tmp_path) == {}
    mine = make(patience_s=60.0)
    for _ in range(60):
        assert not mine.try_acquire()
        assert "empty or damaged" in mine.holder
        clock.now += 1.0
    assert mine.try_acquire()
    assert mine.former["beat"] == 8  # of the lease that the dead contender wanted to follow
    assert [name for name in files(tmp_path) if name.endswith(".json")] == ["12.json"]


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
    racers = [start(RACER, tmp_path, tmp_path / "go") for _ in range(8)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    (tmp_path / "go").touch()
    won = [racer.stdout.readline() for racer in racers]
    assert sorted(won) == ["False\n"] * 7 + ["True\n"]


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


def test_a_full_disk_at_the_start_holds_nothing_and_blocks_nobody(tmp_path, make, monkeypatch):
    write(tmp_path, released=True)

    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    mine = make()
    with monkeypatch.context() as disk:
        disk.setattr(strict_json, "write_atomic", full)
        with pytest.raises(OSError, match=r"No space"):
            mine.try_acquire()
    assert files(tmp_path) == ["1.json"]
    assert make().try_acquire()


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


@pytest.mark.parametrize("generation", [1, 2])
def test_release_alone_leaves_the_lease_of_others_alone(tmp_path, make, generation):
    mine = make(interval_s=3600.0)
    assert mine.try_acquire()
    before = (tmp_path / "lease" / "1.json").read_bytes()
    theirs = write(tmp_path, generation=generation)
    mine.release()
    assert lease.read(tmp_path) == theirs
    if generation == 2:
        assert (tmp_path / "lease" / "1.json").read_bytes() == before


def test_the_heartbeat_survives_failing_writes(tmp_path, make, monkeypatch):
    mine = make()
    assert mine.try_acquire()
    failed = threading.Event()

    def stale(path, data):
        failed.set()
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as server:
        server.setattr(strict_json, "write_atomic", stale)
        assert failed.wait(DEADLINE_S)
    beat = lease.read(tmp_path)["beat"]
    wait_for(lambda: lease.read(tmp_path)["beat"] > beat + 1)
    assert not mine.lost
    mine.check()
