"""What SLURM refuses for now is submitted again, with a stand-in of the executor and of SLURM's programs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from ketscale.jobs.slurm import submission

FAILED = "sbatch: error: Batch job submission failed: "
INACTIVE = f"{FAILED}Required partition not available (inactive or drain)"
TOO_LATE = f"{FAILED}Socket timed out on send/recv operation"
POLICY = f"{FAILED}Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
NO_ACCOUNT = f"{FAILED}Invalid account or account/partition combination specified"


@pytest.mark.parametrize(
    "message, passes",
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
def test_what_passes_is_told_from_what_no_wait_changes(message: str, passes: bool) -> None:
    assert submission.passes(message) is passes


class Executor:
    """As far as `submission` knows it: it calls sbatch for jobs by their names."""

    def __init__(self) -> None:
        self._job_submission_executor = ThreadPoolExecutor(2)
        self.submitted: list[str] = []
        self.failed: list[str] = []
        self.cancelled = False
        self.scheduler = SimpleNamespace(_executor=self, _user_kill=None)

    def submit(self, job: str) -> None:
        self._job_submission_executor.submit(self.run_job, job)

    def run_job(self, job: str) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        call = f"sbatch --parsable --comment rule_{job}_train --wrap 'a job'"
        process = subprocess.Popen(call, shell=True, text=True, **pipes)
        _, err = process.communicate(input=None)
        (self.failed if process.returncode else self.submitted).append(f"{job}: {err.strip()}")

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    """An executor whose submissions are followed, in a folder whose queue is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(submission, "_PAUSE_S", 0.01)
    monkeypatch.setattr(sys.modules[__name__], "subprocess", subprocess)
    program(tmp_path, "squeue", "true")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    result = Executor()
    submission.begin(SimpleNamespace(scheduler=result.scheduler))
    yield result
    result.scheduler._user_kill = "graceful"
    result._job_submission_executor.shutdown()


def program(folder: Path, name: str, does: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{does}\n")
    (folder / name).chmod(0o755)


def refuses(folder: Path, *answers: str) -> Callable[[], int]:
    """An sbatch that refuses so often, with these words, and then takes each job; how often it was asked."""
    cases = "".join(f'{number}) echo "{words}" >&2; exit 1;; ' for number, words in enumerate(answers, 1))
    program(folder, "sbatch", f"echo >> asked; case $(wc -l < asked) in {cases} esac")
    return lambda: len((folder / "asked").read_text()) if (folder / "asked").exists() else 0


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_refusal_that_passes_is_waited_for(
    executor: Executor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = refuses(tmp_path, INACTIVE, INACTIVE, INACTIVE)
    executor.submit("a")
    until(lambda: executor.submitted)
    assert calls() == 4 and not executor.failed
    assert capsys.readouterr().err.splitlines() == [
        "ketscale: sbatch rejected a job, which is submitted again: Required partition not available (inactive or drain)",
        "ketscale: sbatch accepts jobs again",
    ]


def test_others_go_ahead_of_those_that_wait(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "_PAUSE_S", 1000.0)
    calls = refuses(tmp_path, INACTIVE, INACTIVE, INACTIVE)
    for name in "abcd":
        executor.submit(name)
    until(lambda: executor.submitted)
    assert calls() == 4 and not executor.failed


def test_after_sigterm_nothing_is_asked_again(
    executor: Executor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Snakemake waits for the jobs that it has started, and then ends."""
    calls = refuses(tmp_path, *[INACTIVE] * 1000)
    executor.submit("a")
    until(lambda: calls() > 2)
    assert not executor.failed
    executor.scheduler._user_kill = "graceful"
    executor.submit("b")
    until(lambda: len(executor.failed) == 2)
    first, second = sorted(executor.failed)
    assert "Required partition not available" in first and second.endswith("since the call ends")
    assert "failed" not in capsys.readouterr().err


def test_a_refusal_for_good_is_an_error_at_once(
    executor: Executor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = refuses(tmp_path, NO_ACCOUNT)
    executor.submit("a")
    until(lambda: executor.failed)
    assert calls() == 1 and executor.failed == [f"a: {NO_ACCOUNT}"]
    reason = "sbatch rejected it: Invalid account or account/partition combination specified"
    assert capsys.readouterr().err == f"ketscale: failed: rule_a_train: {reason}\n"


def test_a_command_that_the_kernel_refuses_is_an_error(executor: Executor) -> None:
    """The executor would hide it."""
    executor.submit("a" * 200_000)
    until(lambda: executor.failed)
    assert executor.failed[0].endswith("Argument list too long: '/bin/sh'")


def test_a_job_that_slurm_took_although_its_answer_was_lost_is_not_there_twice(
    executor: Executor, tmp_path: Path
) -> None:
    uuid = "821b9131-a4af-418f-8841-2ecb90bcfcf7"
    lines = [
        f"{number}|PENDING|{uuid}|rule_{pack}_train|None|$PWD" for number, pack in ((41, "b"), (42, "a"))
    ]
    program(tmp_path, "squeue", "".join(f'echo "{line}"\n' for line in lines))
    program(tmp_path, "scancel", f"echo $* >> {tmp_path}/cancelled")
    calls = refuses(tmp_path, TOO_LATE)
    executor.submit("a")
    until(lambda: executor.submitted)
    assert (tmp_path / "cancelled").read_text() == "42\n" and calls() == 2


def test_nothing_is_submitted_again_while_slurm_does_not_say_what_it_has(
    executor: Executor, tmp_path: Path
) -> None:
    program(tmp_path, "squeue", "[ -e said ] || { touch said; exit 1; }")
    calls = refuses(tmp_path, TOO_LATE)
    executor.submit("a")
    until(lambda: executor.submitted)
    assert (tmp_path / "said").exists() and calls() == 2


def test_the_end_of_the_call_is_the_end_of_what_it_submits(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "_PAUSE_S", 1000.0)
    calls = refuses(tmp_path, *[INACTIVE] * 1000)
    executor.submit("a")
    until(calls)
    executor.cancel()
    assert executor.cancelled
    with pytest.raises(RuntimeError):
        executor.submit("b")


def test_the_executor_is_as_it_is_known_here() -> None:
    """If this fails, snakemake-executor-plugin-slurm has changed: look at its `run_job`."""
    plugin = pytest.importorskip("snakemake_executor_plugin_slurm")
    assert {"subprocess", "Popen", "communicate"} <= {*plugin.Executor.run_job.__code__.co_names}
    assert "_job_submission_executor" in plugin.Executor.__post_init__.__code__.co_names
    assert " --comment " in "".join(
        each for each in plugin.get_submit_command.__code__.co_consts if isinstance(each, str)
    )
