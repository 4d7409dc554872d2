"""Why a run failed, in words: from what srun, mpirun, torchrun and the run itself say at its end."""

import json
import os
import shlex
import subprocess
import sys
import time

import psutil
import pytest

from ketscale.jobs import launch, supervise
from ketscale.jobs.locks import Lock
from ketscale.words import NOTICE
from tests.toys import run_at

# As SLURM 22.05, Open MPI 5 and torchrun 2.13 were seen to say it.
TIME_LIMIT = (
    "slurmstepd: error: *** STEP 31.0 ON node2 CANCELLED AT 2026-11-22T02:50:01 DUE TO TIME LIMIT ***"
)
CANCELLED = "slurmstepd: error: *** STEP 31.0 ON node2 CANCELLED AT 2026-11-22T02:50:01 ***"
SAVED = "ketscale: stopped at step 40; the checkpoint is written, run the same command to resume"
OOM = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=31.0. Some of the step tasks have been OOM Killed.\n"
    "srun: error: node1: task 0: Out Of Memory"
)
TORCHRUN = """Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_02:50:01
  host      : node2
  rank      : 3 (local_rank: 1)
  exitcode  : -9 (pid: 4711)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4711"""
WRAPPED = """--------------------------------------------------------------------------
prterun noticed that process rank 1 with PID 12 on node vm exited on
signal 9 (Killed).
--------------------------------------------------------------------------"""
MPIRUN = "mpirun noticed that process rank 1 with PID 12 on node vm exited on signal 9 (Killed)."


@pytest.mark.parametrize(
    "message, status, reason",
    [
        (TIME_LIMIT, 143, "SLURM ended it: time limit (minutes in a cluster's site file); it will resume"),
        ("", 143, "it was cancelled; it will resume from its last checkpoint"),
        (OOM, 137, "out of memory"),
        (TORCHRUN, 1, "exit status 1: traceback : Signal 9 (SIGKILL) received by PID 4711; perhaps memory ran out"),
        (WRAPPED, 137, "exit status 137: signal 9 (Killed).; perhaps memory ran out"),
        ("", 137, "it was killed (SIGKILL); perhaps memory ran out: then use more of it"),
        ("noise\nketscale: backend gpu: torch sees no GPU here\nsrun: error: node1: task 0: Exited with exit code 2", 2, "backend gpu: torch sees no GPU here"),
        (f"{NOTICE}rank 0 failed and ends the run\nValueError: no\n{CANCELLED}\nsrun: error: node2: task 0: Exited with exit code 1\nsrun: launch/slurm: _step_signal: Terminating StepId=25.0\nsrun: error: node3: task 1: Killed", 1, "exit status 1: ValueError: no"),
        (f"{CANCELLED}\nsrun: error: node3: task 2: Segmentation fault\nsrun: error: node2: task 1: Killed", 139, "exit status 139: srun: error: node3: task 2: Segmentation fault"),
        # Newer SLURMs say why they end a step: a dead rank is no stop.
        (f"ketscale: backend gpu: torch sees no GPU here\n{CANCELLED.replace(' ***', ' DUE TO TASK FAILURE ***')}", 1, "backend gpu: torch sees no GPU here"),
        ("There are not enough slots available in the system\n---\n \0", 1, "exit status 1: There are not enough slots available"),
    ],
)  # fmt: skip
def test_the_end_of_a_run_is_explained(message, status, reason, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert reason in supervise.explain(message.splitlines(), status, stopped=None)


def test_a_notice_is_no_reason():
    message = [f"{NOTICE}rank 0 failed and ends the run"]
    assert supervise.explain([*message, MPIRUN], 137, None).startswith(f"exit status 137: {MPIRUN}")
    assert supervise.explain(message, 137, None).startswith("it was killed (SIGKILL)")


@pytest.mark.parametrize(
    "message, reason",
    [
        ("JobState=TIMEOUT Reason=TimeLimit", "it was stopped (TIMEOUT TimeLimit)"),
        ("JobState=PREEMPTED Reason=None", "it was stopped (PREEMPTED)"),
        ("JobState=RUNNING Reason=None", "it was stopped (SIGTERM)"),
    ],
)
def test_who_has_asked_is_what_slurm_says(tmp_path, monkeypatch, message, reason):
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\necho JobId=7 {message} Restarts=0\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert supervise.why_stopped().startswith(reason)


def supervised(folder, script, before="pass"):
    """A process that supervises a shell script for the run of `folder`, its stderr a file as under Snakemake."""
    code = (
        "import os, sys; from pathlib import Path; from ketscale.jobs import supervise\n"
        f"{before}\n"
        f"sys.exit(supervise.run({script!r}, Path({str(folder)!r}), os.environ))"
    )
    with (folder / "train.log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-c", code], stderr=log, stdout=log)


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "nothing happened for a minute"
        time.sleep(0.05)


def test_a_failure_leaves_a_note_and_the_next_start_takes_it_away(tmp_path):
    failing = "sh -c 'echo ketscale: no such features >&2; exit 2'"
    assert supervised(tmp_path, failing).wait(60) == 2
    note = json.loads((tmp_path / supervise.NOTE).read_text())
    assert note["reason"] == "no such features"
    assert (tmp_path / "train.log").read_text().count("no such features") == 1
    assert "ketscale: no such features" in (tmp_path / "train.log").read_text()
    assert supervised(tmp_path, "true").wait(60) == 0
    assert not (tmp_path / supervise.NOTE).exists()


