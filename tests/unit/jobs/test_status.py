"""`ketscale status`: each state by what lies on disk and in the queue, the estimate's arithmetic, and the output."""

import json
import os
from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from ketscale import cli, process
from ketscale.errors import UserError
from ketscale.grid import HISTORY, RECORD, config_hash
from ketscale.jobs import driver
from ketscale.jobs.costs import Asked, Costs
from ketscale.jobs.ownership import finished
from ketscale.jobs.slurm.queue import Job
from ketscale.jobs.status.report import remainder
from ketscale.jobs.status.survey import Queue, survey
from tests import record_maker as maker
from tests import records_factory as factory

NOW = datetime(2026, 1, 2, 3, 0, 0, tzinfo=UTC)
RESULTS = Path("results")


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


def folder_of(run):
    return RESULTS / run.folder


def at(seconds_ago):
    return (NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def hold(run, **changes):
    """A lease as a process of another host left it, an hour after its last sign of life."""
    content = process.identity() | {
        "host": "node1",
        "boot": "theirs",
        "token": "t",
        "interval_s": 10.0,
        "beat": 3,
    }
    content |= {
        "since": at(7200),
        "at": at(3600),
        "released": False,
        "finished": False,
        "job": "12",
    } | changes
    path = folder_of(run) / "lease" / "1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))


def fail(run, **changes):
    note = {"reason": "out of memory", "at": at(1800), "job": "12", "call": None} | changes
    folder_of(run).mkdir(parents=True, exist_ok=True)
    (folder_of(run) / "failure.json").write_text(json.dumps(note))


def save(run):
    folder = folder_of(run) / "checkpoint"
    folder.mkdir(parents=True)
    (folder / "abc.pt").touch()


def finish(settings_of, run, **changes):
    maker.write(RESULTS, settings_of.settings(run), **changes)


def queue(*jobs, packs=None):
    """The queue with these jobs; the runs of `packs` have been submitted, which Snakemake marks."""
    submit(packs or {})
    return Queue(tuple(jobs), packs or {}, available=True)


def submit(runs):
    for run in runs:
        mark = Path(".snakemake/incomplete") / urlsafe_b64encode(f"results/{run.path}".encode()).decode()
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def see(config, jobs=None):
    return survey(config, Path(), jobs or Queue(), NOW)


@pytest.fixture
def one():
    """A config of one run, and the run."""
    config = study(seed=0)
    return config, config.runs[0]


def state_of(one, jobs=None):
    [seen] = see(one[0], jobs)
    return seen


def test_a_run_of_which_nothing_lies_there_is_missing(one):
    assert state_of(one).state == "missing"
    hold(one[1], released=True)
    save(one[1])
    seen = state_of(one)
    assert seen.state == "missing" and seen.saved is not None


@pytest.mark.parametrize("outcome", ["completed", "diverged", "out_of_memory"])
def test_a_record_of_these_settings_is_a_result_whatever_its_status(one, outcome):
    finish(*one, status=outcome, reason=None if outcome == "completed" else "NaN at step 3")
    hold(one[1], at=at(1))
    seen = state_of(one)
    assert (seen.state, seen.status) == ("done", outcome)


def test_a_timed_run_that_went_on_from_a_checkpoint_is_missing_and_says_why(one):
    finish(*one)
    path = RESULTS / one[1].path
    path.write_text(maker.sealed({**json.loads(path.read_text()), "resumed": 1}))
    seen = state_of(one)
    assert (
        seen.state == "missing" and "its times are of the rest alone; it will be trained again" in seen.reason
    )


def test_a_timed_run_that_was_busy_is_done_and_says_why(one):
    finish(*one, quiet=maker.beside(others_share=0.4))
    seen = state_of(one)
    assert (seen.state, seen.reason) == ("done", "busy: other processes used 40% of its cores")


@pytest.mark.parametrize(
    "content, state, why",
    [("{", "refused", "cannot be read"), (None, "stale", "other settings")],
)
def test_a_record_that_is_damaged_is_refused_and_one_of_other_settings_stale(one, content, state, why):
    stale(*one)
    if content is not None:
        (RESULTS / one[1].path).write_text(content)
    seen = state_of(one)
    assert seen.state == state and why in seen.reason and "delete it" in seen.reason


def test_what_tables_refuse_is_not_done(tmp_path):
    config = study(simulator=["default.qubit", "fused"], seed=0)
    usual = maker.of(config.settings(config.runs[0]))["timing"] | {"steps": 2}
    for run, losses in zip(config.runs, ([1.0, 0.9], [1.0, 0.5]), strict=True):
        finish(config, run, losses=losses, timing=usual)
    states = {seen.run.simulator: seen.state for seen in see(config)}
    assert states == {"default.qubit": "done", "fused": "refused"}
    (seen,) = (seen for seen in see(config) if seen.state == "refused")
    with pytest.raises(UserError, match="1 of 2 runs cannot be used") as error:
        factory.collect(config, RESULTS)
    why = seen.reason.removesuffix("; delete it and run it again")
    assert "its first 2 losses differ" in why and why in str(error.value)


def test_a_record_of_other_features_is_stale(one):
    finish(*one)
    manifest = Path("results/features/digits/features.json")
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"hash": "new"}')
    assert state_of(one).state == "stale"


