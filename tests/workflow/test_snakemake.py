"""The workflow as a user types it: targets, profiles, reruns, partial reports and mistakes in the config.

Every rule runs, but with tests/data/stand_in.py in place of `ketscale`, so that nothing is trained here.
"""

import dataclasses
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import ketscale
from ketscale import analysis
from ketscale.analysis.catalogue import TABLES, figures
from ketscale.grid import Run
from ketscale.measure.form import SCHEMA_VERSION
from tests import ROOT, forks
from tests import records_factory as factory
from tests.ready_made import WHOLE

PROFILES = ("profiles/local", "profiles/mpi", "slurm")
Snakemake = Callable[..., subprocess.CompletedProcess[str]]
TINY = analysis.read(ROOT / "tests" / "data" / "tiny.yaml")
RUNS = TINY.runs


def record(run: Run) -> str:
    """Where the run's record is in a project."""
    return f"{TINY.results}/{run.path}"


def lay_out(project: Path) -> Path:
    """A project with the repository's own workflow, the tiny study and the stand-in."""
    project.mkdir(exist_ok=True)
    shutil.copy(ROOT / "Snakefile", project / "Snakefile")
    for name in ("profiles", "workflow/rules", "workflow/report", "envs"):
        shutil.copytree(ROOT / name, project / name)
    shutil.copy(ROOT / "slurm", project / "slurm", follow_symlinks=False)
    return stand_in(project)


def stand_in(project: Path) -> Path:
    """The tiny study and the stand-in in a folder."""
    project.mkdir(exist_ok=True)
    shutil.copy(ROOT / "tests" / "data" / "tiny.yaml", project / "config.yaml")
    (project / "bin").mkdir()
    forks.forked(ROOT / "tests" / "data" / "stand_in.py", project / "bin" / "ketscale")
    return project


