"""What is submitted: sbatch's command lines word by word, and what is refused before anything is submitted."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.nightly.slurm.disturbed import one_run
from tests.nightly.slurm.project import Project, accounted, ask, target, wait_for

AXES = {
    "workload": "sentences", "model": "superposition_transformer", "qubits": 4, "layers": 1, "batch": 8,
    "simulator": "fused", "seed": 0,
}  # fmt: skip
FUSED = {"device": "fused", "gradient": "adjoint", "batching": "broadcast", "placement": "model"}
TIMED = {
    "precision": "fp32", "features": "cached", "timed": True, "steps": 20, "warmup": 1, "sampled_steps": 2,
    "learning_rate": 0.003,
}  # fmt: skip


def config(*places: str, protocol: str = "timing") -> dict[str, Any]:
    return {
        "title": "What is submitted",
        "workloads": {"sentences": {"seed": 42, "held_out": 2, "split_seed": 0}},
        "simulators": {"fused": FUSED},
        "protocols": {"timing": TIMED, "parity": {**TIMED, "timed": False, "precision": "fp64"}},
        "studies": {
            "places": {
                "kind": "parity" if protocol == "parity" else "strong",
                "question": "Where do runs go?",
                "axes": {**AXES, "backend": list(places), "protocol": protocol},
            }
        },
    }


def submitted(project: Project) -> dict[str, str]:
    """sbatch's command lines of the project's jobs, without what differs from call to call, by pack."""
    lines = {}
    # By their ids: the accounting may know jobs of another day whose project had the same folder.
    for command in ask(
        "sacct", "-X", "-n", "-P", "-j", ",".join(jobs(project)), "-o", "SubmitLine"
    ).splitlines():
        command = re.sub(r" -D \S+", "", command.split(" --wrap=")[0])
        command = re.sub(r"--job-name \S+", "--job-name NAME", command)
        command = re.sub(r"--output \S*/slurm_logs/", "--output LOGS/", command)
        lines[re.search(r"--comment (\S+)", command)[1]] = command
    return lines


def jobs(project: Project) -> list[str]:
    """The project's jobs, from the controller, since the accounting may hear of a job seconds later."""
    result = (line.split("|") for line in ask("squeue", "-h", "-t", "all", "-o", "%i|%Z").splitlines())
    return [job for job, folder in result if folder == str(project.folder)]


def line(pack: str, options: str) -> str:
    log = f"group_{pack}_train"
    return f"sbatch --parsable --job-name NAME --output LOGS/{log}/%j.log --export=ALL --comment rule_{pack}_train {options}"


def test_the_command_lines_of_gpu_runs(project: Project):
    """On the cluster's stand-in GPUs: SLURM gives them, and torch, which sees none, stops the runs with a line."""
    project.site(
        gpu_partition="gpu",
        gpu_type="h200",
        qos="normal",
        setup="export TO=${PWD:?}/set-up.txt; date >> $TO",
        limits=[{"minutes": 3, "memory_mb": 500}],
    )
    _, *runs = project.study(**config("cpu-n1r1t1", "gpu-n1r1t2", "ddp-n1r2t1", "ddp-n2r4t1"))
    result = project.snakemake("--retries", "0", *(target(run) for run in runs), check=False)
    assert result.returncode == 1
    # The site's own commands ran before each job's work: preparing, and three runs.
    assert len((project.folder / "set-up.txt").read_text().splitlines()) == 1 + 3
    common = "-A ci -p gpu -t {minutes} --qos=normal --mem {memory} --nodes={nodes} --requeue --cpus-per-task=2 --exclusive --gres=gpu:h200:{gpus}"
    value = submitted(project)
    # A job of a rule, not of a pack, logs into a folder of its own kind.
    prepared = value.pop("rule_prepare_wildcards_sentences")
    assert prepared.endswith(
        "-A ci -p cpu -t 30 --qos=normal --mem 2000 --nodes=1 --requeue --ntasks=1 --cpus-per-task=2"
    )
    assert value == {
        "rule_timed-n1g1-0_train": line("timed-n1g1-0", common.format(minutes=3, memory=1200, nodes=1, gpus=1)),
        "rule_timed-n1g2-0_train": line("timed-n1g2-0", common.format(minutes=3, memory=1700, nodes=1, gpus=2)),
        "rule_timed-n2g2-0_train": line("timed-n2g2-0", common.format(minutes=3, memory=1700, nodes=2, gpus=2)),
    }  # fmt: skip
    for run, gpus in zip(runs, (1, 2, 4), strict=True):
        note = project.note(run)
        assert "torch sees no GPU here" in note["reason"]
        assert f"gres/gpu={gpus}" in accounted(note["job"], "ReqTRES")
        assert note["reason"] in " ".join(result.stderr.split())
    assert "failed" in project.ketscale("status").stdout


