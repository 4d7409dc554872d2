"""Projects of the tiny study, as they are cloned and as they are when it has ended."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.study.workflow.project import lay_out, run_in


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "project")


@pytest.fixture(scope="session")
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
