"""What is printed: a line for each study, why something failed, and never a wall; the rest is in Snakemake's log."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from snakemake_interface_logger_plugins.common import LogEvent

from ketscale.analysis import terminal
from ketscale.config import Config
from ketscale.files import write_atomic, write_csv
from ketscale.grid import Run
from ketscale.jobs import supervise
from ketscale.jobs.costs import Interval
from ketscale.jobs.slurm import submission
from ketscale.jobs.status import progress
from ketscale.jobs.status.progress import Progress
from snakemake_logger_plugin_ketscale import FAILURES, LINES, WIDTH, LogHandler
from tests import record_maker as maker
from tests.study.workflow.project import LOCAL, RUNS, TINY, planned, record, run_in

SITE = SimpleNamespace(minutes=lambda run: 3)


def lines_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines that are no clock's, all of which fit."""
    lines = (done.stdout + done.stderr).splitlines()
    assert max(map(len, lines)) <= WIDTH
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in lines]


# ---------------------------------------------------------------- in a call of Snakemake


def test_a_dry_run_of_hundreds_says_runs_by_study_and_node_hours(fresh: Path) -> None:
    given = yaml.safe_load((fresh / "config.yaml").read_text())
    batch = given["studies"]["batch"]
    seeds = list(range(5))
    given["studies"] = {
        f"study-{number}": {
            **batch,
            "axes": {**batch["axes"], "batch": [number + 1, number + 61], "seed": seeds},
        }
        for number in range(60)
    }
    (fresh / "config.yaml").write_text(yaml.safe_dump(given))
    done = run_in(fresh, *LOCAL, "-n")
    said = lines_of(done)
    assert len(said) <= 300
    assert planned(done)["train"] == 600
    assert "600 runs to train, by study (one may be in several):" in said
    assert "  study-7   10 of 10" in said
    # Three minutes each, by the site file.
    assert any(line.startswith("planned: on a cluster at most 30 node-hours for 600 runs") for line in said)
    assert "why: missing output files (600), input files updated by another job (600)" in said


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


def test_a_rule_that_is_no_run_fails_in_the_same_words(finished: Path) -> None:
    (finished / "results" / "report.html").unlink()
    done = run_in(finished, *LOCAL, check=False, STAND_IN_FAILS="report")
    said = lines_of(done)
    at = said.index("failed: write_report, see results/report.log")
    assert said[at + 1] == "    exit status 1: told to fail"
    assert not [line for line in said if "runs" in line or line.startswith("report: ")]


def test_other_errors_and_other_commands_of_snakemake_are_still_heard(finished: Path) -> None:
    unknown = run_in(finished, *LOCAL, "nosuchrule", check=False)
    assert unknown.returncode == 1 and "nosuchrule" in " ".join(lines_of(unknown))
    assert "Unlocked working directory." in lines_of(run_in(finished, *LOCAL, "--unlock"))


def test_a_run_that_is_taken_for_a_config_is_told_where_it_stands(fresh: Path) -> None:
    # The command is one line however long it is.
    name = f"my own {100 * 'x'}.yaml"
    os.rename(fresh / "config.yaml", fresh / name)
    target = record(RUNS[0])
    done = run_in(fresh, "--configfile", name, target, *LOCAL, "-n", check=False)
    told = [
        line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("Using profiles")
    ]
    typed = f"snakemake {target} --configfile '{name}' {' '.join(LOCAL)} -n"
    assert told[0] == f"--configfile takes all names after it; type: {typed}" and len(told) == 1
    assert planned(run_in(fresh, *shlex.split(typed)[1:]))["train"] == 1
    missing = run_in(fresh, "--configfile", "my.yaml", *LOCAL, "-n", check=False)
    assert lines_of(missing)[0] == "my.yaml: no such config"


def test_who_asks_for_more_gets_snakemakes_own_words(fresh: Path) -> None:
    done = run_in(fresh, *LOCAL, "-n", "-p", record(RUNS[0]))
    assert "rule train:" in done.stdout and "learning_rate" in done.stdout


