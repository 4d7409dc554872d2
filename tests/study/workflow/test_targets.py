"""The workflow as a user types it: targets, profiles, partial reports, mistakes in the config, and when runs may start."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml

from ketscale import analysis
from ketscale.analysis.columns import TABLES
from ketscale.analysis.figures import figures_of
from ketscale.grid import Run
from ketscale.jobs.finished import KEPT, OF_CALL
from tests import ROOT
from tests.study.workflow.project import LOCAL, RUNS, TINY, calls, files, planned, record, run_in

PROFILES = ("profiles/local", "profiles/mpi", "slurm")
IN_JOB = ("--mode", "remote", "--executor", "slurm-jobstep", "--jobs", "1", "--cores", "all", "--no-hooks")


@pytest.mark.parametrize("profile", PROFILES)
def test_each_profile_works_as_typed(fresh: Path, profile: str) -> None:
    before = files(fresh)
    jobs = planned(run_in(fresh, "--profile", profile, "-n"))
    assert jobs == {
        "prepare": 1, "train": len(RUNS), "tabulate": 1, "draw": 1, "write_page": 1, "all": 1,
    }  # fmt: skip
    assert files(fresh) == before


@pytest.mark.parametrize(
    "failing", [1, *(pytest.param(run, marks=pytest.mark.nightly) for run in (None, 0, 2))]
)
def test_a_job_group_starts_snakemake_once_and_goes_on_after_a_run_that_fails(
    finished: Path, failing: int | None
) -> None:
    targets = [record(run) for run in RUNS[:3]]
    for target in targets:
        (finished / target).unlink()
    fails = {} if failing is None else {"STAND_IN_FAILS": targets[failing]}
    result = run_in(finished, *targets, *IN_JOB, check=False, **fails)
    assert (result.stdout + result.stderr).count("Building DAG of jobs") == 1
    assert result.returncode == (0 if failing is None else 1)
    values = [target for number, target in enumerate(targets) if number != failing]
    assert [target for target in targets if (finished / target).exists()] == values


@pytest.mark.parametrize("call", ["this", "another"])
def test_what_another_runs_job_of_this_call_has_trained_is_put_in_its_place(fresh: Path, call: str) -> None:
    run_in(fresh, *LOCAL, record(RUNS[0]))
    folder, result = (fresh / record(RUNS[0])).parent, ("metrics.json", "history.csv")
    (folder / KEPT).mkdir(parents=True)
    for name in result:
        (folder / name).unlink()
        (folder / KEPT / name).write_text("kept")
    (folder / KEPT / OF_CALL.format("this")).touch()
    run_in(fresh, record(RUNS[0]), *IN_JOB, KETSCALE_CALL=call)
    assert all(((folder / name).read_text() == "kept") == (call == "this") for name in result)


@pytest.mark.parametrize("target", ["figures", "report"])
def test_each_target_works_without_any_option(fresh: Path, target: str) -> None:
    assert planned(run_in(fresh, target, "-n"))["train"] == len(RUNS)


def test_the_profiles_say_nothing_that_profiles_default_overrides() -> None:
    import yaml

    default = yaml.safe_load((ROOT / "profiles" / "default" / "profile.yaml").read_text())
    assert default == {"cores": "all"}
    for name in ("local", "slurm", "mpi"):
        profile = yaml.safe_load((ROOT / "profiles" / name / "profile.yaml").read_text())
        assert "cores" not in profile
        assert profile["rerun-triggers"] == ["mtime", "params"]
        assert profile["rerun-incomplete"] is True


def test_the_workflow_is_clean_under_lint(fresh: Path) -> None:
    assert "good condition" in (lint := run_in(fresh, "--lint")).stdout + lint.stderr


def test_one_missing_seed_is_one_target(fresh: Path) -> None:
    seed = record(dataclasses.replace(RUNS[0], seed=7))
    assert planned(run_in(fresh, seed, "-n")) == {"prepare": 1, "train": 1}


def test_a_run_that_the_config_cannot_resolve_is_refused_by_name(fresh: Path) -> None:
    path = record(dataclasses.replace(RUNS[0], protocol="nosuch"))
    result = run_in(fresh, path, "-n", check=False)
    assert result.returncode == 1
    assert "no protocol is called nosuch; choose from quick, timing" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_a_config_that_is_laid_over_another_is_one_file_everywhere(fresh: Path) -> None:
    """For Snakemake, whose own merging knows no `over`, in its jobs, and for the commands of the package."""
    (fresh / "studies").mkdir()
    name = next(iter(yaml.safe_load((fresh / "config.yaml").read_text())["studies"]))
    (fresh / "studies/more.yaml").write_text(
        f"over: ../config.yaml\ntitle: More\nstudies: {{{name}: {{axes: {{seed: [7]}}}}}}\n"
    )
    file = ("--configfile", "studies/more.yaml")
    result = run_in(fresh, *file, "-n", "--config", "title=Most")
    assert "seed7" in result.stdout
    config = analysis.read(fresh / "studies/more.yaml")
    assert config.title == "More" and len(config.runs) == planned(result)["train"]
    # A job reads the file again.
    record = f"results/{next(run for run in config.runs if run.seed == 7).path}"
    run_in(fresh, record, *file)
    assert (fresh / record).exists()


def test_two_config_files_are_refused_in_a_line(fresh: Path) -> None:
    """Snakemake would train the last alone."""
    (fresh / "other.yaml").write_text((fresh / "config.yaml").read_text())
    result = run_in(fresh, "--configfile", "config.yaml", "other.yaml", "-n", check=False)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "`over: config.yaml`" in result.stderr


def test_partial_report_and_zip_report_work_as_typed(finished: Path) -> None:
    run_in(finished, "report", "--config", "partial=true")
    run_in(finished, "--report", "report.zip")
    with zipfile.ZipFile(finished / "report.zip") as archive:
        names = archive.namelist()
    figures = {name.rpartition("/")[2] for name in names if name.endswith(".svg")}
    assert figures >= {f"{each.name}.svg" for each in figures_of(TINY)}
    assert sum(name.endswith(".csv") for name in names) >= len(TABLES)
    assert sum("/data/" in name and name.endswith("/report.html") for name in names) == 1


# ---------------------------------------------------------------- partial reports


def test_one_failed_run_costs_neither_tables_nor_report(fresh: Path) -> None:
    failing = RUNS[0]
    result = run_in(fresh, "--profile", "profiles/local", check=False, STAND_IN_FAILS=record(failing))
    assert result.returncode == 1
    assert not (fresh / "results/report.html").exists()
    assert all((fresh / record(run)).exists() for run in RUNS if run != failing)
    run_in(fresh, "--profile", "profiles/local", "report", "--config", "partial=true")
    assert (fresh / "results/report.html").exists()
    assert (fresh / "results/tables/runs.csv").read_text() == "True\n"
    assert not (fresh / record(failing)).exists()
    # Without `partial` the missing run is trained and the tables are made anew.
    jobs = planned(run_in(fresh, "--profile", "profiles/local", "-n"))
    assert jobs == {"train": 1, "tabulate": 1, "draw": 1, "write_page": 1, "all": 1}


def test_a_partial_report_trains_nothing_even_without_features(finished: Path) -> None:
    shutil.rmtree(finished / "results/features")
    (finished / record(RUNS[0])).unlink()
    jobs = planned(
        run_in(finished, "--profile", "profiles/local", "report", "--config", "partial=true", "-n")
    )
    assert set(jobs) == {"tabulate", "draw", "write_page", "report"}


def test_a_partial_report_is_made_anew_when_a_record_goes(finished: Path) -> None:
    partial = ("--profile", "profiles/local", "report", "--config", "partial=true")
    run_in(finished, *partial)
    assert "Nothing to be done" in (result := run_in(finished, *partial, "-n")).stdout + result.stderr
    (finished / record(RUNS[0])).unlink()
    assert planned(run_in(finished, *partial, "-n"))["tabulate"] == 1


# ---------------------------------------------------------------- mistakes in the config


def test_a_workload_that_no_study_uses_is_checked_at_the_start_and_never_in_the_way(
    finished: Path,
) -> None:
    """Its settings are checked like any other's. Its file is not read, so it need not be there."""
    config = finished / "config.yaml"
    text = config.read_text()
    own = "  own: {kind: rows, file: nowhere.npz, split: given}\n"
    config.write_text(text.replace("workloads:\n", f"workloads:\n{own}"))
    run_in(finished, *LOCAL)
    assert [call["command"] for call in calls(finished)] == ["report"] * 3
    config.write_text(text.replace("workloads:\n", f"workloads:\n{own.replace('file: nowhere.npz, ', '')}"))
    result = run_in(finished, *LOCAL, "-n", check=False)
    assert result.returncode == 1 and "workloads.own" in result.stderr


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    """One over files of one's own, whose contents decide what is to be done, writes nothing either."""
    np.savez(tmp_path / "flowers.npz", x=np.random.default_rng(0).normal(size=(30, 4)), y=np.arange(30) % 3)
    axes = {
        "workload": "flowers", "model": "mlp", "qubits": 0, "layers": 0, "batch": 8, "simulator": "none",
        "backend": "cpu-n1r1t1", "protocol": "quick", "seed": 0,
    }  # fmt: skip
    config = {
        "title": "Own",
        "workloads": {"flowers": {"kind": "rows", "file": "flowers.npz"}},
        "protocols": {"quick": {"precision": "fp32", "timed": False, "learning_rate": 0.1, "epochs": 1}},
        "studies": {"one": {"kind": "accuracy", "question": "Is it?", "axes": axes}},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    seen = lambda: {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in files(tmp_path)}  # noqa: E731
    before = seen()
    result = run_in(tmp_path, "-s", str(ROOT / "Snakefile"), "--profile", str(ROOT / "profiles/local"), "-n")
    assert planned(result)["prepare"] == 1
    assert seen() == before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epochs: 1", "epoch: 1", "protocols.quick.epoch: unknown setting; did you mean epochs?"),
        ("simulator: none}", "simulator: fused}", "studies.accuracy: mlp is classical"),
        ("title:", "title: twice\ntitle:", "line 3: 'title' is given twice"),
    ],
)
def test_a_mistake_is_one_readable_error_and_nothing_runs(
    fresh: Path, old: str, new: str, message: str
) -> None:
    text = (fresh / "config.yaml").read_text()
    assert old in text
    (fresh / "config.yaml").write_text(text.replace(old, new))
    before = files(fresh)
    result = run_in(fresh, "--profile", "profiles/local", check=False)
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if not line.startswith("Using ")]
    assert 1 <= len(errors) <= 2
    assert files(fresh) == before