def test_a_lease_is_held_by_a_live_process_of_this_machine_or_a_running_job_or_a_fresh_beat(one):
    me = process.identity()
    hold(one[1], **me, at=at(3600))
    assert state_of(one).state == "running"
    path = folder_of(one[1]) / "lease" / "1.json"
    path.unlink(), path.parent.rmdir()
    hold(one[1])
    assert state_of(one).state == "interrupted"
    assert state_of(one, queue(Job("12", "PENDING", "p", "Priority"))).state == "interrupted"
    assert state_of(one, queue(Job("12", "RUNNING", "p", "None"))).state == "running"
    path.unlink(), path.parent.rmdir()
    hold(one[1], at=at(49))
    assert state_of(one).state == "running"


@pytest.mark.parametrize(
    "since, over, state",
    [
        ("2026-01-01T00:00:00Z", False, "done"),
        ("2026-01-01T00:00:00Z", True, "missing"),
        ("2026-01-01T00:00:01Z", False, "missing"),
    ],
    ids=["this call", "a call that is over", "a copy of an earlier call"],
)
def test_a_record_that_snakemake_has_deleted_for_a_job_is_done_by_its_copy(one, since, over, state):
    finish(*one)
    kept = folder_of(one[1]) / "checkpoint" / finished.KEPT
    kept.mkdir(parents=True)
    for name in (RECORD, HISTORY):
        (folder_of(one[1]) / name).rename(kept / name)
    me = None if over else msgspec.convert(process.identity(), driver.Process)
    driver._write(driver.Call("Snakefile", None, None, since, me))
    assert state_of(one).state == state


def test_progress_is_the_last_row_of_the_history_against_the_protocol():
    config = study(seed=0, protocol="quality")
    run = config.runs[0]
    hold(run, at=at(1))
    assert see(config)[0].progress == ""
    history = folder_of(run) / "checkpoint" / "0123456789abcdef.csv"
    history.parent.mkdir()
    history.write_text("epoch,step,loss\n0,20,1.5\n1,40,1.2\n2,6")
    assert see(config)[0].progress == "epoch 2 of 100"
    config = study(seed=0, protocol="parity")
    run = config.runs[0]
    hold(run, at=at(1))
    history = folder_of(run) / "checkpoint" / "0123456789abcdef.csv"
    history.parent.mkdir()
    history.write_text("epoch,step\n0,10\n")
    assert see(config)[0].progress == "step 10 of 20"


def took(minutes, run, **changes):
    """What a record of so many minutes has: all of it but a second is steps."""
    stopped = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)).isoformat()
    timing = maker.timed(run, 60 * minutes - 1)
    return {"started": maker.TIME, "stopped": stopped, **maker.used(run), "timing": timing} | changes


def stale(config, run):
    """A record of other settings."""
    content = config.settings(run).content
    content = content | {"protocol": content["protocol"] | {"learning_rate": 0.5}}
    maker.forge(RESULTS, config.settings(run), config=content, config_hash=config_hash(content))


def estimated(config):
    told = Costs.of(RESULTS).forecast(Asked(config.settings(run)) for run in config.runs)
    return remainder(see(config), {one.run: one for one in told if one}, NOW)


def test_the_estimate_is_of_the_runs_that_are_left_on_all_of_their_nodes():
    config = study(seed=[0, 1, 2, 3, 4], backend=["cpu-n1r1t1", "mpi-n2r2t1"])
    for run in config.runs:
        if run.seed < 3:
            finish(config, run, **took(10 if run.nodes == 1 else 6, run))
    left = estimated(config)
    assert (left.runs, left.known, left.at_most) == (4, 4, 0)
    assert left.wall_s.low < 60 * 2 * (10 + 6) < left.wall_s.high
    assert left.wall_s.middle == pytest.approx(60 * 2 * (10 + 6), rel=0.03)
    assert left.node_hours.middle == pytest.approx(2 * (10 + 2 * 6) / 60, rel=0.03)


