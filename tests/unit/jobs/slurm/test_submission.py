"""What SLURM refuses for now is submitted again, with a stand-in of the executor that reports refusals in its words."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ketscale.jobs.slurm import submission

FAILED = "sbatch: error: Batch job submission failed: "
INACTIVE = f"{FAILED}Required partition not available (inactive or drain)"
TOO_LATE = f"{FAILED}Socket timed out on send/recv operation"
POLICY = f"{FAILED}Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
NO_ACCOUNT = f"{FAILED}Invalid account or account/partition combination specified"


@pytest.mark.parametrize(
    "said, passes",
    [
        (INACTIVE, True),
        (TOO_LATE, True),
        (f"{FAILED}Unable to contact slurm controller (connect failure)", True),
        (f"{FAILED}Zero Bytes were transmitted or received", True),
        (f"{FAILED}Slurm backup controller in standby mode", True),
        ("sbatch: fatal: Could not establish a configuration source", True),
        (f"{FAILED}what no version has said before", True),
        ("Killed", True),
        ("", True),
        (POLICY, True),
        (f"sbatch: error: AssocMaxSubmitJobLimit\n{POLICY}", True),
        (f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{POLICY}", False),
        (NO_ACCOUNT, False),
        (f"sbatch: error: invalid partition specified: x\n{FAILED}Invalid partition name specified", False),
        (f"sbatch: error: Memory specification can not be satisfied\n{FAILED}Requested node configuration is not available", False),
        (f"{FAILED}Requested time limit is invalid (missing or exceeds some limit)", False),
        (f"{FAILED}User's group not permitted to use this partition", False),
        ("sbatch: unrecognized option '--memory'\nTry \"sbatch --help\" for more information", False),
    ],
)  # fmt: skip
def test_what_passes_is_told_from_what_no_wait_changes(said: str, passes: bool) -> None:
    assert submission.passes(said) is passes


@dataclass
class Info:
    job: Any
    external_jobid: str | None = None


class Executor:
    """As far as `submission` knows it: jobs are named by their group, and `answers` are given one after the other."""

    def __init__(self) -> None:
        self._job_submission_executor = ThreadPoolExecutor(2)
        self.answers: list[str | Exception | None] = []
        self.asked: list[str] = []
        self.submitted: list[Any] = []
        self.failed: list[str] = []
        self.cancelled = False
        self.scheduler = SimpleNamespace(_executor=self, _user_kill=None)

    def submit(self, job: Any) -> None:
        self._job_submission_executor.submit(self.run_job, job)

    def run_job(self, job: Any) -> None:
        self.asked.append(job.groupid)
        said = self.answers.pop(0) if self.answers else None
        if isinstance(said, Exception):
            raise said
        if said is None:
            self.submitted.append(Info(job, "7"))
            return
        msg = f"SLURM sbatch failed. The error message was '{said}'.\n    sbatch call:\n        sbatch --wrap=\"it's\"\n"
        self._report_job_error_threadsafe(Info(job), msg)

    def _report_job_error_threadsafe(self, info: Any, msg: str) -> None:
        self.failed.append(msg)

    def cancel(self) -> None:
        self.cancelled = True


class Job:
    restart_times, _attempt = 2, 1

    def __init__(self, groupid: str) -> None:
        self.groupid = groupid

    def is_group(self) -> bool:
        return True


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]):
    """An executor whose submissions are followed, in a folder whose queue is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(submission, "_PAUSE_S", 0.01)
    program(tmp_path, "squeue", "true")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    made = Executor()
    submission.begin(SimpleNamespace(scheduler=made.scheduler), said.append)
    yield made
    made.scheduler._user_kill = "graceful"
    made._job_submission_executor.shutdown()