def test_the_command_lines_of_cpu_runs(project: Project):
    """From a partition whose jobs wait, so that nothing is trained for its command line."""
    project.site(partition="waiting", qos="normal", limits=[{"minutes": 3, "memory_mb": 500}])
    timed = config("cpu-n1r1t1", "cpu-n1r1t2", "mpi-n1r2t1", "mpi-n2r4t1", "ddp-cpu-n2r2t1")
    untimed = config("cpu-n1r1t1", "mpi-n1r2t1", protocol="parity")["studies"]["places"]
    project.study(**timed | {"studies": {**timed["studies"], "parity": untimed}})
    project.prepare()
    with project.running("runs"):
        wait_for("four jobs", lambda: len(jobs(project)) == 4)
        wait_for("the accounting, which hears of them later", lambda: len(submitted(project)) == 4)
    head = "-A ci -p waiting -t {minutes} --qos=normal --mem {memory} --nodes={nodes} --requeue --ntasks={nodes} --cpus-per-task={cores}"
    assert submitted(project) == {
        # Three runs of one scaling block, one after another: one allocation, as wide as the widest.
        "rule_timed-n1-0_train": line("timed-n1-0", head.format(minutes=9, memory=1700, nodes=1, cores=2) + " --exclusive"),
        "rule_timed-n2-0_train": line("timed-n2-0", head.format(minutes=6, memory=1700, nodes=2, cores=2) + " --exclusive"),
        "rule_shared-n1c1-0_train": line("shared-n1c1-0", head.format(minutes=3, memory=1200, nodes=1, cores=1)),
        "rule_shared-n1c2-0_train": line("shared-n1c2-0", head.format(minutes=3, memory=1700, nodes=1, cores=2)),
    }  # fmt: skip


@pytest.fixture
def partition(cluster) -> Iterator[Callable[[str], str]]:
    """Makes a partition of these tests' own, with some settings."""
    result = f"own{os.getpid()}"
    yield (
        lambda settings: (
            ask("scontrol", "create", f"partitionname={result}", "nodes=node8", *settings.split()) or result
        )
    )
    ask("scontrol", "delete", f"partitionname={result}")


def test_a_partition_that_takes_no_jobs_is_waited_for_and_counts_as_no_attempt(project, partition):
    name = partition("state=inactive")
    run = one_run(project, partition=name, limits=[{"minutes": 3, "memory_mb": 600}])
    message = "Required partition not available (inactive or drain)"
    with project.running("--retries", "0", target(run)) as driver:
        wait_for("the refusal", lambda: message in project.log)
        driver.send_signal(signal.SIGINT)
        # It waits for no answer of sbatch's.
        driver.wait(60)
    assert jobs(project) == [] and "failed" not in project.log
    with project.running("--retries", "0", target(run)) as driver:
        wait_for("the refusal", lambda: project.log.count(message) == 2)
        ask("scontrol", "update", f"partitionname={name}", "state=up")
        assert driver.wait(300) == 0, project.log
    assert "sbatch accepts jobs again" in project.log and "failed" not in project.log
    assert project.record(run)["status"] == "completed"


def test_what_sbatch_refuses_for_good_is_an_error_at_once(project):
    run = one_run(project, constraint="no-such-feature")
    result = project.snakemake(target(run), check=False)
    assert result.returncode == 1
    message = "sbatch rejected it: Invalid feature specification"
    assert re.search(rf"failed: rule_\S+_train: {message}\n", result.stderr)
    assert jobs(project) == []


def test_a_set_up_command_that_fails_ends_the_run(project: Project):
    project.site(setup="module load cuda/99")
    _, run = project.study(**config("cpu-n1r1t1", "cpu-n1r1t2"))
    project.prepare()
    result = project.snakemake("--retries", "0", target(run), check=False)
    assert result.returncode == 1
    assert not (project.results(run) / "metrics.json").exists()
    (log,) = (project.folder / ".snakemake" / "slurm_logs").glob("*_train/*.log")
    assert "module: command not found" in log.read_text()


def test_a_run_is_started_by_hand_in_a_step_of_an_allocation(project: Project):
    """As in the shell of `srun --pty bash`, whose step has the allocation's processors."""
    *_, run = project.study(**config("cpu-n1r1t1", "mpi-n1r2t1"))
    project.prepare()
    step = ("srun", "-A", "ci", "-p", "cpu", "-t", "2", "-n", "1", "-c", "2")
    project.run(*step, "ketscale", "launch", target(run))
    assert project.record(run)["status"] == "completed"