def script(name, text):
    path = Path("bin") / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def write_config(config, **changes):
    Path("config.yaml").write_text(json.dumps({**config.given, **changes}))


def call(capsys, *options):
    assert cli.main(["status", *options]) == 0
    return capsys.readouterr().out


def test_used_and_left_are_by_sacct_where_it_knows_jobs_of_the_folder(capsys):
    config = study(seed=[0, 1])
    write_config(config)
    finish(config, config.runs[0], **took(30, config.runs[0]))
    Path("profiles/slurm").mkdir(parents=True)
    Path("profiles/slurm/site.yaml").write_text("node_hours: 74\nlimits: [{minutes: 3, memory_mb: 100}]\n")
    name = "821b9131-a4af-418f-8841-2ecb90bcfcf7"
    times = "2026-01-01T10:00:00|2026-01-01T10:30:00"
    script("sacct", f"echo '194400|1|{times}|{name}|{Path.cwd()}'")
    out = call(capsys)
    assert "used: 54 node-hours by sacct; 20 of 74 are left\n" in out
    spent = json.loads(call(capsys, "--json"))["spent"]
    assert (spent["left"], spent["wait_s"]) == (20.0, 1800.0)
    assert spent["in_records"] == pytest.approx(0.5)
    # What the jobs have used cannot be known without an answer, and is not said to be.
    script("sacct", "echo 'Connection refused' >&2; exit 1")
    out = call(capsys)
    assert "used: at least 0.5 node-hours by records (sacct failed: Connection refused)\n" in out
    assert "are left" not in out


def test_failed_lists_every_one_with_what_runs_it_again(capsys):
    config = study(seed=[0, 1, 2])
    write_config(config)
    runs = config.runs
    fail(runs[0])
    stale(config, runs[1])
    out = call(capsys, "--failed")
    assert f"results/{runs[0].path}\n    failed: out of memory" in out
    assert f"\n    snakemake --profile profiles/local results/{runs[0].path}\n" in out
    assert (
        f"\n    rm results/{runs[1].path} && snakemake --profile profiles/local results/{runs[1].path}\n"
        in out
    )
    assert runs[2].path not in out


def test_json_says_the_same_for_scripts(capsys):
    config = study(seed=[0, 1, 2])
    write_config(config, title="A study")
    runs = config.runs
    finish(config, runs[0], **took(10, runs[0]))
    fail(runs[1])
    said = json.loads(call(capsys, "--json"))
    assert said["title"] == "A study" and said["jobs"] is None
    assert said["counts"]["done"] == said["counts"]["failed"] == said["counts"]["missing"] == 1
    assert [run["state"] for run in said["runs"]] == ["done", "failed", "missing"]
    assert (
        said["runs"][1]["run"] == f"results/{runs[1].path}" and said["runs"][1]["reason"] == "out of memory"
    )
    assert said["estimate"]["known"] == 2
    hours = said["estimate"]["node_hours"]
    assert hours["middle"] == pytest.approx(1 / 3, rel=0.01)
    assert hours["low"] < hours["middle"] < hours["high"]
    assert len(json.loads(call(capsys, "--json", "--failed"))["runs"]) == 1


@pytest.mark.parametrize("workflow", ["checkout"])
def test_the_queue_is_asked_where_there_is_one(capsys, workflow):
    """By the site file of this folder, or of the workflow that was last called here."""
    config = study(seed=[0, 1])
    write_config(config)
    driver._write(driver.Call(str(Path(workflow, "Snakefile").absolute()), None, None, at(9), None))
    site = Path(workflow, "profiles/slurm/site.yaml")
    site.parent.mkdir(parents=True)
    site.write_text(
        "account: null\npartition: null\nnode_hours: 74\nlimits: [{minutes: 3, memory_mb: 100}]\n"
    )
    name = "821b9131-a4af-418f-8841-2ecb90bcfcf7"
    line = f"7|PENDING|{name}|rule_timed-n1-0_train|Priority|{Path.cwd()}"
    script("squeue", f"echo '{line}'; echo '8|RUNNING|{name}|rule_timed-n1-9_train|None|{Path.cwd()}'")
    submit(config.runs)
    out = call(capsys)
    assert (
        "2 runs: 0 done, 2 queued\nqueue: 1 running, 1 pending (Priority 1); 1 not of this config's runs"
        in out
    )
    assert "used: nothing; 74 of 74 are left\n" in out
    assert "left: 2 runs; no record tells what they take, so their time is unknown" in out