def test_a_profile_without_the_plugin_is_refused_by_name(fresh: Path) -> None:
    """As with an environment of an older version of the package."""
    hidden = (
        "import pkgutil, sys\nfound = pkgutil.iter_modules\n"
        "pkgutil.iter_modules = lambda *args: (m for m in found(*args) if 'plugin_ketscale' not in m.name)\n"
        "from snakemake.cli import main\nmain(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", hidden, *LOCAL, "-n"], cwd=fresh, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert "argument --logger: invalid choice: 'ketscale'" in done.stderr.splitlines()[-1]


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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def leave(config: Config, run: Run, status: str = "completed", node_hours: float = 0.01) -> None:
    path = Path(config.results, run.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"status": status, "node_hours": node_hours, "more": []}))


def words(of: Progress) -> dict[str, str]:
    return {line.study: line.text.partition("  ")[2] for line in of.lines()}


def test_time_left_is_said_when_it_is_known_of_every_run_before(call: Config, clock: list[float]) -> None:
    of = Progress(call, SITE)
    of.begin(call.runs)
    # Seed by seed: three runs of seed 0, then two of seed 1.
    assert [(run.seed, run.size, run.simulator) for run in call.runs] == [
        (0, "q4-l3", "default.qubit"), (0, "q4-l3", "fused"), (0, "q4-l4", "default.qubit"),
        (1, "q4-l3", "default.qubit"), (1, "q4-l3", "fused"),
    ]  # fmt: skip
    for run in call.runs[:2]:
        clock[0] += 40.0
        leave(call, run)
        of.finish(run)
    # Nothing is known of the next one.
    assert words(of) == {"fast": "2 of 4 runs", "slow": "0 of 1 run"}
    clock[0] += 80.0
    leave(call, call.runs[2], node_hours=0.02)
    of.finish(call.runs[2])
    assert words(of) == {"fast": "2 of 4 runs, about 1.3 min left", "slow": "1 of 1 run"}