# ---------------------------------------------------------------- scheduling


def test_timed_runs_never_share_the_machine(finished_once: Path) -> None:
    """Not with each other, not with untimed runs; and the seeds follow each other."""
    values = [call for call in calls(finished_once) if call["command"] == "launch"]
    timed = [call for call in values if "/timing/" in call["name"]]
    assert len(timed) >= 4
    for one in timed:
        for other in values:
            assert one is other or one["stop"] <= other["start"] or other["stop"] <= one["start"]
    seeds = [Run.parse(call["name"]).seed for call in sorted(values, key=lambda call: call["start"])]
    assert seeds == sorted(seeds)


def test_timed_runs_are_alone_without_a_profile_and_with_jobs_too(fresh: Path) -> None:
    run_in(fresh, "--jobs", "8", "runs", STAND_IN_SECONDS="0.3")
    timed = sorted((call["start"], call["stop"]) for call in calls(fresh) if "/timing/" in call["name"])
    assert len(timed) >= 4
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(timed))


def test_untimed_runs_share_the_machine(fresh: Path) -> None:
    """What must not happen to timed runs does happen to the others, so the test above can fail."""
    text = (fresh / "config.yaml").read_text()
    (fresh / "config.yaml").write_text(text.replace("timed: true", "timed: false"))
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    run_in(fresh, "--profile", "profiles/local", "runs", STAND_IN_SECONDS="0.5")
    values = [call for call in calls(fresh) if call["command"] == "launch"]
    assert any(a["start"] < b["start"] < a["stop"] for a in values for b in values)


