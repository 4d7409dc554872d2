"""What is made again: after a change, and of results that came from elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ketscale import analysis
from ketscale.grid import Run
from ketscale.measure.form import SCHEMAS
from tests import ROOT
from tests import records_factory as factory
from tests.study.workflow.project import LOCAL, RUNS, TINY, calls, files, planned, record, run_in

# ---------------------------------------------------------------- reruns


def test_a_finished_study_has_nothing_left_to_do(finished: Path) -> None:
    assert (
        "Nothing to be done" in (done := run_in(finished, "--profile", "profiles/local")).stdout + done.stderr
    )
    assert calls(finished) == []
    assert all((finished / record(run)).read_text() == TINY.settings(run).text for run in RUNS)


def test_a_deleted_seed_is_trained_again_and_nothing_else(finished: Path) -> None:
    (finished / record(RUNS[0])).unlink()
    expected = {"train": 1, "tabulate": 1, "draw": 1, "write_page": 1}
    assert planned(run_in(finished, "--profile", "profiles/local", "-n")) == {**expected, "all": 1}
    assert planned(run_in(finished, "--profile", "profiles/local", "-n", record(RUNS[0]))) == {"train": 1}
    run_in(finished, "--profile", "profiles/local")
    assert [call["name"] for call in calls(finished)] == [record(RUNS[0]), *["report"] * 3]


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
    path.write_text(json.dumps({"schema": SCHEMAS[-1], "config_hash": settings.hash, **changes}))


def test_records_that_no_table_takes_are_made_again_whatever_snakemake_has_noted(
    finished: Path,
) -> None:
    timed, late, *_ = (run for run in RUNS if run.protocol == "timing")
    untimed = next(run for run in RUNS if run.protocol != "timing")
    shutil.rmtree(finished / ".snakemake")
    outdate(finished, timed, resumed=1)
    outdate(finished, late, schema=SCHEMAS[0] - 1)
    outdate(finished, untimed, resumed=1)
    assert planned(run_in(finished, "--profile", "profiles/local", "-n"))["train"] == 2
    # One that is asked for by name brings no other with it.
    assert planned(run_in(finished, "--profile", "profiles/local", "-n", record(late))) == {"train": 1}
    run_in(finished, "--profile", "profiles/local")
    values = [call["name"] for call in calls(finished) if call["command"] == "launch"]
    assert sorted(values) == sorted([record(timed), record(late)])
    assert json.loads((finished / record(untimed)).read_text())["resumed"] == 1
    result = run_in(finished, "--profile", "profiles/local", "-n")
    assert "Nothing to be done" in result.stdout + result.stderr


def test_edits_that_change_no_number_rerun_no_training(finished: Path) -> None:
    config = finished / "config.yaml"
    config.write_text(config.read_text().replace("title: The", "title: Still the") + "\n# a comment\n")
    for path in (finished / "workflow" / "rules").iterdir():
        path.write_text(path.read_text() + "\n# a comment\n")
    jobs = planned(run_in(finished, "--profile", "profiles/local", "-n"))
    assert set(jobs) == {"tabulate", "draw", "write_page", "all"}


def test_braces_in_title_and_question_are_text(finished: Path) -> None:
    config = finished / "config.yaml"
    text = config.read_text().replace("title: ", "title: '{word} {} {{run}} $x ' # ")
    config.write_text(text.replace("What does a larger batch", "What does {wildcards.batch}"))
    run_in(finished, *LOCAL)
    page = (finished / "results" / "report.html").read_text()
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
        in (result := run_in(finished, "--profile", "profiles/local", "-n")).stdout + result.stderr
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
    """Nor does another place."""
    images, labels = (tmp_path / f"t10k-{what}-ubyte.gz" for what in ("images-idx3", "labels-idx1"))
    images.write_bytes(b"1")
    labels.write_bytes(b"1")
    on_mnist(fresh, f"split: test-images, weights: selfsupervised, folder: {tmp_path}")
    run_in(fresh, "--profile", "profiles/local")
    os.utime(images, ns=(1, 1))
    result = run_in(fresh, "--profile", "profiles/local", "-n")
    assert "Nothing to be done" in result.stdout + result.stderr
    images.write_bytes(b"2")
    assert planned(run_in(fresh, "--profile", "profiles/local", "-n"))["prepare"] == 1
    # A partial report prepares nothing, but is made anew: its records are stale.
    partial = planned(
        run_in(fresh, "--profile", "profiles/local", "report", "--config", "partial=true", "-n")
    )
    assert partial["tabulate"] == 1 and "prepare" not in partial
    images.write_bytes(b"1")
    copied = tmp_path / "moved"
    copied.mkdir()
    for file in (images, labels):
        file.rename(copied / file.name)
    on_mnist(fresh, f"split: test-images, weights: selfsupervised, folder: {copied}")
    result = run_in(fresh, "--profile", "profiles/local", "-n")
    assert "Nothing to be done" in result.stdout + result.stderr


def test_data_and_weights_without_a_folder_are_fetched_by_local_rules(fresh: Path) -> None:
    on_mnist(fresh, "split: original, weights: imagenet")
    jobs = planned(run_in(fresh, "--profile", "slurm", "-n"))
    assert jobs["fetch"] == jobs["prepare"] == 1
    run_in(fresh, "--profile", "profiles/local", "results/features/mnist/features.json")
    assert [call["command"] for call in calls(fresh)] == ["fetch", "prepare"]


# ---------------------------------------------------------------- results that came without Snakemake's notes

AFTER_RUNS = {"tabulate": 1, "draw": 1, "write_page": 1, "all": 1}


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
    result = then()
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return result


def test_copied_results_of_another_title_are_made_again(finished: Path) -> None:
    assert planned(run_in(without_notes(finished), *LOCAL)) == {} and calls(finished) == []
    config = finished / "config.yaml"
    config.write_text(config.read_text().replace("title: The", "title: Another"))
    before = {path: path.read_bytes() for path in files(finished) if path.is_file()}
    assert planned(run_in(finished, *LOCAL, "-n")) == AFTER_RUNS
    assert {path: path.read_bytes() for path in files(finished) if path.is_file()} == before
    run_in(finished, *LOCAL)
    assert "Another tiny study" in (finished / "results/report.html").read_text()
    assert "Nothing to be done" in (result := run_in(finished, *LOCAL)).stdout + result.stderr


def test_what_was_not_made_from_the_records_is_made_again(finished: Path) -> None:
    """Whether or not Snakemake has notes, and though no time tells."""
    without_notes(finished)
    for name in ("tables/made-from.txt", RUNS[0].path):
        result = planned(edited_in(finished, name, lambda: run_in(finished, *LOCAL, "-n")))
        assert result == AFTER_RUNS, name
    one = edited_in(finished, RUNS[0].path, lambda: run_in(finished, *LOCAL, "-n", record(RUNS[1])))
    assert planned(one) == {}
    refused = edited_in(
        finished, RUNS[0].path, lambda: run_in(finished, "--report", "report.zip", check=False)
    )
    assert refused.returncode == 1 and "made of another config, other records" in refused.stderr
    edited_in(finished, RUNS[0].path, lambda: run_in(finished, *LOCAL))
    assert [call["name"] for call in calls(finished)] == ["report"] * 3


@pytest.mark.parametrize(
    ("old", "new", "repeat"),
    [
        ("split_seed: 0", "split_seed: 1", {"prepare": 1, "train": len(RUNS)}),
        ("epochs: 1", "epochs: 2", {"train": sum(run.protocol == "quick" for run in RUNS)}),
    ],
)
def test_copied_records_and_data_of_other_settings_are_made_again(
    fresh: Path, old: str, new: str, repeat: dict[str, int]
) -> None:
    factory.write_all(TINY, fresh / "results")
    for path in (fresh / "results/features").rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    assert planned(run_in(fresh, *LOCAL, "-n")) == AFTER_RUNS
    config = fresh / "config.yaml"
    config.write_text(config.read_text().replace(old, new))
    assert planned(run_in(fresh, *LOCAL, "-n")) == {**repeat, **AFTER_RUNS}
    one = next(run for run in RUNS if run.protocol == "quick")
    assert planned(run_in(fresh, *LOCAL, "-n", record(one))) == {**repeat, "train": 1}