def run_in(
    project: Path, *arguments: str, check: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SNAKEMAKE", "SLURM"))}
    environment = {
        **kept,
        "PATH": f"{project / 'bin'}:{forks.programs()}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "workflow"),
        "XDG_CACHE_HOME": str(project / ".cache"),
        **variables,
    }
    done = subprocess.run(
        [forks.programs() / "snakemake", *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if check and done.returncode:
        pytest.fail(
            f"snakemake {' '.join(arguments)} failed ({done.returncode}):\n{done.stdout}{done.stderr}"
        )
    return done


def planned(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """The jobs of a dry run, counted by rule."""
    text = done.stdout + done.stderr
    return {m[1]: int(m[2]) for m in re.finditer(r"^(\w+) +(\d+)$", text, re.MULTILINE) if m[1] != "total"}


def calls(project: Path) -> list[dict[str, Any]]:
    path = project / "calls.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def files(project: Path) -> set[Path]:
    return {
        path for path in project.rglob("*") if ".snakemake" not in path.parts and ".cache" not in path.parts
    }


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "project")


@pytest.fixture(scope="module")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = lay_out(tmp_path_factory.mktemp("finished") / "project")
    run_in(project, "--profile", "profiles/local", STAND_IN_SECONDS="0.3")
    return project


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Path:
    """A project whose study was run to the end; what was called for that is forgotten."""
    project = tmp_path / "project"
    shutil.copytree(finished_once, project, symlinks=True)
    (project / "calls.jsonl").unlink()
    return project


# ---------------------------------------------------------------- what a user types


@pytest.mark.parametrize("profile", PROFILES)
def test_each_profile_works_as_typed(fresh: Path, profile: str) -> None:
    before = files(fresh)
    jobs = planned(run_in(fresh, "--profile", profile, "-n"))
    assert jobs == {
        "prepare": 1, "train": len(RUNS), "collect": 1, "draw": 1, "write_report": 1, "all": 1,
    }  # fmt: skip
    assert files(fresh) == before


@pytest.mark.parametrize("target", ["all", "runs", "figures", "report"])
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


def test_the_rules_are_these(fresh: Path) -> None:
    listed = [line.split()[0] for line in run_in(fresh, "--list-rules").stdout.splitlines()]
    assert sorted(listed) == [
        "all", "collect", "draw", "fetch", "figures", "prepare", "report", "runs", "train", "write_report",
    ]  # fmt: skip


def test_the_workflow_is_clean_under_lint(fresh: Path) -> None:
    assert "good condition" in (lint := run_in(fresh, "--lint")).stdout + lint.stderr


def test_one_missing_seed_is_one_target(fresh: Path) -> None:
    seed = record(dataclasses.replace(RUNS[0], seed=7))
    assert planned(run_in(fresh, seed, "-n")) == {"prepare": 1, "train": 1}


def test_a_run_that_the_config_cannot_resolve_is_refused_by_name(fresh: Path) -> None:
    path = record(dataclasses.replace(RUNS[0], protocol="nosuch"))
    done = run_in(fresh, path, "-n", check=False)
    assert done.returncode == 1
    assert "no protocol is called nosuch; choose from quick, timing" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_another_config_file_replaces_the_default_one(fresh: Path) -> None:
    other = fresh / "other.yaml"
    text = (fresh / "config.yaml").read_text()
    other.write_text(
        text.replace("seed: [0, 1]", "seed: [5]").replace(
            "protocol: quick, seed: 0", "protocol: quick, seed: 5"
        )
    )
    done = run_in(fresh, "--configfile", "other.yaml", "-n")
    assert "seed5" in done.stdout
    assert "seed0" not in done.stdout


def test_partial_report_and_zip_report_work_as_typed(finished: Path) -> None:
    run_in(finished, "report", "--config", "partial=true")
    run_in(finished, "--report", "report.zip")
    with zipfile.ZipFile(finished / "report.zip") as archive:
        names = archive.namelist()
    assert sum(name.endswith(".svg") for name in names) >= len(figures(TINY)) > 1
    assert sum(name.endswith(".csv") for name in names) >= len(TABLES)
    assert sum("/data/" in name and name.endswith("/report.html") for name in names) == 1


# ---------------------------------------------------------------- reruns


def test_a_finished_study_has_nothing_left_to_do(finished: Path) -> None:
    assert (
        "Nothing to be done" in (done := run_in(finished, "--profile", "profiles/local")).stdout + done.stderr
    )
    assert calls(finished) == []


def test_each_run_gets_only_its_own_settings(finished: Path) -> None:
    for run in RUNS:
        assert (finished / record(run)).read_text() == TINY.settings(run).text


def test_a_deleted_seed_is_trained_again_and_nothing_else(finished: Path) -> None:
    (finished / record(RUNS[0])).unlink()
    expected = {"train": 1, "collect": 1, "draw": 1, "write_report": 1}
    assert planned(run_in(finished, "--profile", "profiles/local", "-n")) == {**expected, "all": 1}
    assert planned(run_in(finished, "--profile", "profiles/local", "-n", record(RUNS[0]))) == {"train": 1}
    run_in(finished, "--profile", "profiles/local")
    assert [call["name"] for call in calls(finished)] == [record(RUNS[0]), "collect", "figures", "report"]


def test_new_seeds_alone_are_trained(finished: Path) -> None:
    text = (finished / "config.yaml").read_text()
    (finished / "config.yaml").write_text(text.replace("seed: [0, 1]", "seed: [0, 1, 2]"))
    assert planned(run_in(finished, "--profile", "profiles/local", "-n"))["train"] == 2


def test_a_changed_protocol_reruns_its_own_runs(finished: Path) -> None:
    text = (finished / "config.yaml").read_text()
    (finished / "config.yaml").write_text(text.replace("epochs: 1", "epochs: 2"))
    jobs = planned(run_in(finished, "--profile", "profiles/local", "-n"))
    assert jobs["train"] == sum(run.protocol == "quick" for run in RUNS)
    assert "prepare" not in jobs


def outdate(project: Path, run: Run, **changes: Any) -> None:
    """Give a run the record of an earlier version, as new as all the others."""
    path = project / record(run)
    settings = analysis.read(project / "config.yaml").settings(run)
    path.write_text(json.dumps({"schema": SCHEMA_VERSION, "config_hash": settings.hash, **changes}))


def test_records_that_no_table_takes_are_made_again_whatever_snakemake_has_noted(
    finished: Path,
) -> None:
    timed, late, *_ = (run for run in RUNS if run.protocol == "timing")
    untimed = next(run for run in RUNS if run.protocol != "timing")
    shutil.rmtree(finished / ".snakemake")
    outdate(finished, timed, resumed=1)
    outdate(finished, late, schema=SCHEMA_VERSION - 1)
    outdate(finished, untimed, resumed=1)
    assert planned(run_in(finished, "--profile", "profiles/local", "-n"))["train"] == 2
    # One that is asked for by name brings no other with it.
    assert planned(run_in(finished, "--profile", "profiles/local", "-n", record(late))) == {"train": 1}
    run_in(finished, "--profile", "profiles/local")
    made = [call["name"] for call in calls(finished) if call["command"] == "launch"]
    assert sorted(made) == sorted([record(timed), record(late)])
    assert json.loads((finished / record(untimed)).read_text())["resumed"] == 1
    done = run_in(finished, "--profile", "profiles/local", "-n")
    assert "Nothing to be done" in done.stdout + done.stderr


def test_edits_that_change_no_number_rerun_no_training(finished: Path) -> None:
    config = finished / "config.yaml"
    config.write_text(config.read_text().replace("title: The", "title: Still the") + "\n# a comment\n")
    for path in (finished / "workflow" / "rules").iterdir():
        path.write_text(path.read_text() + "\n# a comment\n")
    jobs = planned(run_in(finished, "--profile", "profiles/local", "-n"))
    assert set(jobs) == {"collect", "draw", "write_report", "all"}


def test_braces_in_title_and_question_are_text(fresh: Path) -> None:
    config = fresh / "config.yaml"
    text = config.read_text().replace("title: ", "title: '{word} {} {{run}} $x ' # ")
    config.write_text(text.replace("What does a larger batch", "What does {wildcards.batch}"))
    run_in(fresh, "--profile", "profiles/local")
    page = (fresh / "results" / "report.html").read_text()
    assert "{word} {} {{run}} $x" in page and "What does {wildcards.batch} cost?" in page


def test_features_with_the_same_content_rerun_nothing(finished: Path) -> None:
    """A manifest that was only written again, with a new time but the same content, leaves the records alone."""
    manifest = "results/features/digits/features.json"
    before = (finished / manifest).read_text()
    (finished / manifest).unlink()
    run_in(finished, "--profile", "profiles/local", manifest)
    assert [call["command"] for call in calls(finished)] == ["prepare"]
    assert (finished / manifest).read_text() == before
    assert (finished / manifest).stat().st_mtime > (finished / record(RUNS[0])).stat().st_mtime
    assert (
        "Nothing to be done"
        in (done := run_in(finished, "--profile", "profiles/local", "-n")).stdout + done.stderr
    )


def test_features_with_other_content_rerun_every_run(finished: Path) -> None:
    (finished / "results/features/digits/features.json").write_text("{}")
    assert planned(run_in(finished, "--profile", "profiles/local", "-n"))["train"] == len(RUNS)


def on_mnist(project: Path, block: str) -> None:
    """Put the tiny study on mnist with these settings."""
    text = (ROOT / "tests" / "data" / "tiny.yaml").read_text().replace("workload: digits", "workload: mnist")
    digits = "digits: {split_seed: 0, weights: selfsupervised, image_size: 8, pretrain_steps: 2}"
    assert digits in text
    (project / "config.yaml").write_text(
        text.replace(digits, f"mnist: {{{block}, split_seed: 0, image_size: 28}}")
    )


def test_other_content_of_a_source_prepares_its_data_again_and_a_new_time_alone_does_not(
    fresh: Path, tmp_path: Path
) -> None:
    images, labels = (tmp_path / f"t10k-{what}-ubyte.gz" for what in ("images-idx3", "labels-idx1"))
    images.write_bytes(b"1")
    labels.write_bytes(b"1")
    on_mnist(fresh, f"split: test-images, weights: selfsupervised, folder: {tmp_path}")
    run_in(fresh, "--profile", "profiles/local")
    os.utime(images, ns=(1, 1))
    done = run_in(fresh, "--profile", "profiles/local", "-n")
    assert "Nothing to be done" in done.stdout + done.stderr
    images.write_bytes(b"2")
    assert planned(run_in(fresh, "--profile", "profiles/local", "-n"))["prepare"] == 1
    # A partial report prepares nothing, but is made anew: its records are stale.
    partial = planned(
        run_in(fresh, "--profile", "profiles/local", "report", "--config", "partial=true", "-n")
    )
    assert partial["collect"] == 1 and "prepare" not in partial
    images.write_bytes(b"1")
    done = run_in(fresh, "--profile", "profiles/local", "-n")
    assert "Nothing to be done" in done.stdout + done.stderr


def test_data_that_only_move_rerun_nothing(fresh: Path, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    for name in ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
        (before / name).touch()
    on_mnist(fresh, f"split: test-images, weights: selfsupervised, folder: {before}")
    run_in(fresh, "--profile", "profiles/local")
    shutil.copytree(before, after, copy_function=shutil.copyfile)
    shutil.rmtree(before)
    on_mnist(fresh, f"split: test-images, weights: selfsupervised, folder: {after}")
    assert (
        "Nothing to be done"
        in (done := run_in(fresh, "--profile", "profiles/local", "-n")).stdout + done.stderr
    )


def test_data_and_weights_without_a_folder_are_fetched_by_local_rules(fresh: Path) -> None:
    on_mnist(fresh, "split: original, weights: imagenet")
    jobs = planned(run_in(fresh, "--profile", "slurm", "-n"))
    assert jobs["fetch"] == jobs["prepare"] == 1
    run_in(fresh, "--profile", "profiles/local", "results/features/mnist/features.json")
    assert [call["command"] for call in calls(fresh)] == ["fetch", "prepare"]


# ---------------------------------------------------------------- results that came without Snakemake's notes

LOCAL = ("--profile", "profiles/local")
AFTER_RUNS = {"collect": 1, "draw": 1, "write_report": 1, "all": 1}


def without_notes(project: Path) -> Path:
    """The project as a copy of its results alone leaves it: no notes, and times that say nothing."""
    shutil.rmtree(project / ".snakemake")
    for path in (project / "results").rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    return project


def edited_in(
    project: Path, name: str, then: Callable[[], subprocess.CompletedProcess[str]]
) -> subprocess.CompletedProcess[str]:
    """What `then` returns while a file of the results has other content, but its time; afterwards it has its own."""
    path = project / "results" / name
    times, content = path.stat(), path.read_bytes()
    path.write_text(json.dumps({"edited": 1}))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    done = then()
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return done


def test_copied_results_of_this_config_have_nothing_left_to_do(finished: Path) -> None:
    done = run_in(without_notes(finished), *LOCAL)
    assert "Nothing to be done" in done.stdout + done.stderr
    assert calls(finished) == []


def test_copied_results_of_another_title_are_made_again(finished: Path) -> None:
    config = without_notes(finished) / "config.yaml"
    config.write_text(config.read_text().replace("title: The", "title: Another"))
    before = {path: path.read_bytes() for path in files(finished) if path.is_file()}
    assert planned(run_in(finished, *LOCAL, "-n")) == AFTER_RUNS
    assert {path: path.read_bytes() for path in files(finished) if path.is_file()} == before
    run_in(finished, *LOCAL)
    assert "Another tiny study" in (finished / "results/report.html").read_text()
    assert "Nothing to be done" in (done := run_in(finished, *LOCAL)).stdout + done.stderr


def test_what_was_not_made_from_the_records_is_made_again(finished: Path) -> None:
    """Whether or not Snakemake has notes, and though no time tells."""
    page, drawn = {"write_report": 1, "all": 1}, {"draw": 1, "write_report": 1, "all": 1}
    edited = {
        "tables/answers.csv": AFTER_RUNS,
        "tables/stamp.json": AFTER_RUNS,
        "figures/batch.svg": drawn,
        "report.html": page,
        RUNS[0].path: AFTER_RUNS,
    }
    assert (
        planned(edited_in(finished, "tables/answers.csv", lambda: run_in(finished, *LOCAL, "-n")))
        == AFTER_RUNS
    )
    without_notes(finished)
    for name, again in edited.items():
        assert planned(edited_in(finished, name, lambda: run_in(finished, *LOCAL, "-n"))) == again, name
    one = edited_in(finished, RUNS[0].path, lambda: run_in(finished, *LOCAL, "-n", record(RUNS[1])))
    assert planned(one) == {}
    refused = edited_in(
        finished, "tables/runs.csv", lambda: run_in(finished, "--report", "report.zip", check=False)
    )
    assert refused.returncode == 1 and "runs.csv: is not the file that was made" in refused.stderr
    edited_in(finished, "tables/answers.csv", lambda: run_in(finished, *LOCAL))
    assert [call["name"] for call in calls(finished)] == ["collect", "figures", "report"]


@pytest.mark.parametrize(
    ("old", "new", "again"),
    [
        ("split_seed: 0", "split_seed: 1", {"prepare": 1, "train": len(RUNS)}),
        ("epochs: 1", "epochs: 2", {"train": sum(run.protocol == "quick" for run in RUNS)}),
    ],
)
def test_copied_records_and_data_of_other_settings_are_made_again(
    fresh: Path, old: str, new: str, again: dict[str, int]
) -> None:
    factory.write_all(TINY, fresh / "results")
    for path in (fresh / "results/features").rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    assert planned(run_in(fresh, *LOCAL, "-n")) == AFTER_RUNS
    config = fresh / "config.yaml"
    config.write_text(config.read_text().replace(old, new))
    assert planned(run_in(fresh, *LOCAL, "-n")) == {**again, **AFTER_RUNS}
    one = next(run for run in RUNS if run.protocol == "quick")
    assert planned(run_in(fresh, *LOCAL, "-n", record(one))) == {**again, "train": 1}


# ---------------------------------------------------------------- whose package it is


def checkout(project: Path, version: str = ketscale.__version__) -> Path:
    """Make the project a checkout with a package of its own, as far as the Snakefile looks."""
    (project / "workflow/ketscale").mkdir()
    (project / "workflow/ketscale/__init__.py").write_text(f'__version__ = "{version}"\n')
    return project


def test_the_package_of_another_checkout_is_refused(fresh: Path) -> None:
    before = files(checkout(fresh))
    done = run_in(fresh, *LOCAL, check=False)
    assert done.returncode == 1
    assert f"this workflow is that of {fresh}, but" in done.stderr
    assert f"imports the package of another checkout ({ROOT}/workflow/ketscale)" in done.stderr
    assert "Traceback" not in done.stderr and files(fresh) == before


def test_a_link_to_the_checkout_is_the_same_checkout(fresh: Path) -> None:
    (fresh / "workflow/ketscale").symlink_to(ROOT / "workflow/ketscale")
    assert planned(run_in(fresh, *LOCAL, "-n"))["train"] == len(RUNS)


@pytest.mark.parametrize("version", [ketscale.__version__, "9.9.9"])
def test_an_installed_package_is_taken_and_another_version_is_said(
    fresh: Path, tmp_path: Path, version: str
) -> None:
    shutil.copytree(ROOT / "workflow/ketscale", tmp_path / "site/ketscale")
    about = tmp_path / f"site/ketscale-{ketscale.__version__}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: ketscale\nVersion: {ketscale.__version__}\n"
    )
    (about / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    done = run_in(checkout(fresh, version), *LOCAL, "-n", PYTHONPATH=str(tmp_path / "site"))
    assert planned(done)["train"] == len(RUNS)
    said = f"this workflow is that of version 9.9.9, but the installed package, which trains and reports, is {ketscale.__version__}"
    assert (said in done.stderr) == (version == "9.9.9")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "#!/bin/sh\necho ketscale 0.4.0 from /elsewhere/ketscale\n",
            "of another package (/elsewhere/ketscale)",
        ),
        ("#!/bin/sh\necho ketscale 0.3.0\n", "of another package (unknown)"),
        (f'#!/bin/sh\nexec {sys.executable} -m ketscale "$@"\n', ""),
    ],
)
def test_jobs_call_the_package_that_the_snakefile_imports(fresh: Path, script: str, said: str) -> None:
    (fresh / "bin/ketscale").write_text(script)
    done = run_in(fresh, *LOCAL, "results/features/digits/features.json", check=False)
    if said:
        assert said in done.stderr and "Traceback" not in done.stderr
        assert done.returncode == 1 and not (fresh / "results").exists()
    else:
        assert done.returncode == 0


# ---------------------------------------------------------------- partial reports


def test_one_failed_run_costs_neither_tables_nor_report(fresh: Path) -> None:
    failing = RUNS[0]
    done = run_in(fresh, "--profile", "profiles/local", check=False, STAND_IN_FAILS=record(failing))
    assert done.returncode == 1
    assert not (fresh / "results/report.html").exists()
    assert all((fresh / record(run)).exists() for run in RUNS if run != failing)
    run_in(fresh, "--profile", "profiles/local", "report", "--config", "partial=true")
    assert (fresh / "results/report.html").exists()
    assert (fresh / "results/tables/runs.csv").read_text() == "True\n"
    assert not (fresh / record(failing)).exists()
    # Without `partial` the missing run is trained and the tables are made anew.
    jobs = planned(run_in(fresh, "--profile", "profiles/local", "-n"))
    assert jobs == {"train": 1, "collect": 1, "draw": 1, "write_report": 1, "all": 1}


def test_a_partial_report_trains_nothing_even_without_features(finished: Path) -> None:
    shutil.rmtree(finished / "results/features")
    (finished / record(RUNS[0])).unlink()
    jobs = planned(
        run_in(finished, "--profile", "profiles/local", "report", "--config", "partial=true", "-n")
    )
    assert set(jobs) == {"collect", "draw", "write_report", "report"}


def test_a_partial_report_is_made_anew_when_a_record_goes(finished: Path) -> None:
    partial = ("--profile", "profiles/local", "report", "--config", "partial=true")
    run_in(finished, *partial)
    assert "Nothing to be done" in (done := run_in(finished, *partial, "-n")).stdout + done.stderr
    (finished / record(RUNS[0])).unlink()
    assert planned(run_in(finished, *partial, "-n"))["collect"] == 1


# ---------------------------------------------------------------- mistakes in the config


def test_a_workload_that_no_study_uses_is_checked_at_the_start_and_never_in_the_way(
    fresh: Path, tmp_path: Path
) -> None:
    """Its settings are checked like any other's. Its file is not read, so it need not be there."""
    config = fresh / "config.yaml"
    text = config.read_text()
    own = "  own: {kind: arrays, file: nowhere.npz, split: given}\n"
    config.write_text(text.replace("workloads:\n", f"workloads:\n{own}"))
    run_in(fresh, *LOCAL)
    assert (fresh / "results/report.html").exists()
    config.write_text(text.replace("workloads:\n", f"workloads:\n{own.replace('file: nowhere.npz, ', '')}"))
    done = run_in(fresh, *LOCAL, "-n", check=False)
    assert done.returncode == 1 and "workloads.own" in done.stderr


def test_a_config_that_no_command_can_be_given_is_refused_before_anything_runs(fresh: Path) -> None:
    config = fresh / "config.yaml"
    config.write_text(
        config.read_text().replace("What does a larger", f"What {'really ' * 30_000} does a larger")
    )
    done = run_in(fresh, *LOCAL, "-n", check=False)
    assert done.returncode == 1 and "the config is longer than a command may be" in done.stderr


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    """Nor does one over files of one's own, whose contents decide what is to be done."""
    np.savez(tmp_path / "flowers.npz", x=np.random.default_rng(0).normal(size=(30, 4)), y=np.arange(30) % 3)
    axes = {
        "workload": "flowers", "model": "mlp", "qubits": 0, "layers": 0, "batch": 8, "simulator": "none",
        "backend": "cpu-n1r1t1", "protocol": "quick", "seed": 0,
    }  # fmt: skip
    config = {
        "title": "Own",
        "workloads": {"flowers": {"kind": "arrays", "file": "flowers.npz"}},
        "protocols": {"quick": {"precision": "fp32", "timed": False, "learning_rate": 0.1, "epochs": 1}},
        "studies": {"one": {"kind": "accuracy", "question": "Is it?", "axes": axes}},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    seen = lambda: {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in files(tmp_path)}  # noqa: E731
    before = seen()
    done = run_in(tmp_path, "-s", str(ROOT / "Snakefile"), "--profile", str(ROOT / "profiles/local"), "-n")
    assert planned(done)["prepare"] == 1
    assert seen() == before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epochs: 1", "epoch: 1", "protocols.quick.epoch: unknown setting; did you mean epochs?"),
        ("seed: [0, 1]", "seed: zero", "studies.batch.axes.seed: 'zero' should be"),
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
    done = run_in(fresh, "--profile", "profiles/local", check=False)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if not line.startswith("Using ")]
    assert 1 <= len(errors) <= 2
    assert files(fresh) == before


def test_a_misspelt_setting_on_the_command_line_is_an_error_too(fresh: Path) -> None:
    done = run_in(fresh, "--config", "partail=true", "-n", check=False)
    assert done.returncode == 1
    assert "partail: unknown setting; did you mean partial?" in done.stderr


# ---------------------------------------------------------------- scheduling


def test_timed_runs_never_share_the_machine(finished_once: Path) -> None:
    """Not with each other, not with untimed runs; and the seeds follow each other."""
    made = [call for call in calls(finished_once) if call["command"] == "launch"]
    timed = [call for call in made if "/timing/" in call["name"]]
    assert len(timed) >= 4
    for one in timed:
        for other in made:
            assert one is other or one["stop"] <= other["start"] or other["stop"] <= one["start"]
    seeds = [Run.parse(call["name"]).seed for call in sorted(made, key=lambda call: call["start"])]
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
    made = [call for call in calls(fresh) if call["command"] == "launch"]
    assert any(a["start"] < b["start"] < a["stop"] for a in made for b in made)


def functions_of_a_run(project: Path, *options: str) -> set[str]:
    """What Snakemake has to work out by a function for each run: its resources, and its group."""
    told = """
train = workflow.get_rule("train")
print("FUNCTIONS", *(name for name, value in train.resources.items() if value.is_evaluable()))
print("FUNCTIONS", "group" if callable(train._group) else "")
"""
    (project / "Snakefile").write_text((ROOT / "Snakefile").read_text() + told)
    lines = run_in(project, *options, "--list-rules").stdout.splitlines()
    return {name for line in lines if line.startswith("FUNCTIONS") for name in line.split()[1:]}


@pytest.mark.parametrize("options", [(), ("--profile", "profiles/local"), ("--profile", "profiles/mpi")])
def test_on_one_machine_snakemake_asks_few_functions_about_each_run(
    fresh: Path, options: tuple[str, ...]
) -> None:
    """Each takes a tenth of a millisecond per run: with all of them, planning a large study took half as long again."""
    assert functions_of_a_run(fresh, *options) == {"_cores", "host", "tmpdir"}


def test_what_runs_need_is_known_where_it_is_asked(fresh: Path) -> None:
    needs = {"mem_mb", "runtime"}
    assert needs | {"group", "nodes", "gres"} <= functions_of_a_run(fresh, "--profile", "slurm")
    for limit in ("mem_mb=4000", "mem=4GB", "runtime=60"):
        done = run_in(fresh, "--profile", "profiles/local", "--resources", limit, "-n", record(RUNS[0]))
        assert all(f"{name}=" in done.stdout for name in needs)


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
    elsewhere = stand_in(tmp_path / "elsewhere")
    config = elsewhere / "config.yaml"
    config.write_text(config.read_text().replace("seed: [0, 1]", "seed: [4]"))
    run_in(elsewhere, "-s", str(ROOT / "Snakefile"), "--profile", str(ROOT / "profiles" / "local"))
    made = {path.relative_to(elsewhere).parts[0] for path in files(elsewhere)}
    assert made == {"bin", "config.yaml", "calls.jsonl", "results"}
    runs = [call["name"] for call in calls(elsewhere) if call["command"] == "launch"]
    assert sorted(runs) == sorted(record(run) for run in analysis.read(config).runs)
    assert {Run.parse(name).seed for name in runs} == {0, 4}
    run_in(elsewhere, "-s", str(ROOT / "Snakefile"), "--report", "report.zip")


def test_a_folder_without_a_config_runs_that_of_the_snakefile(tmp_path: Path) -> None:
    elsewhere = stand_in(tmp_path / "elsewhere")
    (elsewhere / "config.yaml").unlink()
    jobs = planned(run_in(elsewhere, "-s", str(ROOT / "Snakefile"), "-n"))
    assert jobs["train"] == len(analysis.read(ROOT / "config.yaml").runs)


def test_it_is_a_module_of_another_workflow(tmp_path: Path) -> None:
    project = stand_in(tmp_path / "theirs")
    tiny = (project / "config.yaml").read_text().replace("\n", "\n  ")
    (project / "config.yaml").write_text(f"theirs: 1\nketscale:\n  {tiny}\n")
    (project / "Snakefile").write_text(MODULE.format(snakefile=ROOT / "Snakefile"))
    done = run_in(project, "--cores", "2")
    assert "localrules directive" not in done.stderr
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
    made = {path.relative_to(fresh) for path in files(fresh) - before}
    assert {path for path in made if path.parts[:2] != ("out", "mine")} == {Path("calls.jsonl"), Path("out")}
    assert Path("out/mine/report.html") in made
    assert all(Path("out/mine", run.path) in made for run in RUNS)
    assert "Nothing to be done" in (done := run_in(fresh, "--profile", "profiles/local")).stdout + done.stderr
    # One missing seed of it is one target.
    seed = f"out/mine/{dataclasses.replace(RUNS[0], seed=7).path}"
    assert planned(run_in(fresh, seed, "-n")) == {"train": 1}


def test_each_ready_made_study_has_results_of_its_own() -> None:
    assert len(WHOLE) > 4
    for path in WHOLE:
        assert analysis.read(path).results == f"results-{path.stem}"
