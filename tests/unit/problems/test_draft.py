"""`ketscale init`: what it writes for files as users have them is a config that reads those files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from ketscale import analysis
from ketscale.cli import main
from ketscale.errors import UserError
from ketscale.grid import layout
from ketscale.measure import host
from ketscale.problems import draft
from tests import ROOT
from tests.own_files import GREY, SIGNALS, VECTORS, pictures

CLASSES = np.arange(40) % 2
NUMBERS = np.linspace(0, 1, 40)
RING = """
from torch import nn
class Ring(nn.Module):
    def __init__(self, qubits, inputs, outputs, simulator=None, spread=0.1): ...
class Plain(nn.Module):
    def __init__(self, inputs, outputs): ...
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def config_of(data: str, **given: Any) -> dict[str, Any]:
    """The config for a file, which is checked, and whose data are read."""
    options = {"kind": None, "targets": (), "model": None, **given}
    text, notes = draft.drafted(Path(data), "snakemake --configfile study.yaml", **options)
    Path("study.yaml").write_text(text)
    config = analysis.read(Path("study.yaml"))
    assert {study.kind for study in config.studies} >= {"accuracy"}
    ((_, workload),) = config.workloads.values()
    loaded = workload.load(None)
    assert loaded is not None
    result: dict[str, Any] = yaml.safe_load(text)
    (block,) = result["workloads"].values()
    assert all(f"  # {note}\n" in text for note in notes) and bool(notes) == (block["kind"] == "table")
    assert any(note.startswith("ignored: ") for note in notes) == ("ignore" in block)
    return result


def saved(**arrays: Any) -> str:
    np.savez("mine.npz", **arrays)
    return "mine.npz"


def tabled(**columns: Any) -> str:
    pd.DataFrame(columns).to_csv("mine.csv", index=False)
    return "mine.csv"


@pytest.mark.parametrize(
    ("arrays", "block"),
    [
        ({"x": VECTORS, "y": CLASSES}, {"kind": "rows"}),
        ({"x": VECTORS, "y": NUMBERS}, {"kind": "rows", "task": "regression"}),
        ({"x": VECTORS, "targets": np.stack([NUMBERS, CLASSES], 1)}, {"kind": "rows", "task": "regression"}),
        ({"x": VECTORS, "y": CLASSES, "groups": np.arange(40) % 8}, {"kind": "rows", "split": "groups"}),
        ({"images": GREY, "labels": CLASSES}, {"kind": "arrays"}),
        ({"signals": SIGNALS, "y": CLASSES}, {"kind": "series", "split": "trials"}),
    ],
)
def test_arrays_are_recognised(arrays: dict[str, Any], block: dict[str, Any]) -> None:
    config = config_of(saved(**arrays))
    (result,) = config["workloads"].values()
    assert result | block == result
    assert result.get("task") == block.get("task")


def test_what_images_or_trials_may_be_is_asked() -> None:
    with pytest.raises(UserError, match="may be arrays or series; say which with --kind"):
        config_of(saved(x=SIGNALS, y=CLASSES))
    assert config_of("mine.npz", kind="series")["workloads"]["mine"]["kind"] == "series"


def test_a_folder_of_images_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "pets").mkdir()
    pictures(tmp_path / "pets")
    assert config_of("pets")["workloads"]["pets"]["kind"] == "image-folder"


