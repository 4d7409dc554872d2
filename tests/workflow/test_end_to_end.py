"""The tiny study for real: data, weights, features, training, tables, figures and report, and a seed trained again."""

import csv
import json
import shutil

import pytest

from tests.workflow.test_snakemake import RUNS, lay_out, planned, record, run_in


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with the real command, its study finished."""
    project = lay_out(tmp_path_factory.mktemp("study") / "project")
    shutil.rmtree(project / "bin")
    run_in(project, "--profile", "profiles/local")
    return project


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_study_ends_in_records_tables_figures_and_report(project):
    for run in RUNS:
        assert json.loads((project / record(run)).read_text())["status"] == "completed"
    assert len(rows(project / "results/tables/runs.csv")) == len(RUNS)
    states = {row["state"] for row in rows(project / "results/tables/completeness.csv") if row["run"] != "*"}
    assert states == {"completed"}
    page = (project / "results/report.html").read_text()
    assert "The tiny study of the tests" in page and len(page) < 5e6
    assert not [line for line in page.splitlines() if 'src="http' in line or '<link rel="stylesheet"' in line]


def test_a_deleted_seed_is_trained_again_and_the_tables_refreshed_and_nothing_else(project):
    gone = next(run for run in RUNS if run.seed == 1)
    kept = {run: (project / record(run)).read_bytes() for run in RUNS if run != gone}
    before = json.loads((project / record(gone)).read_text())
    (project / record(gone)).unlink()
    assert planned(run_in(project, "--profile", "profiles/local", "-n"))["train"] == 1
    run_in(project, "--profile", "profiles/local")
    after = json.loads((project / record(gone)).read_text())
    assert after["losses"] == before["losses"] and after["started"] != before["started"]
    assert all((project / record(run)).read_bytes() == content for run, content in kept.items())
    assert not planned(run_in(project, "--profile", "profiles/local", "-n"))


def test_partial_report_names_the_missing_run(project):
    gone = RUNS[0]
    saved = (project / record(gone)).read_bytes()
    (project / record(gone)).unlink()
    try:
        run_in(project, "report", "--config", "partial=true")
        missing = [
            row for row in rows(project / "results/tables/completeness.csv") if row["state"] == "missing"
        ]
        assert [row["run"] for row in missing] == [record(gone)]
        assert record(gone) in (project / "results/report.html").read_text()
    finally:
        (project / record(gone)).write_bytes(saved)