def test_the_cost_model_says_what_this_call_does_not_know_yet(
    call: Config, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Progress(call, SITE)
    of.begin(call.runs)
    hours = Interval(0.02, 0.01, 0.03)
    for place, told in (("beyond", False), ("within", True)):
        forecast = SimpleNamespace(place=place, node_hours=hours)
        monkeypatch.setattr(of, "_forecasts", dict.fromkeys(call.runs, forecast))
        clock[0] = 36.0
        leave(call, call.runs[0])
        of.finish(call.runs[0])
        assert ("left" in words(of)["slow"]) == told
    # 36 s for a hundredth of an hour: two more runs of two hundredths.
    assert words(of)["slow"] == "0 of 1 run, about 2.4 min left"


def test_time_left_of_a_cohort_is_that_of_all_its_members(
    call: Config, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Progress(call, SITE)
    of.begin(call.runs)
    forecast = SimpleNamespace(place="within", node_hours=Interval(0.02, 0.01, 0.03))
    monkeypatch.setattr(of, "_forecasts", dict.fromkeys(call.runs, forecast))
    of.train_together([[call.runs[1], call.runs[4]]])
    clock[0] = 36.0
    leave(call, call.runs[0])
    of.finish(call.runs[0])
    # Two hundredths of an hour each: both members, and the run that comes after them.
    assert words(of)["slow"] == "0 of 1 run, about 3.6 min left"


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
    assert not any(line.failed for line in of.lines())
    complete, text = of.end() or (False, "")
    assert complete and text.startswith("5 of 5 runs ended with a result" + (f", {said};" if said else ";"))


def test_a_retry_that_ends_well_is_no_failure(call: Config) -> None:
    of = Progress(call, SITE)
    of.begin(call.runs[:1])
    of.fail(call.runs[0])
    assert words(of) == {"fast": "0 of 1 run, 1 failed"}
    leave(call, call.runs[0])
    of.finish(call.runs[0])
    assert words(of) == {"fast": "1 of 1 run"}


@pytest.mark.parametrize(
    ("configfiles", "command"),
    [((), "ketscale status"), (("my study.yaml",), "ketscale status --config 'my study.yaml'")],
)
def test_the_command_that_is_named_is_about_the_config_of_the_call(
    call: Config, configfiles: tuple[str, ...], command: str
) -> None:
    of = Progress(call, SITE, tuple(map(Path, configfiles)))
    of.begin(call.runs)
    _, text = of.end() or (True, "")
    assert f"\n`{command}` shows what is left;" in text


def test_only_the_note_of_this_call_is_a_reason(call: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    of, run = Progress(call, SITE), call.runs[0]
    supervise.leave_note(Path(call.results, run.folder), "out of memory")
    assert of.reason(run) == "out of memory" and of.reason(call.runs[1]) is None
    monkeypatch.setenv("KETSCALE_CALL", "another")
    assert of.reason(run) is None


def test_a_dry_run_tells_a_forecast_from_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = maker.config(one=maker.study(simulator=["default.qubit", "qiskit"], seed=[0, 1]))
    for run in config.runs:
        if run.simulator != "qiskit" and run.seed == 0:
            took = {"started": maker.TIME, "stopped": "2026-01-01T00:01:00+00:00", **maker.used(run)}
            maker.write(Path(config.results), config.settings(run), timing=maker.timed(run, 59), **took)
    of = Progress(config, SITE)
    of.begin([run for run in config.runs if run.seed == 1])
    said = of.planned()
    assert said[1] == "  one  2 of 4"
    assert said[2:4] == [f"  {config.results}/{run.path}" for run in config.runs if run.seed == 1]
    assert re.fullmatch(
        r"planned: about \S+ node-hours \(\S+ to \S+\) for 1 run, as learned from records", said[4]
    )
    assert said[5] == "the longest run: vqc q4-l3 on digits, 40 steps: about 1 min on one core"
    assert said[6].startswith(
        "planned: on a cluster at most 0.05 node-hours for 1 run, by the time limits in "
    )


# ---------------------------------------------------------------- on a terminal


class Screen(io.StringIO):
    """A terminal that knows how to go up and clear, which is all that is asked of it."""

    def isatty(self) -> bool:
        return True

    def rows(self) -> list[str]:
        rows: list[str] = []
        for part in re.split(r"(\x1b\[\d+F\x1b\[J|\n)", self.getvalue()):
            if part.startswith("\x1b") and part.endswith("J"):
                del rows[-int(re.findall(r"\d+", part)[0]) :]
            elif part and part != "\n":
                rows.append(part)
        return [re.sub(r"\x1b\[\d+m", "", row) for row in rows]


@pytest.fixture
def handler(call: Config, monkeypatch: pytest.MonkeyPatch) -> LogHandler:
    """The handler of a call that begins on a terminal."""
    return of_stream(Screen(), call, monkeypatch)


def of_stream(stream: io.StringIO, call: Config, monkeypatch: pytest.MonkeyPatch) -> LogHandler:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("shutil.get_terminal_size", lambda fallback=None: os.terminal_size((60, 24)))
    names = ("verbose", "printshellcmds", "debug_dag", "stdout", "nocolor", "dryrun", "quiet")
    made = LogHandler(SimpleNamespace(**dict.fromkeys(names, False)), None)
    made.follow(Progress(call, SITE), lambda: dict.fromkeys(call.runs, "Missing output files: a"))
    made.begin()
    return made


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


def test_a_terminal_keeps_the_lines_of_studies_below_what_happened(call: Config, handler: LogHandler) -> None:
    failure = job(handler, call, 0)
    supervise.leave_note(Path(call.results, call.runs[0].folder), "out of memory")
    event(handler, LogEvent.JOB_ERROR, **{**failure, "indent": False})
    job(handler, call, 2)
    leave(call, call.runs[2], status="timed_out")
    event(handler, LogEvent.JOB_FINISHED, job_id=2)
    assert handler._stream.rows() == [
        "runs to train: 5",
        f"failed: {call.results}/{call.runs[0].folder}/train.log: out of memory",
        "fast  0 of 4 runs, 1 failed",
        "slow  1 of 1 run, 1 ended by limit_s",
    ]
    # Red, and green.
    assert "\x1b[31mfast  0 of 4" in handler._stream.getvalue()
    assert "\x1b[32mslow  1 of 1 run, 1 ended by limit_s" in handler._stream.getvalue()
    handler.close()
    assert handler._stream.rows()[4].startswith(
        "1 of 5 runs ended with a result, 1 ended by limit_s, 1 failed; "
    )


def test_the_answers_of_a_new_report_are_told_above_its_name(call: Config, handler: LogHandler) -> None:
    head = ("study", "on", "question", "answer", "point")
    # A study has a row for each point, and an answer for each class of hosts.
    rows = [
        ("fast", host, "=Is it, or not?", f"It is {host}.", point) for host in ("A", "B") for point in "12"
    ]
    rows += [(f"slow-{number}", "", "How slow?", "Slow.", "1") for number in range(terminal.MOST)]
    table = [dict(zip(head, row, strict=True)) for row in rows]
    write_csv(Path(call.results, terminal.TABLE), table, head)
    page = f"{call.results}/report.html"
    about = {"rule_name": "write_report", "wildcards": {}, "shellcmd": "ketscale report", "log": []}
    event(handler, LogEvent.JOB_INFO, jobid=9, output=[page], **about)
    event(handler, LogEvent.JOB_FINISHED, job_id=9)
    handler.close()
    told = [line.rstrip() for line in handler._stream.rows()]
    at = told.index("=Is it, or not? (on A)")
    assert told[at : at + 4] == [
        "=Is it, or not? (on A)", "    It is A.", "=Is it, or not? (on B)", "    It is B."
    ]  # fmt: skip
    assert told.count("How slow?") == terminal.MOST - 2
    assert told[-2:] == ["... and 2 more answers in the report", f"report: {page}"]


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
    assert handler._stream.rows()[1:] == [
        f"failed: {call.results}/{call.runs[1].folder}/train.log: its node failed (SLURM job 7)",
        # The other three are named once.
        "failed: a: its job ended before these runs began or could say why, see slurm/7.log (SLURM job 7)",
        "fast  1 of 4 runs, 3 failed",
        "slow  0 of 1 run, 1 failed",
    ]


def test_many_failures_are_counted_and_not_told_one_by_one(call: Config, handler: LogHandler) -> None:
    failure = job(handler, call, 0) | {"indent": False}
    for _ in range(3 * FAILURES):
        event(handler, LogEvent.JOB_ERROR, **failure)
    rows = handler._stream.rows()
    assert sum(row.startswith("failed: ") for row in rows) == FAILURES
    assert rows.count("more fail; `ketscale status --failed` shows each with its reason") == 1


def test_in_a_log_each_run_that_fails_has_one_line_and_its_job_another(
    call: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KETSCALE_ENDING", raising=False)
    handler = of_stream(io.StringIO(), call, monkeypatch)
    write_atomic(submission.FOLDER / "trains.json", b'{"shared-n1c1-0": "results/runs/a/seed0 and 4 more"}')
    log = "/x/.snakemake/slurm_logs/group_shared-n1c1-0_train/7.log"
    event(handler, None, f"Job 5 has been submitted with SLURM jobid 7 (log: {log}).")
    told = [job(handler, call, number) for number in range(5)]
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    reason = "out of memory: " + " ".join(["much"] * 60)
    for run in call.runs[:3]:
        supervise.leave_note(Path(call.results, run.folder), reason)
    group = {"groupid": "shared-n1c1-0", "aux_logs": [], "job_error_info": told}
    event(handler, LogEvent.GROUP_ERROR, external_jobid="7", **group)
    for one in 4 * told[:3]:
        event(handler, LogEvent.JOB_ERROR, **one)
    # Refused for good, as the job of another attempt.
    monkeypatch.setenv("KETSCALE_DRIVER", str(os.getpid()))
    submission._note(submission.FOLDER / "refused/a.json", "rule_shared-n1c1-0_train", "Invalid qos", True)
    event(handler, LogEvent.GROUP_ERROR, **group)
    for one in told[3:]:
        event(handler, LogEvent.JOB_ERROR, **one)
    refused = (
        "SLURM sbatch failed. The error message was 'Invalid qos'.\n    sbatch call:\n        sbatch -t 30"
    )
    prepares = told[0] | {"rule_name": "prepare", "log": []}
    prepares |= {"jobid": 50, "rule_msg": refused, "indent": False}
    event(handler, LogEvent.JOB_ERROR, **prepares)
    # What is not submitted since the call ends has not failed.
    monkeypatch.setenv("KETSCALE_ENDING", "1")
    event(handler, LogEvent.GROUP_ERROR, **group)
    event(handler, LogEvent.JOB_ERROR, **told[3])
    event(handler, LogEvent.JOB_ERROR, **prepares)
    lines = [re.sub(r"^[\d:]{8} ", "", line) for line in handler._stream.getvalue().splitlines()]
    assert lines[1] == "SLURM job 7: results/runs/a/seed0 and 4 more"
    assert [line for line in lines if line.startswith("failed: ")] == [
        *4
        * [f"failed: {call.results}/{run.folder}/train.log: {reason} (SLURM job 7)" for run in call.runs[:3]],
        "failed: results/runs/a/seed0 and 4 more: sbatch refuses it: Invalid qos",
        "failed: prepare",
    ]
    assert lines[-1] == "    SLURM sbatch failed. The error message was 'Invalid qos'."


def test_lines_of_studies_are_cut_to_the_terminal_and_only_what_fits_is_shown(
    call: Config, handler: LogHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda fallback=None: os.terminal_size((10, 3)))
    job(handler, call, 2)
    leave(call, call.runs[2])
    event(handler, LogEvent.JOB_FINISHED, job_id=2)
    # The study that is over gives way.
    assert handler._stream.rows()[-1] == "fast  0 of 4 runs"[:9]
    assert "slow" not in "".join(handler._stream.rows())


def test_whatever_was_left_out_on_the_way_is_said_at_the_end(call: Config, handler: LogHandler) -> None:
    handler._rests = float("inf")
    job(handler, call, 2)
    leave(call, call.runs[2])
    event(handler, LogEvent.JOB_FINISHED, job_id=2)
    assert handler._stream.rows()[-1] == "slow  0 of 1 run"
    handler.close()
    assert handler._stream.rows()[-3] == "slow  1 of 1 run"


def test_an_error_that_is_no_jobs_is_said(handler: LogHandler) -> None:
    text = "Error in input function: CalledProcessError: a command returned non-zero exit status 1"
    handler.handle(logging.LogRecord("snakemake", logging.ERROR, "", 0, text, (), None))
    assert "CalledProcessError" in "".join(handler._stream.rows())


def test_a_long_error_is_cut(call: Config, handler: LogHandler) -> None:
    made = logging.LogRecord("snakemake", logging.ERROR, "", 0, "MissingInput:\n" + "a b " * 9999, (), None)
    handler.handle(made)
    rows = handler._stream.rows()[1:-2]
    assert rows[0] == "MissingInput:" and len(rows) == LINES + 1 and max(map(len, rows)) <= WIDTH
    assert re.fullmatch(r"\.\.\. and \d+ more lines \(-p prints all\)", rows[-1])


def test_a_reader_that_goes_away_is_no_error(call: Config, handler: LogHandler) -> None:
    def gone(text: str) -> int:
        raise BrokenPipeError

    handler._stream.write = gone
    event(handler, None, "Nothing to be done (all requested files are present and up to date).")
    handler.close()
