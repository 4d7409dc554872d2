"""What is printed: a line for each study, why something failed, and never a wall; the rest is in Snakemake's log."""

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

from ketscale.jobs import driver, supervise
from ketscale.jobs.status.progress import Progress
from snakemake_logger_plugin_ketscale import LogHandler
from tests import record_maker as maker
from tests.study.workflow.project import LOCAL, RUNS, TINY, record, run_in

CONFIG = maker.config(fast=maker.study(simulator=["default.qubit", "fused"], seed=[0, 1]))


def lines_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines, without the clock's time."""
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in (done.stdout + done.stderr).splitlines()]


def test_a_study_says_how_far_it_is_and_where_its_report_and_the_log_are(fresh: Path) -> None:
    done = run_in(fresh, *LOCAL)
    said = lines_of(done)
    assert done.stdout == "" and len(said) <= 20
    of_study = [line for line in said if line.startswith("batch ")]
    assert of_study == [f"batch     {count} of 4 runs" for count in range(1, 5)]
    assert said.index("runs to train: 6") < said.index("prepare digits") < said.index(of_study[0])
    assert any(line.startswith("6 of 6 runs ended with a result; ") for line in said)
    assert "report: results/report.html" in said
    (log,) = [line.removeprefix("log: ") for line in said if line.startswith("log: ")]
    whole = (fresh / log).read_text()
    assert all(record(run) in whole for run in RUNS) and "rule train:" in whole


def test_a_dry_run_says_the_runs_by_study_why_and_their_node_hours(fresh: Path) -> None:
    said = lines_of(run_in(fresh, *LOCAL, "-n"))
    first = said.index("6 runs to train, by study (one may be in several):")
    assert said[first + 1 : first + 3] == ["  batch     4", "  accuracy  2"]
    assert said[first + 3].startswith("why: missing output files (6)")
    assert said[first + 4] == "planned: 6 runs, of which no record tells what they take"


def test_a_failure_says_its_reason_and_its_log_and_no_settings(fresh: Path) -> None:
    failing = RUNS[-1]
    done = run_in(fresh, *LOCAL, check=False, STAND_IN_FAILS=record(failing))
    said = lines_of(done)
    assert f"failed: {TINY.results}/{failing.folder}/train.log: exit status 1: told to fail" in said
    assert "batch     3 of 4 runs, 1 failed" in said
    assert any(line.startswith("5 of 6 runs ended with a result, 1 failed; ") for line in said)
    assert "`ketscale status` shows what is left; the same command runs it again." in said
    assert not any(line.startswith("report:") for line in said)
    assert "learning_rate" not in done.stderr and "Error" not in done.stderr


def test_other_errors_are_heard(fresh: Path) -> None:
    unknown = run_in(fresh, *LOCAL, "nosuchrule", check=False)
    assert unknown.returncode == 1 and "nosuchrule" in " ".join(lines_of(unknown))


@pytest.fixture
def handler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogHandler:
    """The handler of a call that begins in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KETSCALE_CALL", "this")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    driver.FOLDER.mkdir(parents=True)
    driver.BEGAN.touch()
    names = ("verbose", "printshellcmds", "debug_dag", "stdout", "nocolor", "dryrun", "quiet")
    made = LogHandler(SimpleNamespace(**dict.fromkeys(names, False)), None)
    made.follow(Progress(CONFIG, (), lambda: dict.fromkeys(CONFIG.runs, "Missing output files: a")))
    event(made, LogEvent.RUN_INFO)
    return made


def rows(handler: LogHandler) -> list[str]:
    """What was printed, without the time."""
    return [line.partition(" ")[2] for line in handler._stream.getvalue().splitlines()]


def event(handler: LogHandler, kind: LogEvent | None, text: str | None = None, **given: Any) -> None:
    level = logging.ERROR if kind in (LogEvent.JOB_ERROR, LogEvent.GROUP_ERROR) else logging.INFO
    made = logging.LogRecord("snakemake", level, "", 0, text, (), None)
    vars(made).update(given, event=kind)
    handler.handle(made)


def test_of_a_job_of_several_runs_only_those_failed_that_have_left_no_record(
    handler: LogHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [Path(CONFIG.results, run.folder) for run in CONFIG.runs]
    told = [
        {"jobid": number, "wildcards": vars(run), "log": [str(folders[number] / "train.log")], "indent": True, "aux": {}}
        for number, run in enumerate(CONFIG.runs)
    ]  # fmt: skip
    for one in told:
        event(handler, LogEvent.JOB_INFO, **one)
    maker.write(Path(CONFIG.results), CONFIG.settings(CONFIG.runs[0]))
    # The note of the attempt before says nothing of this one.
    for folder, slurm_job, reason in ((folders[1], "7", "its node failed"), (folders[2], "6", "cancelled")):
        monkeypatch.setenv("SLURM_JOB_ID", slurm_job)
        folder.mkdir(parents=True)
        supervise.leave_note(folder, reason)
    event(handler, LogEvent.GROUP_ERROR, groupid="a", external_jobid="7", job_error_info=told)
    for one in told:
        event(handler, LogEvent.JOB_ERROR, **one)
    # A retry that ends well is no failure.
    event(handler, LogEvent.JOB_FINISHED, job_id=1)
    handler.close()
    assert rows(handler)[:-2] == [
        "runs to train: 4",
        "fast  1 of 4 runs",
        f"failed: {folders[1]}/train.log: its node failed (SLURM job 7)",
        "fast  1 of 4 runs, 1 failed",
        # The other two are named once.
        f"failed: {folders[2]}/train.log: its job ended before it began, or could say why (SLURM job 7)",
        "fast  1 of 4 runs, 2 failed",
        "fast  1 of 4 runs, 3 failed",
    ]
    assert rows(handler)[-2].startswith("2 of 4 runs ended with a result, 2 failed; ")


def test_a_call_that_is_refused_before_its_first_job_says_no_more(handler: LogHandler) -> None:
    handler.close()
    assert rows(handler) == ["runs to train: 4"]