@pytest.mark.parametrize(
    ("columns", "options", "block"),
    [
        ({"a": NUMBERS, "b": VECTORS[:, 0], "kind": ["x", "y"] * 20}, {}, {"target": "kind"}),
        ({"a": VECTORS[:, 0], "b": NUMBERS}, {}, {"target": "b", "task": "regression"}),
        ({"a": NUMBERS, "b": NUMBERS, "c": VECTORS[:, 1]}, {"targets": ("a", "b")}, {"target": ["a", "b"], "task": "regression"}),
        ({"id": np.arange(40), "name": [f"n{i}" for i in range(40)], "a": NUMBERS, "y": CLASSES}, {}, {"target": "y", "ignore": ["id", "name"]}),
        ({"colour": ["red", "blue"] * 20, "a": [None, *NUMBERS[1:]], "y": CLASSES}, {}, {"target": "y", "columns": {"colour": "one-hot", "a": "median"}}),
        ({"colour": [None, *["red", "blue", "red"] * 13], "a": NUMBERS, "y": CLASSES}, {}, {"target": "y", "columns": {"colour": ["most-frequent", "one-hot"]}}),
        ({"day": [None, *pd.date_range("2024-01-01", periods=39).astype(str)], "well": [None, *[True, False, True] * 13], "y": CLASSES}, {}, {"target": "y", "columns": {"day": ["median", "date"], "well": "most-frequent"}}),
        ({"a": NUMBERS, "subject": np.arange(40) // 4, "y": CLASSES}, {}, {"target": "y", "groups_column": "subject"}),
    ],
)  # fmt: skip
def test_columns_get_their_roles(
    columns: dict[str, Any], options: dict[str, Any], block: dict[str, Any]
) -> None:
    (result,) = config_of(tabled(**columns), **options)["workloads"].values()
    assert result == {"kind": "table", "file": "mine.csv", **block}


MIXED = np.random.default_rng(0).permutation(40)


@pytest.mark.parametrize(
    ("column", "why"),
    [
        # Row numbers, of rows of which some were left out, or in another order by their name.
        (("n", 3 * np.arange(40) + 17), "may number the rows"),
        (("n", np.delete(np.arange(60), slice(5, 25))), "may number the rows"),
        (("PassengerId", 7919 * MIXED**2), "may number the rows"),
        (("time", np.arange(40) ** 1.5), "in the order of the rows, which are sorted by class"),
        (("name", [f"n{i}" for i in range(40)]), "text of 40 different values"),
        (("when", [f"{1 + i % 28:02}.01.2024" for i in range(40)]), "dates, but not as 2024-01-31"),
        (("when", pd.date_range("2024-01-01", periods=40).astype(str)), "in the order of the rows, which are sorted by class"),
        (("n", MIXED), "may number the rows"),
        (("n", [f"{i % 9},5" for i in range(40)]), "numbers with a decimal comma or grouped digits; write them as 1234.5"),
        # What is measured.
        (("n", np.append(np.arange(39), 38)), ""),
        (("n", 7919 * MIXED**2), ""),
        (("humid", 7919 * MIXED**2), ""),
        (("time", (np.arange(40) ** 1.5)[MIXED]), ""),
    ],
)  # fmt: skip
def test_what_tells_the_rows_of_a_table_apart_is_no_feature(
    column: tuple[str, Any], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows are sorted by class: with such a column every model would be right in each of them."""
    name, values = column
    table = tabled(**{name: values, "a": VECTORS[:, 0], "y": np.repeat(["x", "z"], 20)})
    block = config_of(table)["workloads"]["mine"]
    assert block.get("ignore", []) == [name] * bool(why)
    assert main(["init", table]) == 0
    assert (f"mine.csv: ignored: {name} ({why})" in capsys.readouterr().out) == bool(why)


def test_what_rises_with_the_rows_is_a_feature_where_they_are_not_sorted_by_class() -> None:
    assert "ignore" not in config_of(tabled(a=NUMBERS, y=CLASSES))["workloads"]["mine"]
    assert "ignore" not in config_of(tabled(a=NUMBERS, y=VECTORS[:, 0]))["workloads"]["mine"]


@pytest.mark.parametrize(
    ("columns", "target"),
    [
        ({"a": VECTORS[:, 0], "code": ["p", "q"] * 20, "y": CLASSES}, "code"),
        ({"a": VECTORS[:, 0], "grams": 1000 * VECTORS[:, 1], "kilos": VECTORS[:, 1]}, "grams"),
        ({"a": VECTORS[:, 0], "b": VECTORS[:, 2], "y": CLASSES}, None),
    ],
)
def test_a_feature_that_alone_predicts_the_target_is_told(
    columns: dict[str, Any], target: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """By `init`, which writes it as a comment too, and by `try`; test_answers.py has the report."""
    assert main(["init", tabled(**columns)]) == 0
    message = f"possible leak: {target} alone predicts"
    assert (message in capsys.readouterr().out) == (target is not None)
    assert (f"# {message}" in Path("mine.yaml").read_text()) == (target is not None)
    assert main(["try", "--config", "mine.yaml"]) == 0
    assert (f"mine: {message}" in capsys.readouterr().err) == (target is not None)


def test_tables_of_which_it_is_not_sure_what_the_features_are_are_left_to_the_user() -> None:
    with pytest.raises(UserError, match="session and subject may both be groups"):
        config_of(tabled(session=["s1", "s2"] * 20, subject=np.arange(40) // 4, a=NUMBERS, y=CLASSES))
    with pytest.raises(UserError, match=r"no column that is a feature: n \(may number the rows\)"):
        config_of(tabled(n=np.arange(40), y=CLASSES))


def test_parts_without_validation_are_trained_without_it() -> None:
    parts = ["train"] * 30 + ["test"] * 10
    config = config_of(tabled(a=NUMBERS, split=parts, y=CLASSES))
    assert config["workloads"]["mine"]["split_column"] == "split"
    assert "early_stopping" not in config["protocols"]["quality"]
    complete = config_of(tabled(a=NUMBERS, split=[*parts[:36], *["val"] * 4], y=CLASSES))
    assert "early_stopping" in complete["protocols"]["quality"]


def test_a_model_of_ones_own_has_the_sizes_and_the_simulator_that_it_names() -> None:
    Path("ring.py").write_text(RING)
    data = saved(x=VECTORS, y=CLASSES)
    config = config_of(data, model="ring.py:Ring")
    assert config["models"] == {"Ring": {"file": "ring.py", "class": "Ring", "control": "mlp"}}
    axes = config["studies"]["quality"]["axes"]
    assert (axes["qubits"], axes["layers"], axes["simulator"]) == (4, 0, "fused")
    with pytest.raises(UserError, match=r"--model ring\.py: "):
        config_of(data, model="ring.py")
    axes = config_of(data, model="ring.py:Plain")["studies"]["quality"]["axes"]
    assert (axes["qubits"], axes["layers"], axes["simulator"]) == (0, 0, "none")


@pytest.mark.parametrize(("file", "name"), [("2024", "data-2024"), ("\u6570\u636e", "data")])
def test_any_name_of_a_file_gives_a_name_that_yaml_reads_as_text(file: str, name: str) -> None:
    Path(tabled(a=NUMBERS, y=CLASSES)).rename(f"{file}.csv")
    assert list(config_of(f"{file}.csv")["workloads"]) == [name]


@pytest.mark.parametrize(("file", "name"), [("mlp", "own-mlp"), ("no", "model-no")])
def test_any_name_of_a_models_file_gives_one_that_no_other_model_has(file: str, name: str) -> None:
    Path(f"{file}.py").write_text(RING[: RING.index("class Plain")])
    config = config_of(saved(x=VECTORS, y=CLASSES), model=f"{file}.py")
    assert list(config["models"]) == [config["studies"]["quality"]["axes"]["model"]] == [name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["there.csv"], "there.csv: there is no such file or folder"),
        (["text.txt"], "is no data that any kind of workload reads"),
        (["mine.csv", "--kind", "rows"], "is no data that rows reads"),
        (["mine.csv", "--out", "mine.csv"], "mine.csv: is there already"),
    ],
)
def test_what_cannot_be_drafted_is_refused_and_nothing_written(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("text.txt").write_text("text")
    tabled(a=NUMBERS, y=CLASSES)
    before = {path: path.read_bytes() for path in Path().iterdir()}
    assert main(["init", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_the_config_is_written_where_the_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    tabled(a=NUMBERS, y=CLASSES)
    assert main(["init", "mine.csv"]) == 0
    # There is no Snakefile here.
    run = f"snakemake -s {ROOT}/Snakefile --configfile mine.yaml --profile {ROOT}/profiles/local"
    assert capsys.readouterr().out.endswith(f"mine.yaml: written; next: {run}\n")
    assert analysis.read(Path("mine.yaml")).studies
    assert main(["init", "mine.csv", "--out", "my study.yaml"]) == 0
    assert "--configfile 'my study.yaml'" in capsys.readouterr().out


def test_a_study_of_scaling_has_the_layouts_of_this_machine(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--scaling"]) == 0
    config = analysis.read("scaling.yaml")
    target = {each for each in host.layouts(len(os.sched_getaffinity(0)), 0) if layout(each)["ranks"] <= 256}
    assert target <= {run.layout for run in config.runs} and {run.batch for run in config.runs} == {256}
    assert main(["init"]) == 2 and "--scaling" in capsys.readouterr().err
