"""How a call of Snakemake is typed in a folder."""

from __future__ import annotations

import shlex
from pathlib import Path

from ketscale.jobs import driver
from tests import ROOT


def typed(config: str = "config.yaml") -> list[str]:
    return shlex.split(driver.command(Path(config)))


def test_the_snakefile_of_the_checkout_is_named_where_there_is_none(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    local = ["--profile", str(ROOT / "profiles/local")]
    assert typed() == ["snakemake", "-s", str(ROOT / "Snakefile"), *local]
    assert typed("my own.yaml")[-4:] == ["--configfile", "my own.yaml", *local]
    Path("Snakefile").touch()
    assert typed() == ["snakemake", "--profile", "profiles/local"]