def functions_of_a_run(project: Path, *options: str) -> set[str]:
    """What Snakemake has to work out by a function for each run: its resources, and its group."""
    messages = """
train = workflow.get_rule("train")
print("FUNCTIONS", *(name for name, value in train.resources.items() if value.is_evaluable()))
print("FUNCTIONS", "group" if callable(train._group) else "")
"""
    (project / "Snakefile").write_text((ROOT / "Snakefile").read_text() + messages)
    lines = run_in(project, *options, "--list-rules").stdout.splitlines()
    return {name for line in lines if line.startswith("FUNCTIONS") for name in line.split()[1:]}


@pytest.mark.parametrize("options", [(), LOCAL])
def test_on_one_machine_snakemake_asks_few_functions_about_each_run(
    fresh: Path, options: tuple[str, ...]
) -> None:
    """Each takes a tenth of a millisecond per run: with all of them, planning a large study took half as long again."""
    assert functions_of_a_run(fresh, *options) == {"_cores", "host", "tmpdir"}


def test_what_runs_need_is_known_where_it_is_asked(fresh: Path) -> None:
    needs = {"mem_mb", "runtime"}
    assert needs | {"group", "nodes", "gres"} <= functions_of_a_run(fresh, "--profile", "slurm")
    result = run_in(fresh, *LOCAL, "--resources", "mem=4GB", "-np", record(RUNS[0]))
    assert all(f"{name}=" in result.stdout for name in needs)
