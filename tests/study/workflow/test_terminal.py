"""What is printed: a line for each study, why something failed, and never a wall; the rest is in Snakemake's log."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from snakemake_interface_logger_plugins.common import LogEvent

from ketscale import process
from ketscale.config import Config
from ketscale.grid import Run
from ketscale.jobs import supervise
from ketscale.jobs.ownership import signs
from ketscale.jobs.status.progress import Progress
from snakemake_logger_plugin_ketscale import LogHandler
from tests import record_maker as maker
from tests.study.workflow.project import LOCAL, RUNS, TINY, record, run_in

SITE = SimpleNamespace(minutes=lambda run: 3)


def lines_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines, without the clock's time."""
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in (done.stdout + done.stderr).splitlines()]


# ---------------------------------------------------------------- in a call of Snakemake


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


def test_a_failure_says_its_reason_and_its_log_and_no_settings(fresh: Path) -> None:
    failing = RUNS[-1]
    done = run_in(fresh, *LOCAL, check=False, STAND_IN_FAILS=record(failing))
    said = lines_of(done)
    assert f"failed: {TINY.results}/{failing.folder}/train.log: exit status 1: told to fail" in said
    assert "batch     3 of 4 runs, 1 failed" in said
    assert any(line.startswith("5 of 6 runs ended with a result, 1 failed; ") for line in said)
    assert "`ketscale status` shows what is left; the same command runs it again." in said
    assert "learning_rate" not in done.stderr and "Error" not in done.stderr
    (log,) = [line.removeprefix("log: ") for line in said if line.startswith("log: ")]
    assert "learning_rate" in (fresh / log).read_text()


def test_the_users_command_runs_at_the_end_with_what_came_of_it(fresh: Path) -> None:
    path = fresh / "profiles" / "slurm" / "site.yaml"
    told = 'notify: echo "$KETSCALE_STATUS $KETSCALE_DONE of $KETSCALE_RUNS" >> told; false'
    path.write_text(re.sub("^notify: .*", told, path.read_text(), flags=re.MULTILINE))
    run_in(fresh, *LOCAL, "runs", check=False, STAND_IN_FAILS=record(RUNS[-1]))
    run_in(fresh, *LOCAL, "-n")
    done = run_in(fresh, *LOCAL, "runs")
    assert (fresh / "told").read_text().splitlines() == ["failure 5 of 6", "success 1 of 1"]
    assert "ketscale: notify in profiles/slurm/site.yaml failed (exit status 1)" in done.stderr


def test_other_errors_of_snakemake_are_still_heard(finished: Path) -> None:
    unknown = run_in(finished, *LOCAL, "nosuchrule", check=False)
    assert unknown.returncode == 1 and "nosuchrule" in " ".join(lines_of(unknown))


# ---------------------------------------------------------------- what is known of runs


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The config of two studies, in whose folder a call begins."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KETSCALE_CALL", "this")
    return maker.config(
        fast=maker.study(simulator=["default.qubit", "fused"], seed=[0, 1]),
        slow=maker.study(layers=4, seed=0),
    )


def leave(config: Config, run: Run, status: str = "completed", node_hours: float = 0.01) -> None:
    path = Path(config.results, run.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"status": status, "node_hours": node_hours, "more": []}))


def words(of: Progress) -> dict[str, str]:
    return {line.study: line.text.partition("  ")[2] for line in of.lines()}


@pytest.mark.parametrize(
    "status, said", [("timed_out", "1 ended by limit_s"), ("diverged", "1 diverged"), ("completed", None)]
)
def test_an_early_end_is_a_result(call: Config, status: str, said: str | None) -> None:
    of = Progress(call, SITE)
    of.begin(call.runs)
    for run in call.runs:
        leave(call, run, status=status if run.size == "q4-l4" else "completed")
        of.finish(run)
    assert words(of)["slow"] == ", ".join(["1 of 1 run", *([said] if said else [])])
    assert of.end().startswith("5 of 5 runs ended with a result" + (f", {said};" if said else ";"))


def test_a_retry_that_ends_well_is_no_failure(call: Config) -> None:
    of = Progress(call, SITE)
    of.begin(call.runs[:1])
    of.fail(call.runs[0])
    assert words(of) == {"fast": "0 of 1 run, 1 failed"}
    leave(call, call.runs[0])
    of.finish(call.runs[0])
    assert words(of) == {"fast": "1 of 1 run"}


