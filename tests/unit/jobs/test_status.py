"""`ketscale status`: each state by what lies on disk and in the queue, the estimate's arithmetic, and the output."""

import json
import os
from pathlib import Path

import pytest

from ketscale import cli
from ketscale.errors import UserError
from ketscale.grid import HISTORY, RECORD, config_hash
from ketscale.jobs import driver, finished, locks
from ketscale.jobs.provenance import code_hash
from ketscale.jobs.slurm.queue import Job
from ketscale.jobs.status import Queue, survey
from tests import record_maker as maker
from tests import records_factory as factory

RESULTS = Path("results")
JOB = "821b9131-a4af-418f-8841-2ecb90bcfcf7"


@pytest.fixture(autouse=True)
def outside_slurm(monkeypatch, tmp_path):
    """A folder of its own, and no SLURM but what a test puts on the PATH."""
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    Path("Snakefile").touch()


def study(**axes):
    return maker.config(one=maker.study(**axes))


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def hold(run, **changes):
    """What a process that held the run's lock has noted; it was killed unless it is said when it ended."""
    about = {"host": "node1", "pid": 1, "job": "12", "launch": None, "since": "2026-01-02T01:00:00Z"}
    write(RESULTS / run.folder / locks.HOLDER, json.dumps(about | changes))


def fail(run):
    note = {"reason": "out of memory", "at": "2026-01-02T02:30:00Z", "job": "12", "call": None}
    write(RESULTS / run.folder / "failure.json", json.dumps(note))


def finish(settings_of, run, **changes):
    maker.write(RESULTS, settings_of.settings(run), **changes)


def stale(config, run):
    """A record of other settings."""
    content = config.settings(run).content
    content = content | {"protocol": content["protocol"] | {"learning_rate": 0.5}}
    maker.forge(RESULTS, config.settings(run), config=content, config_hash=config_hash(content))


@pytest.fixture
def one():
    """A config of one run, and the run."""
    config = study(seed=0)
    return config, config.runs[0]


def state_of(one, *jobs):
    [state] = survey(one[0], Path(), Queue(jobs, {one[1]: "a pack"}) if jobs else Queue())
    return state


def test_a_record_of_these_settings_is_a_result_whatever_its_status(one):
    finish(*one, status="diverged", reason="NaN at step 3")
    hold(one[1])
    assert (state_of(one).state, state_of(one).status) == ("done", "diverged")
    finish(*one, quiet=maker.others(others_share=0.4))
    assert state_of(one).reason == "busy: other processes used 40% of its cores"


@pytest.mark.parametrize(
    "content, state, why",
    [("{", "refused", "cannot be read"), (None, "stale", "other settings")],
)
def test_a_record_that_cannot_be_used_is_trained_again_unless_that_has_failed(one, content, state, why):
    stale(*one)
    if content is not None:
        (RESULTS / one[1].path).write_text(content)
    seen = state_of(one)
    assert seen.state == state and why in seen.reason and "delete" not in seen.reason
    # Until then the record stays where it is.
    fail(one[1])
    assert (state_of(one).state, state_of(one).reason) == ("failed", "out of memory")


def test_what_tables_refuse_is_not_done_and_training_would_not_mend_it():
    config = study(simulator=["default.qubit", "fused"], seed=0)
    timing = maker.of(config.settings(config.runs[0]))["timing"] | {"steps": 2}
    for run, losses in zip(config.runs, ([1.0, 0.9], [1.0, 0.5]), strict=True):
        finish(config, run, losses=losses, timing=timing)
    timing, other = survey(config, Path(), Queue())
    assert (timing.state, other.state) == ("done", "refused")
    with pytest.raises(UserError, match="1 of 2 runs cannot be used") as error:
        factory.collect(config, RESULTS)
    why = other.reason.removesuffix("; delete it to try again")
    assert "its first 2 losses differ" in why and why in str(error.value) and why != other.reason


def test_a_run_is_running_while_its_lock_is_held_and_interrupted_if_its_holder_was_killed(one):
    lock = locks.Lock(RESULTS / one[1].folder)
    assert lock.acquire()
    assert state_of(one).state == "running" and state_of(one).host == locks.last(lock.folder).host
    lock.release()
    hold(one[1], until="2026-01-02T01:30:00Z")
    assert state_of(one).state == "interrupted" and "it was stopped" in state_of(one).reason
    hold(one[1])
    state = state_of(one)
    assert state.state == "interrupted" and "it was killed" in state.reason


