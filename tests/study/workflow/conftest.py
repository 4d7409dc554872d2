"""Projects of the tiny study, as they are cloned and as they are when it has ended."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

import pytest

from tests.conftest import SIDE_BY_SIDE
from tests.study.workflow.project import LOCAL, lay_out, run_in


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "project")


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose study was run to the end, once for all workers."""
    result = tmp_path_factory.getbasetemp()
    shared = result.parent if SIDE_BY_SIDE else result
    project = shared / "finished"
    with (shared / "finished.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not project.exists():
            run_in(lay_out(shared / "to-finish"), *LOCAL, STAND_IN_SECONDS="0.3")
            (shared / "to-finish").rename(project)
    return project


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Path:
    """A project whose study was run to the end; what was called for that is forgotten."""
    project = tmp_path / "project"
    shutil.copytree(finished_once, project, symlinks=True)
    (project / "calls.jsonl").unlink()
    return project
