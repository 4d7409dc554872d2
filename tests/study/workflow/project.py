"""Projects in which the repository's workflow runs the tiny study of tests/data/tiny.yaml.

Every rule runs, but with tests/data/stand_in.py in place of `ketscale`, so that nothing is trained.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ketscale import analysis
from ketscale.grid import Run
from tests import ROOT
from tests.process import forks

TINY = analysis.read(ROOT / "tests" / "data" / "tiny.yaml")
RUNS = TINY.runs
LOCAL = ("--profile", "profiles/local")


def record(run: Run) -> str:
    """The place of the run's record in a project."""
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
    result = subprocess.run(
        [forks.programs() / "snakemake", *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if check and result.returncode:
        pytest.fail(
            f"snakemake {' '.join(arguments)} failed ({result.returncode}):\n{result.stdout}{result.stderr}"
        )
    return result


def planned(result: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """The jobs of a dry run, counted by rule."""
    text = result.stdout + result.stderr
    return {m[1]: int(m[2]) for m in re.finditer(r"^(\w+) +(\d+)$", text, re.MULTILINE) if m[1] != "total"}


def calls(project: Path) -> list[dict[str, Any]]:
    path = project / "calls.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def files(project: Path) -> set[Path]:
    return {
        path for path in project.rglob("*") if ".snakemake" not in path.parts and ".cache" not in path.parts
    }
