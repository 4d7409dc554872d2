"""What a call of Snakemake notes of itself: how it is typed again from this folder."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ketscale import process
from ketscale.jobs import driver
from tests import ROOT


@dataclass
class Workflow:
    """What is asked of Snakemake's."""

    main_snakefile: str
    configfiles: tuple[str, ...] = ()


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.delenv("SNAKEMAKE_PROFILE", raising=False)
    monkeypatch.setenv(process.CALL, "another")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def begin(monkeypatch, snakefile: Path, *words: str, configs: tuple[str, ...] = ()):
    snakefile.parent.mkdir(exist_ok=True)
    snakefile.touch()
    monkeypatch.setattr(sys, "argv", ["snakemake", *words])
    driver.begin(Workflow(str(snakefile), configs)).release()


def typed(config: str = "config.yaml") -> list[str]:
    return shlex.split(driver.command(Path(config)))


def test_a_call_is_typed_again_with_its_snakefile_and_profile(monkeypatch, folder):
    begin(monkeypatch, folder / "a b" / "Snakefile", "-n", "--profile=my profile", "x/metrics.json")
    assert typed() == ["snakemake", "-s", str(folder / "a b" / "Snakefile"), "--profile", "my profile"]
    assert typed("my own.yaml")[-4:] == ["--configfile", "my own.yaml", "--profile", "my profile"]


def test_without_a_note_the_checkout_of_the_package_is_named(folder):
    local = str(ROOT / "profiles/local")
    assert typed() == ["snakemake", "-s", str(ROOT / "Snakefile"), "--profile", local]
    # A note of a Snakefile that has moved is none.
    driver.NOTE.parent.mkdir(parents=True)
    driver.NOTE.write_text('{"snakefile": "gone", "config": null, "profile": null}')
    assert typed() == ["snakemake", "-s", str(ROOT / "Snakefile"), "--profile", local]
    Path("Snakefile").touch()
    assert typed() == ["snakemake", "--profile", "profiles/local"]


def test_the_config_of_the_last_call_is_noted_from_this_folder(monkeypatch, folder):
    begin(monkeypatch, folder / "Snakefile", configs=(str(folder / "here" / "moons.yaml"),))
    assert driver.last().config == "moons.yaml"
    driver.NOTE.write_text("{}")
    assert driver.last() is None