def test_only_the_note_of_this_call_is_a_reason(call: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    of, run = Progress(call, SITE), call.runs[0]
    supervise.leave_note(Path(call.results, run.folder), "out of memory")
    assert of.reason(run) == "out of memory" and of.reason(call.runs[1]) is None
    monkeypatch.setenv("KETSCALE_CALL", "another")
    assert of.reason(run) is None


# ---------------------------------------------------------------- what is said of jobs


@pytest.fixture
def handler(call: Config, monkeypatch: pytest.MonkeyPatch) -> LogHandler:
    """The handler of a call that begins."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    names = ("verbose", "printshellcmds", "debug_dag", "stdout", "nocolor", "dryrun", "quiet")
    made = LogHandler(SimpleNamespace(**dict.fromkeys(names, False)), None)
    made.follow(Progress(call, SITE), lambda: dict.fromkeys(call.runs, "Missing output files: a"))
    made.begin()
    return made


def rows(handler: LogHandler) -> list[str]:
    """What was printed, without the time."""
    return [line.partition(" ")[2] for line in handler._stream.getvalue().splitlines()]


def event(handler: LogHandler, kind: LogEvent | None, text: str | None = None, **given: Any) -> None:
    level = logging.ERROR if kind in (LogEvent.JOB_ERROR, LogEvent.GROUP_ERROR) else logging.INFO
    made = logging.LogRecord("snakemake", level, "", 0, text, (), None)
    vars(made).update(given, event=kind)
    handler.handle(made)


def job(handler: LogHandler, config: Config, number: int) -> dict[str, Any]:
    """A job that starts; what its failure would be told with."""
    run = config.runs[number]
    about = {
        "jobid": number, "rule_name": "train", "wildcards": vars(run), "output": [run.path], "reason": "",
        "shellcmd": "ketscale launch", "log": [f"{config.results}/{run.folder}/train.log"], "indent": True,
        "rule_msg": None, "aux": {},
    }  # fmt: skip
    event(handler, LogEvent.JOB_INFO, **about)
    return about


def test_of_a_job_of_several_runs_only_those_failed_that_have_no_record(
    call: Config, handler: LogHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [job(handler, call, number) for number in range(5)]
    leave(call, call.runs[0])
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    supervise.leave_note(Path(call.results, call.runs[1].folder), "its node failed")
    # The note of the attempt before says nothing of this one.
    monkeypatch.setenv("SLURM_JOB_ID", "6")
    supervise.leave_note(Path(call.results, call.runs[2].folder), "it was cancelled")
    group = {"groupid": "a", "aux_logs": ["slurm/7.log"], "external_jobid": "7"}
    event(handler, LogEvent.GROUP_ERROR, job_error_info=told, **group)
    for one in told:
        event(handler, LogEvent.JOB_ERROR, **one)
    assert [row for row in rows(handler) if row.startswith("failed")] == [
        f"failed: {call.results}/{call.runs[1].folder}/train.log: its node failed (SLURM job 7)",
        # The other three are named once.
        "failed: a: its job ended before these runs began or could say why, see slurm/7.log (SLURM job 7)",
    ]
    assert words(handler._progress) == {"fast": "1 of 4 runs, 3 failed", "slow": "0 of 1 run, 1 failed"}


def test_a_run_that_waits_for_its_host_is_named_once(call: Config, handler: LogHandler) -> None:
    job(handler, call, 0)
    folder = Path(call.results, call.runs[0].folder)
    folder.mkdir(parents=True)
    signs.Sign(folder).show("another study")
    for _ in range(2):
        handler.say_who_waits()
    (said,) = [row for row in rows(handler) if "wait" in row]
    assert said == f"waiting: {call.runs[0].name}: {process.node_name()} is held by another study"


def test_a_call_that_is_refused_before_its_first_job_says_no_more(handler: LogHandler) -> None:
    event(handler, LogEvent.WORKFLOW_STARTED)
    handler.close()
    assert rows(handler) == ["runs to train: 5"]


def test_a_page_that_failed_is_not_announced(call: Config, handler: LogHandler) -> None:
    about = {**job(handler, call, 0), "wildcards": {}, "jobid": 9, "rule_name": "write_page", "indent": False}
    event(handler, LogEvent.JOB_INFO, **about | {"output": ["results/report.html"]})
    event(handler, LogEvent.JOB_ERROR, **about)
    handler.close()
    assert not any(row.startswith("report") for row in rows(handler))


def test_a_reader_that_goes_away_is_no_error(call: Config, handler: LogHandler) -> None:
    handler._stream.write = Mock(side_effect=BrokenPipeError)
    event(handler, None, "Nothing to be done (all requested files are present and up to date).")
    handler.close()
