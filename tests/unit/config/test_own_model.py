"""The block of a model in a file: what it may say, and which points of a study it fits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ketscale import analysis
from ketscale.config import Config, FileModel
from ketscale.errors import UserError
from ketscale.problems import models
from ketscale.problems.registry import FAMILIES
from tests.own_models import BLOCK, FILES, RING, project, study_of, write


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the files of the model."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, FILES)
    return tmp_path


def config(folder: Path, block: dict[str, Any] = BLOCK, **axes: Any) -> Config:
    """A config with the model `ring`, read from YAML."""
    return analysis.of(yaml.safe_load(yaml.safe_dump(study_of(folder, block, **axes))))


def test_the_settings_have_the_files_content(folder: Path) -> None:
    first = config(folder).models["ring"][1]
    assert isinstance(first, FileModel)
    assert first.settings == {"spread": 0.2}
    write(folder, {"models/parts.py": FILES["models/parts.py"] + "\nx = 1"})
    second = config(folder).models["ring"][1]
    assert {**first.content(), "code": second.content()["code"]} == second.content() != first.content()


def test_a_run_is_stale_once_a_file_has_changed(folder: Path) -> None:
    before = config(folder)
    write(folder, {"models/ring.py": RING + "# a comment"})
    assert [before.settings(run).hash == config(folder).settings(run).hash for run in before.runs] == [
        True
    ] * 2
    write(folder, {"models/ring.py": RING + "x = 1"})
    after = config(folder)
    changed = {run.model for run in before.runs if before.settings(run).hash != after.settings(run).hash}
    assert changed == {"ring"}
    # The text of a config needs no file.
    (folder / "models/ring.py").unlink()
    assert analysis.of(json.loads(after.text), placed=False).text == after.text


def test_without_reads_a_model_has_no_such_content(folder: Path) -> None:
    model = config(folder).models["ring"][1]
    assert "reads" not in model.content()
    assert config(folder, {**BLOCK, "reads": []}).models["ring"][1].content() == model.content()


def test_what_a_model_reads_is_part_of_its_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, {"scale.txt": "2"})
    block, hashes = {**BLOCK, "reads": ["scale.txt", "$SCALE"]}, set[str]()
    for text, variable in (("2", None), ("2", ""), ("2", "3"), ("4", "3")):
        write(folder, {"scale.txt": text})
        monkeypatch.delenv("SCALE", raising=False)
        if variable is not None:
            monkeypatch.setenv("SCALE", variable)
        result = config(folder, block)
        settings = result.settings(next(run for run in result.runs if run.model == "ring"))
        hashes.add(settings.hash)
        # Another process has the same, by its settings and by the text of the config, whatever the file says now.
        repeat = type(settings).of(json.loads(settings.text), FAMILIES, "--settings")
        write(folder, {"scale.txt": "5"})
        assert (repeat.hash, analysis.of(json.loads(result.text), placed=False).text) == (
            settings.hash,
            result.text,
        )
        assert isinstance(settings.model, FileModel) and list(settings.model.reads) == block["reads"]
    assert len(hashes) == 4


def test_a_run_that_finds_another_content_than_its_settings_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, {"scale.txt": "2"})
    monkeypatch.setenv("SCALE", "2")
    result = config(folder, {**BLOCK, "reads": ["scale.txt", "$SCALE"]})
    settings = result.settings(next(run for run in result.runs if run.model == "ring"))
    assert models.of_settings(settings, "fused", inputs=3, outputs=2)
    monkeypatch.setenv("SCALE", "3")
    with pytest.raises(UserError, match=r"models/ring.py: \$SCALE is not as this run's settings have it"):
        models.of_settings(settings, "fused", inputs=3, outputs=2)
    monkeypatch.setenv("SCALE", "2")
    write(folder, {"scale.txt": "3"})
    with pytest.raises(UserError, match=r"models/ring.py: scale.txt is not as this run's settings have"):
        models.of_settings(settings, "fused", inputs=3, outputs=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"file": "models/rung.py"}, "models.ring"),
        ({"qubits": 3}, "models.ring.qubits"),
        ({"simulator": "fused"}, "models.ring.simulator"),
        ({"reads": "scale.txt"}, "models.ring.reads"),
        ({"weights": {1: 50}}, r"models.ring.weights.1"),
    ],
)  # fmt: skip
def test_a_wrong_block_is_refused_with_what_to_do(folder: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        config(folder, {**BLOCK, **change})


def test_reading_runs_nothing(tmp_path: Path) -> None:
    raises = {**FILES, "models/parts.py": "raise RuntimeError('it was run')\n" + FILES["models/parts.py"]}
    with project(tmp_path, raises):
        assert analysis.read("config.yaml").runs
