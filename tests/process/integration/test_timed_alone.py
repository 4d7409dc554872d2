"""Invariant: a timed run has its host to itself, and one that had not is flagged."""

import fcntl
import json
import os
import signal
import subprocess
import time

import pytest

from ketscale.analysis import points
from ketscale.jobs import host_lock, session
from ketscale.measure import passes as passes_of
from ketscale.measure.quiet import quietness
from tests.process.integration import study

RUN = study.run(protocol="timed")


@pytest.fixture
def host(tmp_path, monkeypatch):
    """The lock of a host that nobody else uses, held."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with host_lock.path().open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def test_a_timed_run_waits_for_the_host(tmp_path, digits_features, host):
    """Another process holds the host: this one says so, and starts when the host is let go."""
    run = study.run(protocol="timed")
    with study.launch(tmp_path, run, digits_features, env=study.forked()) as process:
        assert host_lock.WAITS in process.stderr.readline()
        assert process.poll() is None and not (study.results(tmp_path, run) / "checkpoint").exists()
        fcntl.flock(host, fcntl.LOCK_UN)
        out, error = process.communicate(timeout=600)
    assert process.returncode == 0, out + error
    record = json.loads((tmp_path / study.record(run)).read_text())
    rank = record["machine"]["ranks"][0]
    assert len(rank["affinity"]) == 1 and not rank["shared_cores"]
    assert set(rank["affinity"]) <= set(record["quiet"]["cpus"])


@pytest.mark.parametrize("protocol", ["timed", "short"])
def test_a_run_that_waits_for_the_host_ends_at_once_when_it_is_told_to(
    tmp_path, digits_features, host, protocol
):
    run = study.run(protocol=protocol)
    with study.launch(tmp_path, run, digits_features, env=study.forked()) as process:
        assert host_lock.WAITS in process.stderr.readline()
        process.terminate()
        process.communicate(timeout=600)
    assert process.returncode in (143, -signal.SIGTERM)  # not 137: one that does not listen is killed
    assert not (tmp_path / study.record(run)).exists()


def test_other_processes_at_work_are_noticed():
    from ketscale.measure.quiet import Watch, quietness

    quiet = Watch(os.sched_getaffinity(0))
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as burner:
        time.sleep(0.5)
        usage = {"host": "a", "seen": quiet.usage()}
        burner.kill()
    share = quietness([usage])
    assert share["others_share"] > 0.6 / (os.cpu_count() or 1)
    assert not share["quiet"] or share["others_share"] <= 0.05


def test_the_steps_of_a_run_that_others_disturb_are_taken_again_with_the_same_numbers(
    tmp_path, digits_features, monkeypatch, one_thread
):
    """The pass that they disturbed least counts, with the first step of the first; by the accounting alone."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    affinity = os.sched_getaffinity(0)
    values = []
    for name, others in (("alone", [0.0]), ("disturbed", [0.3, 0.1, 0.2])):
        passes = []

        def seen(ranks, others=others, passes=passes):
            passes.append(ranks) if ranks not in passes else None
            return {**quietness(ranks), "others_share": others[passes.index(ranks)]}

        with monkeypatch.context() as patch:
            patch.setattr(passes_of, "quietness", seen)
            session.train(study.settings(RUN), study.results(tmp_path / name, RUN), digits_features)
        os.sched_setaffinity(0, affinity)
        values.append(json.loads((tmp_path / name / study.record(RUN)).read_text()))
        assert len(passes) == len(others) == values[-1]["quiet"]["passes"]
        values[-1]["rank"] = passes[1 if name == "disturbed" else 0][0]
    first, repeat = values
    assert [repeat[name] == first[name] for name in ("losses", "weights_hash", "samples")] == [True] * 3
    assert repeat["machine"]["ranks"] == [repeat["rank"]]
    # The first step of the first pass compiles; that of others does not.
    assert repeat["timing"]["first_step_s"] <= repeat["timing"]["train_s"]


def test_more_threads_than_cores_are_marked_and_decide_no_speed(tmp_path, digits_features, monkeypatch):
    """They are for correctness only: flagged in tables, so that no fit has them and no ratio of theirs decides."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        record = study.train(tmp_path, study.run("cpu-n1r1t2", protocol="timed"), digits_features)
    finally:
        os.sched_setaffinity(0, allowed)
    assert record["quiet"]["oversubscribed"] and not record["quiet"]["quiet"]
    (rank,) = record["machine"]["ranks"]
    assert rank["shared_cores"]
    row = {
        "resumed": 0,
        "step_s": 1.0,
        "status": "completed",
        "timed": True,
        "quiet": False,
        "least_step_s": None,
    }
    assert points.usable([row]) == ([row], points.BUSY) and points.BUSY in points.HOLLOW_RATIOS