def test_a_run_is_queued_while_its_job_is_and_failed_if_it_failed_in_it(one):
    assert state_of(one, Job("12", "PENDING", "a pack", "Priority")).state == "queued"
    fail(one[1])
    assert state_of(one, Job("13", "RUNNING", "a pack", "None")).state == "queued"
    assert state_of(one, Job("12", "RUNNING", "a pack", "None")).state == "failed"
    assert state_of(one, Job("13", "PENDING", "another", "Priority")).state == "failed"


def test_a_result_that_another_runs_job_has_left_is_done_while_a_call_is_at_work(one):
    code = {"version": "0.3.0", "hash": code_hash(), "imported": "", "commit": None, "dirty": None}
    finish(*one, code=code)
    saved = RESULTS / one[1].folder / finished.KEPT
    saved.mkdir(parents=True)
    for name in (RECORD, HISTORY):
        (saved.parents[1] / name).rename(saved / name)
    assert state_of(one).state == "missing"
    call = locks.Lock(driver.FOLDER)
    assert call.acquire() and state_of(one).state == "done"
    call.release()


@pytest.mark.parametrize(
    "protocol, rows, progress",
    [
        ("quality", "epoch,step,loss\n0,20,1.5\n1,40,1.2\n2,6", "epoch 2 of 100"),
        ("parity", "epoch,step\n0,10\n", "step 10 of 20"),
    ],
)
def test_progress_is_the_last_whole_row_of_the_history_against_the_protocol(protocol, rows, progress):
    config = study(seed=0, protocol=protocol)
    lock = locks.Lock(RESULTS / config.runs[0].folder)
    assert lock.acquire()
    write(lock.folder / "checkpoint" / "0123456789abcdef.csv", rows)
    assert survey(config, Path(), Queue())[0].progress == progress
    lock.release()


def call(capsys, *options):
    assert cli.main(["status", *options]) == 0
    return capsys.readouterr().out


@pytest.fixture
def three():
    """The runs of a study in this folder: one is done, one has failed, one is stale; and one of another study."""
    config = maker.config(one=maker.study(seed=[0, 1, 2]), two=maker.study(layers=4, seed=0))
    Path("config.yaml").write_text(json.dumps({**config.raw, "title": "A study"}))
    first, second, third, _ = sorted(config.runs, key=lambda run: (run.size, run.seed))
    minutes = {"started": "2026-01-01T00:00:00+00:00", "stopped": "2026-01-01T00:10:00+00:00"}
    finish(config, first, **minutes, **maker.used(first), timing=maker.timed(first, 599))
    fail(second)
    stale(config, third)
    return [f"results/{run.path}" for run in (first, second, third)]


def test_a_table_of_the_studies_what_failed_what_is_left_and_the_command(capsys, three):
    lines = call(capsys).splitlines()
    assert lines[:5] == [
        "A study",
        "     runs  done  failed  stale  missing",
        "one     3     1       1      1        .",
        "two     1     .       .      .        1",
        "all     4     1       1      1        1",
    ]
    assert "1 failed: out of memory" in lines and "used: 0.17 node-hours by records" in lines
    (left,) = [line for line in lines if line.startswith("left: ")]
    assert left.startswith("left: about 0.") and left.endswith(" for 3 runs")
    assert lines[-1] == "resume: snakemake --profile profiles/local"


def test_failed_lists_every_one_with_what_runs_it_again(capsys, three):
    lines = call(capsys, "--failed").splitlines()
    assert lines[0] == three[1] and lines[1].startswith(
        "    failed: out of memory (2026-01-02T02:30:00Z, job 12)"
    )
    assert lines[2] == f"    snakemake --profile profiles/local {three[1]}"
    assert lines[3] == three[2] and len(lines) == 6


def test_the_queue_is_asked_where_there_is_one(capsys, three):
    write(Path("profiles/slurm/site.yaml"), "limits: [{minutes: 3, memory_mb: 100}]\n")
    text = f'echo "7|PENDING|{JOB}|rule_timed-n1-0_train|Priority|$PWD"'
    write(Path("bin", "squeue"), f"#!/bin/sh\n{text}\n")
    Path("bin", "squeue").chmod(0o755)
    lines = call(capsys).splitlines()
    assert "queue: 1 pending (Priority)" in lines and lines[2].split() == ["one", "3", "1", "2"]
