"""docs/tutorial.md from its first line to its verdict, in a folder beside a copy of the workflow."""

from __future__ import annotations

import os
import pickle
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas
import pytest

from tests.process import forks
from tests.tiny_study import ROOT, environment

PAGE = (ROOT / "docs" / "tutorial.md").read_text()
BLOCKS = re.findall(r"```(python|yaml|sh)\n(.*?)```", PAGE, re.DOTALL)


def with_words(words: str) -> str:
    """The block of the page that has these words."""
    (block,) = [text for _, text in BLOCKS if words in text]
    return block


def run(text: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(compile(text, "docs/tutorial.md", "exec"), namespace)
    return namespace


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the rules of the workflow, what the page writes beside them, and the study run."""
    folder = tmp_path_factory.mktemp("tutorial") / "checkout"
    folder.mkdir()
    for file in ("Snakefile", "config.yaml"):
        shutil.copy(ROOT / file, folder / file)
    for part in ("workflow/rules", "workflow/report", "profiles", "envs"):
        shutil.copytree(ROOT / part, folder / part)
    first, _, model = with_words("# file: ").partition("\n")
    (folder / first.removeprefix("# file: ")).write_text(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run(with_words("make_moons"))
    shell(folder, with_words("ketscale init").strip(), *with_words("snakemake").splitlines())
    return folder


def shell(folder: Path, *lines: str) -> list[str]:
    """What each line says."""
    message = []
    for line in lines:
        result = subprocess.run(
            shlex.split(line),
            cwd=folder,
            env=environment(ROOT / "workflow") | {"PATH": f"{forks.programs()}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert result.returncode == 0, f"{line}\n{result.stdout}{result.stderr}"
        message.append(result.stdout)
    return message


@pytest.mark.slow
def test_its_study_ends_in_answers_and_a_report(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert (checkout / "results-moons" / "report.html").stat().st_size > 10_000
    monkeypatch.chdir(checkout)
    answers = run(with_words("answers.csv"))["answers"]
    questions = dict(re.findall(r"^  (\w+): (\S.*)$", with_words("studies:"), re.MULTILINE))
    assert dict(answers["question"]) == questions
    assert all(question in capsys.readouterr().out for question in [questions["layouts"]])
    assert answers["verdict"]["parity"] == "same"
    assert "ring" in answers["answer"]["quality"]
    runs = pandas.read_csv("results-moons/tables/runs.csv")
    assert set(runs["status"]) == {"completed"}
    (stated,) = re.findall(r"(\d+) runs in a few minutes", PAGE)
    assert len(runs) == int(stated)
    # Seeds of one model are trained by the job of the first, so that the others find their records.
    (log,) = (checkout / ".snakemake" / "log").glob("*.log")
    assert "Warning" not in log.read_text()


@pytest.mark.slow
def test_its_plan_says_that_nothing_is_missing(checkout: Path) -> None:
    (message,) = shell(checkout, with_words("ketscale plan").strip())
    assert "nothing is missing" in message


@pytest.mark.slow
def test_its_model_is_loaded_and_classifies_rows(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout)
    result = run(with_words("ketscale.load"))
    sides = pandas.read_csv("moons.csv")["side"]
    for model in (result["model"], pickle.loads(pickle.dumps(result["model"]))):
        assert (model.predict(pandas.read_csv("moons.csv")) == sides).mean() > 0.8
    assert (result["sides"] == sides).mean() > 0.8
