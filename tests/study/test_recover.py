"""`ketscale recover`: a live Snakemake is refused, jobs of the old call are cancelled, and finished runs stay finished."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from ketscale import cli, process
from ketscale.jobs import driver, recover
from ketscale.jobs.slurm import queue
from ketscale.problems.registry import read_config
from tests import record_maker as maker

DEADLINE_S = 120.0
NAME = "821b9131-a4af-418f-8841-2ecb90bcfcf7"
# The run's folder is said from outside; like the real rule, it writes both files and is killed before it ends.
SNAKEFILE = """
rule all:
    input: [f"{folder}/metrics.json" for folder in open("folders").read().split()]
rule train:
    output: "results/runs/{run}/metrics.json", "results/runs/{run}/history.csv"
    shell: "echo {wildcards.run} >> trained; cp records/$(basename {wildcards.run}) {output[0]}; cp records/history {output[1]}; sleep 300"
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """A project of two runs in a folder of its own, and no SLURM but what a test puts into bin."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(recover, "_POLL_S", 0.05)
    monkeypatch.chdir(tmp_path)
    given = maker.given(one=maker.study(seed=[0, 1]))
    Path("config.yaml").write_text(json.dumps(given))
    Path("Snakefile").touch()
    return given


@pytest.fixture
def start():
    """Starts programs in groups of their own, and kills what is left of them in the end."""
    started = []

    def start_one(*command, **keywords):
        started.append(subprocess.Popen(command, start_new_session=True, **keywords))
        return started[-1]

    yield start_one
    for one in started:
        if one.poll() is None:
            os.killpg(one.pid, signal.SIGKILL)
        one.wait()


def wait_for(condition):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)


def call(capsys, *options, status=0):
    assert cli.main(["recover", *options]) == status
    said = capsys.readouterr()
    return said.err if status else said.out


def script(name, text):
    path = Path("bin") / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def cluster(*lines, after_cancel=()):
    """A queue of these lines (ID|STATE), and another one once scancel was called."""

    def listed(some):
        return "".join(f"{line}|{NAME}|rule_timed-n1-0_train|None|{Path.cwd()}\n" for line in some)

    Path("queue").write_text(listed(lines))
    Path("queue-after").write_text(listed(after_cancel))
    script("squeue", "cat queue")
    script("scancel", 'echo "$@" >> cancelled; cp queue-after queue')


@pytest.mark.parametrize("options", [["--profile", "slurm"], ["--mode", "subprocess"]])
def test_a_snakemake_that_drives_this_folder_is_refused(capsys, start, options):
    Path("snakemake.py").write_text("import time\nopen('up', 'w')\ntime.sleep(300)\n")
    other = start(sys.executable, "-m", "snakemake", *options)
    wait_for(Path("up").exists)
    if "--profile" in options:
        assert f"Snakemake (process {other.pid}) still runs here; end it first" in call(capsys, status=2)
    else:
        call(capsys)


def test_jobs_of_the_old_call_are_cancelled(capsys):
    cluster("7|PENDING", "8|RUNNING")
    out = call(capsys)
    assert Path("cancelled").read_text() == "7 8\n"
    assert out.startswith(
        "cancelled 2 jobs (7 8); their runs save a checkpoint\nno job of this folder is left in the queue\n"
    )
    assert out.endswith("0 runs are done, 2 left: snakemake --profile slurm\n")


def test_a_queue_that_does_not_answer_stops_it(capsys):
    script("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    why, advice = call(capsys, status=2).splitlines()
    assert "Unable to contact slurm controller" in why and advice.endswith("ketscale recover --no-queue")
    assert call(capsys, "--no-queue").startswith("the folder is not locked\n")


def test_programs_that_find_no_cluster_are_asked_for_jobs_that_were_submitted_and_for_no_others(capsys):
    """They stand on the PATH of all tests."""
    none = call(capsys)
    assert none.startswith("the folder is not locked\n") and none.endswith("--profile profiles/local\n")
    queue.TRAINS.parent.mkdir(parents=True)
    queue.TRAINS.write_text("{}")
    why, advice = call(capsys, status=2).splitlines()
    assert "SLURM's programs find no cluster" in why and advice.endswith("ketscale recover --no-queue")
    assert call(capsys, "--no-queue") == call(capsys) == none


def snakemake(*arguments):
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--rerun-incomplete", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def note(pid, host=None):
    """A note of a call whose process has that number."""
    me = msgspec.convert(process.identity(), driver.Process)
    mine = driver.replace(me, pid=pid, host=host or me.host, started=me.started - 1)
    driver._write(driver.Call(str(Path("Snakefile").absolute()), "config.yaml", None, "", mine))


@pytest.mark.parametrize("host, ended", [(None, "7 8\n"), ("elsewhere", None)])
def test_a_new_call_ends_the_jobs_of_one_that_was_killed_here(capsys, host, ended):
    cluster("7|PENDING", "8|RUNNING")
    queue.TRAINS.parent.mkdir(parents=True)
    queue.TRAINS.write_text("{}")
    note(os.getpid(), host)
    workflow = SimpleNamespace(main_snakefile=str(Path("Snakefile").absolute()), configfiles=[])
    for _ in range(2):  # the second call comes after this one, which lives
        recover.begin(read_config("config.yaml"), workflow)
    assert (Path("cancelled").read_text() if Path("cancelled").exists() else None) == ended
    assert ("cancelled 2 jobs (7 8)" in capsys.readouterr().err) == bool(ended)
    assert not queue.TRAINS.exists()
    assert driver.last().over is False


@pytest.mark.slow
@pytest.mark.parametrize("long", [False, True])
def test_finished_runs_of_a_killed_snakemake_are_not_trained_again(capsys, start, folder, long):
    # Marks of long paths are split: Snakemake's way of naming them is what this test is about.
    if long:
        folder["protocols"]["p" * 120] = folder["protocols"]["timing"]
        folder["studies"]["one"]["axes"]["protocol"] = "p" * 120
        Path("config.yaml").write_text(json.dumps(folder))
    config = read_config("config.yaml")
    runs = config.runs
    Path("Snakefile").write_text(SNAKEFILE)
    Path("folders").write_text(" ".join(f"results/{run.folder}" for run in runs))
    Path("records").mkdir()
    Path("records/seed0").write_text(maker.sealed(maker.of(config.settings(runs[0]))))
    Path("records/history").write_text(maker.NO_EPOCHS)
    # Killed in the middle: its record is of no use.
    Path("records/seed1").write_text("{")
    killed = start(sys.executable, "-m", "snakemake", "--cores", "2", stderr=subprocess.PIPE, text=True)
    wait_for(
        lambda: (
            killed.poll() is not None
            or all((Path("results") / run.folder / "history.csv").exists() for run in runs)
        )
    )
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert any(Path(".snakemake/locks").iterdir())
    before = {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()}

    if long:  # by the next call
        note(killed.pid)
        recover.after_kill(config, dry=False)
        said = f"process {killed.pid} on {process.node_name()}) was killed: removed its lock, and kept 1 run that finished since"
        assert said in capsys.readouterr().err
    else:
        assert call(capsys).splitlines() == [
            "removed the lock on the folder",
            "1 run is finished, though marked as incomplete by Snakemake: removed the marks",
            "1 run is done, 1 left: snakemake --profile profiles/local",
        ]
    assert {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()} == before
    plan = snakemake("--dry-run")
    assert f"{runs[1].path}" in plan and f"output: {runs[0].path}" not in plan
    assert "train        1" in plan
    assert "no finished run is marked as incomplete" in call(capsys)
