"""Which package a workflow belongs to, and in which folders and workflows it runs."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from pathlib import Path

import pytest

import ketscale
from ketscale import analysis
from ketscale.grid import Run
from tests import ROOT
from tests.study.workflow.project import LOCAL, RUNS, calls, files, planned, record, run_in, stand_in

# ---------------------------------------------------------------- whose package it is


def checkout(project: Path, version: str = ketscale.__version__) -> Path:
    """Make the project a checkout with a package of its own, as far as the Snakefile looks."""
    (project / "workflow/ketscale").mkdir()
    (project / "workflow/ketscale/__init__.py").write_text(f'__version__ = "{version}"\n')
    return project


def test_the_package_of_another_checkout_is_refused(fresh: Path) -> None:
    before = files(checkout(fresh))
    result = run_in(fresh, *LOCAL, check=False)
    assert result.returncode == 1
    assert f"this workflow is that of {fresh}, but" in result.stderr
    assert f"imports the package of another checkout ({ROOT}/workflow/ketscale)" in result.stderr
    assert "Traceback" not in result.stderr and files(fresh) == before


@pytest.mark.parametrize("version", [ketscale.__version__, "9.9.9"])
def test_an_installed_package_is_taken_and_another_version_is_said(
    fresh: Path, tmp_path: Path, version: str
) -> None:
    site = tmp_path / "site-packages"
    shutil.copytree(ROOT / "workflow/ketscale", site / "ketscale")
    result = run_in(checkout(fresh, version), *LOCAL, "-n", PYTHONPATH=str(site))
    assert planned(result)["train"] == len(RUNS)
    message = f"this workflow is of another version than the package ({ketscale.__version__})"
    assert (message in result.stderr) == (version == "9.9.9")


# ---------------------------------------------------------------- where it runs

MODULE = """
configfile: "config.yaml"
rule all:
    input:
        "summary.txt",
module ketscale:
    snakefile:
        "{snakefile}"
    config:
        config["ketscale"]
use rule * from ketscale as ketscale_*
rule summary:
    input:
        "results/report.html",
    output:
        "summary.txt",
    shell:
        "cp {{input}} {{output}}"
"""


def test_it_runs_from_another_folder_with_that_folders_config(tmp_path: Path) -> None:
    remote = stand_in(tmp_path / "elsewhere")
    config = remote / "config.yaml"
    config.write_text(config.read_text().replace("seed: [0, 1]", "seed: [4]"))
    run_in(remote, "-s", str(ROOT / "Snakefile"), "--profile", str(ROOT / "profiles" / "local"))
    result = {path.relative_to(remote).parts[0] for path in files(remote)}
    assert result == {"bin", "config.yaml", "calls.jsonl", "results"}
    runs = [call["name"] for call in calls(remote) if call["command"] == "launch"]
    assert sorted(runs) == sorted(record(run) for run in analysis.read(config).runs)
    assert {Run.parse(name).seed for name in runs} == {0, 4}
    run_in(remote, "-s", str(ROOT / "Snakefile"), "--report", "report.zip")


def test_a_folder_without_a_config_runs_that_of_the_snakefile(tmp_path: Path) -> None:
    remote = stand_in(tmp_path / "elsewhere")
    (remote / "config.yaml").unlink()
    jobs = planned(run_in(remote, "-s", str(ROOT / "Snakefile"), "-n"))
    assert jobs["train"] == len(analysis.read(ROOT / "config.yaml").runs)


def test_it_is_a_module_of_another_workflow(tmp_path: Path) -> None:
    project = stand_in(tmp_path / "theirs")
    tiny = (project / "config.yaml").read_text().replace("\n", "\n  ")
    (project / "config.yaml").write_text(f"theirs: 1\nketscale:\n  {tiny}\n")
    (project / "Snakefile").write_text(MODULE.format(snakefile=ROOT / "Snakefile"))
    result = run_in(project, "--cores", "2")
    assert "localrules directive" not in result.stderr
    assert (project / "summary.txt").read_text().startswith("<!doctype html>")
    assert all((project / record(run)).exists() for run in RUNS)
    jobs = planned(run_in(project, "--cores", "2", "-n", "--forceall"))
    assert jobs["ketscale_train"] == len(RUNS) and jobs["summary"] == 1
    # Timed runs are alone there too.
    timed = sorted((call["start"], call["stop"]) for call in calls(project) if "/timing/" in call["name"])
    assert len(timed) >= 4
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(timed))


def test_all_results_are_below_the_folder_of_the_setting(fresh: Path) -> None:
    config = fresh / "config.yaml"
    config.write_text(f"results: out/mine\n{config.read_text()}")
    before = files(fresh)
    run_in(fresh, "--profile", "profiles/local")
    built = {path.relative_to(fresh) for path in files(fresh) - before}
    assert {path for path in built if path.parts[:2] != ("out", "mine")} == {Path("calls.jsonl"), Path("out")}
    assert Path("out/mine/report.html") in built
    assert all(Path("out/mine", run.path) in built for run in RUNS)
    assert "Nothing to be done" in (done := run_in(fresh, "--profile", "profiles/local")).stdout + done.stderr
    # One missing seed of it is one target.
    seed = f"out/mine/{dataclasses.replace(RUNS[0], seed=7).path}"
    assert planned(run_in(fresh, seed, "-n")) == {"train": 1}
