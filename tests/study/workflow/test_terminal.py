"""What is printed: how many jobs are done, why something failed, and never a wall; the rest is in Snakemake's log."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_logger_plugins.common import LogEvent

from ketscale.jobs import supervise
from snakemake_logger_plugin_ketscale import LogHandler
from tests.study.workflow.project import LOCAL, RUNS, TINY, planned, record, run_in


def lines_of(result: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines, without the clock's time."""
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in (result.stdout + result.stderr).splitlines()]


def test_a_call_says_how_far_it_is_and_where_its_report_and_the_log_are(fresh: Path) -> None:
    assert planned(run_in(fresh, *LOCAL, "-n"))["train"] == len(RUNS) == 6
    result = run_in(fresh, *LOCAL)
    message = lines_of(result)
    assert result.stdout == "" and len(message) <= 26
    assert [line for line in message if "jobs are done" in line] == [
        f"{count} of 11 jobs are done" for count in range(1, 12)
    ]
    assert "report: results/report.html" in message
    (log,) = [line.removeprefix("log: ") for line in message if line.startswith("log: ")]
    complete = (fresh / log).read_text()
    assert all(record(run) in complete for run in RUNS) and "rule train:" in complete


def test_a_failure_says_its_reason_and_its_log_and_no_settings(fresh: Path) -> None:
    failing = RUNS[-1]
    result = run_in(fresh, *LOCAL, check=False, STAND_IN_FAILS=record(failing))
    message = lines_of(result)
    assert f"failed: {TINY.results}/{failing.folder}/train.log: exit status 1: told to fail" in message
    assert "6 of 11 jobs are done" in message
    assert "ketscale: `ketscale status` shows what is left; the same command runs it again" in message
    assert not any(line.startswith("report:") for line in message)
    assert "learning_rate" not in result.stderr and "Error" not in result.stderr


def test_other_errors_are_heard(fresh: Path) -> None:
    unknown = run_in(fresh, *LOCAL, "nosuchrule", check=False)
    assert unknown.returncode == 1 and "nosuchrule" in " ".join(lines_of(unknown))


@pytest.fixture
def handler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogHandler:
    """The handler of a call that has begun in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KETSCALE_CALL", "this")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    names = ("verbose", "printshellcmds", "debug_dag", "stdout", "nocolor", "dryrun", "quiet")
    result = LogHandler(SimpleNamespace(**dict.fromkeys(names, False)), None)
    event(result, LogEvent.WORKFLOW_STARTED)
    return result


def rows(handler: LogHandler) -> list[str]:
    """What was printed, without the time."""
    return [line.partition(" ")[2] for line in handler._stream.getvalue().splitlines()]


def event(handler: LogHandler, kind: LogEvent | None, text: str | None = None, **given: Any) -> None:
    level = logging.ERROR if kind in (LogEvent.JOB_ERROR, LogEvent.GROUP_ERROR) else logging.INFO
    result = logging.LogRecord("snakemake", level, "", 0, text, (), None)
    vars(result).update(given, event=kind)
    handler.handle(result)


def test_of_a_job_of_several_runs_those_that_have_failed_in_it_say_why(
    handler: LogHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [Path(TINY.results, run.folder) for run in RUNS[:4]]
    messages = [{"log": [str(folder / "train.log")], "indent": True, "aux": {}} for folder in folders]
    # Two have failed alike; the note of the attempt before says nothing of this one.
    reasons = (("7", "its node failed"), ("7", "its node failed"), ("6", "cancelled"))
    for folder, (slurm_job, reason) in zip(folders[1:], reasons, strict=True):
        monkeypatch.setenv("SLURM_JOB_ID", slurm_job)
        folder.mkdir(parents=True)
        supervise.leave_note(folder, reason)
    event(handler, LogEvent.GROUP_ERROR, external_jobid="7", job_error_info=messages)
    for one in messages:
        event(handler, LogEvent.JOB_ERROR, **one)
    event(handler, LogEvent.GROUP_ERROR, external_jobid="8", job_error_info=messages)
    # What was not submitted has said why.
    event(handler, LogEvent.GROUP_ERROR, external_jobid=None, job_error_info=messages)
    handler.close()
    assert rows(handler) == [
        f"failed: {folders[1]}/train.log: its node failed (SLURM job 7)",
        f"failed: {folders[0]}/train.log: its job ended before it began, or could say why (SLURM job 8)",
    ]