def program(folder: Path, name: str, does: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{does}\n")
    (folder / name).chmod(0o755)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_refusal_that_passes_is_waited_for_and_is_no_attempt(executor: Executor, said: list[str]) -> None:
    job, other = Job("a"), Job("b")
    executor.answers = [INACTIVE, INACTIVE, INACTIVE]
    executor.submit(job)
    line = "sbatch refuses a job, and is asked again: Required partition not available (inactive or drain)"
    until(lambda: said == [line, "sbatch takes jobs again"])
    executor.submit(other)
    until(lambda: len(executor.submitted) == 2)
    assert executor.asked == ["a", "a", "a", "a", "b"] and not executor.failed and job._attempt == 1


def test_others_go_ahead_of_those_that_wait(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "_PAUSE_S", 1000.0)
    executor.answers = [INACTIVE, INACTIVE, INACTIVE]
    for name in "abcd":
        executor.submit(Job(name))
    until(lambda: executor.submitted)
    assert sorted(executor.asked) == ["a", "b", "c", "d"] and not executor.failed


def test_after_sigterm_nothing_is_asked_again(executor: Executor, said: list[str]) -> None:
    """Snakemake waits for the jobs that it has started, and then ends."""
    executor.answers = [INACTIVE] * 1000
    executor.submit(Job("a"))
    until(lambda: len(executor.asked) > 2)
    assert not executor.failed
    executor.scheduler._user_kill = "graceful"
    executor.submit(Job("b"))
    until(lambda: len(executor.failed) == 2)
    second, first = sorted(executor.failed)
    assert "Required partition not available" in first and "since the call ends" in second
    assert "b" not in executor.asked
    assert not any(words.startswith("failed") for words in said)


def test_a_refusal_for_good_is_an_error_without_another_attempt(executor: Executor, said: list[str]) -> None:
    executor.answers = [NO_ACCOUNT]
    job = Job("a")
    executor.submit(job)
    until(lambda: executor.failed)
    reason = "sbatch refuses it: Invalid account or account/partition combination specified"
    assert executor.failed == [f"{reason}. "] and job._attempt == job.restart_times + 1
    assert said == [f"failed: job group a: {reason}"]


def test_what_the_executor_cannot_submit_is_told_and_asked_again_where_that_may_pass(
    executor: Executor,
) -> None:
    """It reports nothing of a job group itself."""
    executor.answers = [OSError(28, "No space left on device"), OSError(7, "Argument list too long: 'bash'")]
    executor.submit(Job("a"))
    until(lambda: executor.failed)
    assert executor.asked == ["a", "a"] and "Argument list too long" in executor.failed[0]


def test_a_job_that_slurm_took_although_its_answer_was_lost_is_not_there_twice(
    executor: Executor, tmp_path: Path
) -> None:
    uuid = "821b9131-a4af-418f-8841-2ecb90bcfcf7"
    lines = [
        f"{number}|PENDING|{uuid}|rule_{pack}_train|None|$PWD" for number, pack in ((41, "b"), (42, "a"))
    ]
    program(tmp_path, "squeue", "".join(f'echo "{line}"\n' for line in lines))
    program(tmp_path, "scancel", f"echo $* >> {tmp_path}/cancelled")
    executor.answers = [TOO_LATE]
    executor.submit(Job("a"))
    until(lambda: executor.submitted)
    assert (tmp_path / "cancelled").read_text() == "42\n" and executor.asked == ["a", "a"]


def test_nothing_is_submitted_again_while_slurm_does_not_say_what_it_has(
    executor: Executor, tmp_path: Path
) -> None:
    program(tmp_path, "squeue", f"[ -e {tmp_path}/asked ] || {{ touch {tmp_path}/asked; exit 1; }}")
    executor.answers = [TOO_LATE]
    executor.submit(Job("a"))
    until(lambda: executor.submitted)
    assert (tmp_path / "asked").exists() and executor.asked == ["a", "a"]


def test_the_end_of_the_call_is_the_end_of_what_it_submits(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "_PAUSE_S", 1000.0)
    executor.answers = [INACTIVE] * 1000
    executor.submit(Job("a"))
    until(lambda: executor.asked)
    executor.cancel()
    assert executor.cancelled and not executor.failed
    with pytest.raises(RuntimeError):
        executor.submit(Job("b"))


def test_the_executor_is_as_it_is_known_here() -> None:
    """If this fails, snakemake-executor-plugin-slurm has changed: look at its `run_job`."""
    plugin = pytest.importorskip("snakemake_executor_plugin_slurm")
    from snakemake.jobs import GroupJob, Job

    code = plugin.Executor.run_job.__code__
    assert "SLURM sbatch failed. The error message was '" in code.co_consts
    assert "'.\n    sbatch call:\n        " in code.co_consts
    assert "_report_job_error_threadsafe" in code.co_names
    assert "_job_submission_executor" in plugin.Executor.__post_init__.__code__.co_names
    assert all("_attempt" in kind.__slots__ for kind in (Job, GroupJob))
