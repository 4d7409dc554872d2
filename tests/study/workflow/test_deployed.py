"""The workflow as the catalogue describes it and snakedeploy deploys it: a module with the configuration beside it."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from tests import ROOT
from tests.study.workflow.project import run_in, stand_in

CATALOGUE = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())
# What snakedeploy writes to workflow/Snakefile.
MODULE = """
from snakemake.utils import min_version


min_version("6.10.0")


configfile: "config/config.yaml"


module ketscale:
    snakefile:
        "{snakefile}"
    config:
        config


use rule * from ketscale
"""


@pytest.fixture
def deployed(tmp_path: Path) -> Path:
    """A folder as snakedeploy makes it, with the tiny study and the stand-in."""
    project = stand_in(tmp_path / "deployed")
    for folder in ("config", "profiles"):
        shutil.copytree(ROOT / folder, project / folder)
    assert (project / "config" / "config.yaml").read_text() == (ROOT / "config.yaml").read_text()
    shutil.move(project / "config.yaml", project / "config" / "config.yaml")
    (project / "workflow").mkdir()
    (project / "workflow" / "Snakefile").write_text(MODULE.format(snakefile=ROOT / "Snakefile"))
    return project


def test_it_runs_to_its_report(deployed: Path) -> None:
    run_in(deployed, *shlex.split(CATALOGUE["usage"]["mandatory-flags"]["flags"]))
    assert (deployed / "results" / "report.html").exists()
    assert CATALOGUE["usage"]["report"] is True
    run_in(deployed, "--report", "report.zip")
    assert (deployed / "report.zip").stat().st_size > 1000


def test_the_catalogue_says_which_environments_the_rules_have() -> None:
    message = CATALOGUE["usage"]["software-stack-deployment"]
    rules = "".join(path.read_text() for path in (ROOT / "workflow" / "rules").glob("*.smk"))
    assert message["conda"] == ("conda:" in rules)
    assert message["apptainer"] == ("container:" in rules)