def test_sigterm_is_passed_on(tmp_path):
    script = (
        f"{shlex.quote(sys.executable)} -c 'import pathlib, signal, sys, time; p = pathlib.Path(sys.argv[1]); "
        'signal.signal(signal.SIGTERM, lambda *_: (p.joinpath("asked").touch(), sys.exit(143))); '
        f'p.joinpath("ready").touch(); time.sleep(60)\' {shlex.quote(str(tmp_path))}'
    )
    process = supervised(tmp_path, script)
    wait_for((tmp_path / "ready").exists)
    process.terminate()
    assert process.wait(60) == 143
    assert (tmp_path / "asked").exists()
    assert "it was stopped (SIGTERM)" in json.loads((tmp_path / supervise.NOTE).read_text())["reason"]


# A launcher as torchrun is one: its ranks are in sessions of their own, and it dies before them. The second rank is
# stopped, or deaf to SIGTERM.
LAUNCHER = """
import os, pathlib, signal, subprocess, sys, time
RANK = '''
import os, pathlib, signal, sys, time
here, rank, how = pathlib.Path(sys.argv[1]), *sys.argv[2:]
def stop(*_):
    print(f"rank {rank} stopped", "ketscale: stopped", sep=chr(10), file=sys.stderr, flush=True)
    os._exit(143)
signal.signal(signal.SIGTERM, signal.SIG_IGN if how == "deaf" else stop)
here.joinpath(f"ready{rank}").touch()
if how == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(1000)
'''
for rank, how in enumerate(["usual", sys.argv[2]]):
    subprocess.Popen([sys.executable, "-c", RANK, sys.argv[1], str(rank), how], start_new_session=True)
while not all(pathlib.Path(sys.argv[1], f"ready{rank}").exists() for rank in (0, 1)):
    time.sleep(0.01)
print("ketscale: a word", file=sys.stderr, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("second", ["stopped", "deaf"])
def test_ranks_that_outlive_their_launcher_are_ended(tmp_path, second):
    """Also one that is stopped: the launch would wait for it for ever, and so would the other rank."""
    command = shlex.join([sys.executable, "-c", LAUNCHER, str(tmp_path), second])
    process = supervised(tmp_path, command, "supervise._GRACE_S = 1.0")
    assert process.wait(30) == 137
    assert not any(str(tmp_path) in command for _, command in running())
    message = (tmp_path / "train.log").read_text()
    assert "ketscale: a word" in message and "rank 0 stopped" in message
    assert ("rank 1 stopped" in message) == (second != "deaf")
    reason = json.loads((tmp_path / supervise.NOTE).read_text())["reason"]
    assert reason.startswith("it was killed (SIGKILL)") and reason.endswith("; stopped")


def running():
    """The status and the command of each process of this machine that has not ended."""
    for result in psutil.process_iter(["status", "cmdline"]):
        if result.info["status"] != psutil.STATUS_ZOMBIE:
            yield result.info["status"], " ".join(result.info["cmdline"] or ())


def test_a_run_that_is_stopped_still_heeds_sigterm(tmp_path):
    script = f"touch {tmp_path}/ready; kill -STOP $$; sleep 1000"
    process = supervised(tmp_path, shlex.join(["sh", "-c", f"trap 'exit 143' TERM; {script}"]))
    wait_for(
        lambda: any(
            str(tmp_path) in command and "STOP $$" in command and status == psutil.STATUS_STOPPED
            for status, command in running()
        )
    )
    process.terminate()
    assert process.wait(30) == 143


ACQUIRE = (
    "from pathlib import Path; from ketscale.jobs.locks import Lock; lock = Lock(Path({!r})); lock.acquire()"
)


@pytest.mark.parametrize("trains", ["another launch", "this launch", "nobody"])
def test_only_a_launch_that_trains_the_run_says_that_it_failed(tmp_path, trains):
    """A launch waits while another one trains the run: if it is stopped, the run has not failed."""
    lock = Lock(tmp_path)
    lock.acquire()
    if trains != "another launch":
        lock.release()
    mine = ACQUIRE.format(str(tmp_path)) if trains == "this launch" else ""
    code = f"import time\n{mine}\nopen('{tmp_path}/ready', 'w')\ntime.sleep(60)"
    process = supervised(tmp_path, shlex.join([sys.executable, "-c", code]))
    wait_for((tmp_path / "ready").exists)
    process.terminate()
    assert process.wait(60) == 143
    lock.release()
    assert (tmp_path / supervise.NOTE).exists() == (trains != "another launch")


# ---------------------------------------------------------------- what starts the ranks


@pytest.mark.parametrize(
    "where, mpi, tasks, per_node, cores",
    [
        ("cpu-n1r1t4", "none", 1, 1, 4),
        ("mpi-n2r4t3", "pmix", 4, 2, 3),
        ("ddp-cpu-n1r2t1", "none", 1, 1, 2),
        ("ddp-n2r4t8", "none", 2, 1, 16),
    ],
)
def test_srun_starts_every_run_in_an_allocation(where, mpi, tasks, per_node, cores):
    run = run_at(where)
    command = launch.prefix(run, "pmix")
    assert command.startswith(f"env OMP_NUM_THREADS={run.threads} ")
    assert (
        f"srun --overlap --mpi={mpi} --kill-on-bad-exit=1 --cpu-bind=none --nodes={run.nodes} --ntasks={tasks} "
        f"--ntasks-per-node={per_node} --cpus-per-task={cores} " in f"{command} "
    )
    assert ("torch.distributed.run" in command) == run.backend.startswith("ddp")
    assert ("--nproc-per-node=2" in command) == run.backend.startswith("ddp")
    assert ("--master-addr" in command) == (where == "ddp-n2r4t8")
