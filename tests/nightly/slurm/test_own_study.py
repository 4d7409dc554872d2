"""Data and models of a user's own, in files beside the config, on the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ketscale import analysis, grid
from tests import own_study
from tests.nightly.slurm.project import Project

LIMITS = [{"minutes": 3, "memory_mb": 1200}]


def trained(folder: Path, config: dict[str, Any], patch: pytest.MonkeyPatch) -> Project:
    """A project with the files, whose study has run to its report; its folder becomes the working directory."""
    project = Project(folder)
    patch.chdir(project.folder)
    own_study.written(project.folder)
    project.site(partition="study", limits=LIMITS, features={"minutes": 10, "memory_mb": 1500})
    project.study(**config)
    project.snakemake(seconds=2400)
    return project


def check(project: Project, config: dict[str, Any], workloads: Sequence[str]) -> None:
    tables = project.folder / "results" / "tables"
    runs = pd.read_csv(tables / "runs.csv")
    asked = analysis.of(config).runs
    assert len(runs) == len(asked) and set(runs["status"]) == {"completed"}
    assert set(runs["workload"]) == set(workloads)
    for run in asked:
        record = project.record(run)
        assert record["slurm_job_id"]
        assert len(record["machine"]["ranks"]) == run.ranks
        assert (project.results(run) / grid.CODE).exists()
    answers = pd.read_csv(tables / "answers.csv").groupby("study").first()
    assert answers["verdict"]["parity"] == "held"
    assert (project.folder / "results" / "report.html").stat().st_size > 20_000


def test_own_models_are_trained_on_own_data(cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["regression"]
    config = own_study.config(names, [0], [0])
    project = trained(tmp_path / "project", config, monkeypatch)
    check(project, config, names)
