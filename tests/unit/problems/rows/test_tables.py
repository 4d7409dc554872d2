"""Tables of features are read as they are, or refused in words that name the place."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given as given_of_hypothesis
from hypothesis import strategies as st

from ketscale.errors import UserError
from ketscale.problems import store
from ketscale.problems.registry import FAMILIES
from ketscale.problems.splits import SPLITS
from ketscale.problems.vectors.prepared import VERSION, dataset, prepare
from tests.own_files import ANIMALS, VECTORS, config, loaded, npz
from tests.property import attempt

NAMES = [f"x{i}" for i in range(VECTORS.shape[1])]


def table(path: Path, columns: dict[str, Any]) -> str:
    """A CSV file with these columns."""
    pd.DataFrame(columns).to_csv(path / "mine.csv", index=False)
    return str(path / "mine.csv")


def columns(**more: Any) -> dict[str, Any]:
    return {**dict(zip(NAMES, VECTORS.T, strict=True)), **more}


CLASSES = {"kind": "table", "target": "animal"}
NUMBERS = {"kind": "table", "target": "weight", "task": "regression"}
WEIGHTS = VECTORS @ np.arange(1, 8)


def test_a_table_is_the_arrays_that_it_holds(tmp_path: Path) -> None:
    file = table(tmp_path, columns(animal=ANIMALS))
    data = loaded({**CLASSES, "file": file})
    assert np.array_equal(data.values, VECTORS)
    assert data.names == ("cat", "dog", "eel")
    assert [data.names[target] for target in data.targets] == ANIMALS.tolist()
    arrays = loaded({"kind": "rows", "file": npz(tmp_path, x=VECTORS, y=ANIMALS)})
    assert data.digest() == arrays.digest()


def test_columns_that_settings_name_are_no_features(tmp_path: Path) -> None:
    file = table(
        tmp_path,
        {"id": range(40), **columns(age=[3, *[1.5] * 39], animal=ANIMALS, well=["True", "false"] * 20)},
    )
    data = loaded({**CLASSES, "file": file, "ignore": ["id"]})
    assert data.values.shape == (40, 9)
    assert data.values[:, 7].tolist() == [3, *[1.5] * 39] and data.values[:, 8].tolist() == [1, 0] * 20


def test_targets_of_a_regression_are_kept_as_they_are(tmp_path: Path) -> None:
    block = {**NUMBERS, "file": table(tmp_path, columns(weight=WEIGHTS, length=range(40)))}
    one, two = loaded({**block, "ignore": ["length"]}), loaded({**block, "target": ["weight", "length"]})
    assert np.array_equal(one.targets, WEIGHTS[:, None]) and one.names == ("weight",)
    assert np.array_equal(two.targets, np.stack([WEIGHTS, np.arange(40)], axis=1))
    assert two.targets.dtype == np.float64 and two.names == ("weight", "length")
    assert [len(two.splits[name]) for name in SPLITS] == [28, 6, 6]


def test_arrays_of_a_regression_have_one_number_each_or_a_row(tmp_path: Path) -> None:
    block = {"kind": "rows", "task": "regression"}
    data = loaded({**block, "file": npz(tmp_path, x=VECTORS, y=WEIGHTS)})
    assert np.array_equal(data.targets, WEIGHTS[:, None]) and data.names == ("target",)
    several = loaded({**block, "file": npz(tmp_path, x=VECTORS, y=VECTORS[:, :2])})
    assert np.array_equal(several.targets, VECTORS[:, :2]) and several.names == ("target0", "target1")


def test_the_data_are_standardised_over_the_training_rows_alone(tmp_path: Path) -> None:
    result = config({**NUMBERS, "file": table(tmp_path, columns(weight=WEIGHTS))})
    workload = result.workloads["mine"][1]
    FAMILIES["rows"].prepare(workload, tmp_path / "features.json", None)
    restored = dataset(store.opened(tmp_path / "features.json", VERSION))
    train = VECTORS[restored.splits["train"]]
    expected = (VECTORS - train.mean(0)) / train.std(0)
    np.testing.assert_allclose(restored.inputs, expected, rtol=0, atol=1e-5)
    raw = restored.preprocessing.inputs(pd.DataFrame(columns()))
    assert np.array_equal(raw, restored.inputs)
    assert np.array_equal(restored.targets, WEIGHTS[:, None]) and restored.names == ("weight",)
    assert restored.inputs.flags.c_contiguous  # though a data frame's columns are side by side


def test_rows_of_a_group_stay_together(tmp_path: Path) -> None:
    people = np.repeat(np.arange(10), 4)
    file = table(tmp_path, columns(weight=range(40), person=people))
    data = loaded({**NUMBERS, "file": file, "groups_column": "person"})
    parts = [set(people[data.splits[name]]) for name in SPLITS]
    assert all(parts) and sum(map(len, parts)) == 10
    arrays = {"kind": "rows", "task": "regression", "split": "groups"}
    same = loaded({**arrays, "file": npz(tmp_path, x=VECTORS, y=np.arange(40.0), groups=people)})
    assert same.digest() == data.digest()


@given_of_hypothesis(st.lists(st.integers(0, 12), min_size=40, max_size=40), st.booleans())
def test_a_split_by_time_tests_what_is_later(times: list[int], dated: bool) -> None:
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(times, "D")
    with tempfile.TemporaryDirectory() as folder:
        file = table(Path(folder), columns(weight=range(40), when=days if dated else times))
        block = {**NUMBERS, "file": file, "time_column": "when"}
        data, message = attempt(lambda: loaded(block))
    if data is None:
        assert "split by time" in message
        return
    assert data.values.shape == (40, 7)
    parts = [np.array(times)[data.splits[name]] for name in SPLITS]
    assert parts[0].max() < parts[1].min() and parts[1].max() < parts[2].min()


@pytest.mark.parametrize("how", ["given", "share"])
def test_there_may_be_no_validation(how: str, tmp_path: Path) -> None:
    file = table(tmp_path, columns(animal=ANIMALS, part=["train", "train", "test", "train", "train"] * 8))
    more = {"split_column": "part"} if how == "given" else {"validation": 0, "ignore": ["part"]}
    data = loaded({**CLASSES, "file": file, **more})
    assert not len(data.splits["validation"])
    assert len(data.splits["train"]) + len(data.splits["test"]) == 40


def test_the_tables_of_scikit_learn_are_read() -> None:
    from sklearn.datasets import load_diabetes, load_wine

    wine = loaded({"kind": "sample-table", "table": "wine", "split_seed": 0})
    assert np.array_equal(wine.values, load_wine().data) and wine.names == ("class_0", "class_1", "class_2")
    diabetes = loaded({"kind": "sample-table", "table": "diabetes", "split_seed": 0})
    assert np.array_equal(diabetes.targets[:, 0], load_diabetes().target)


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        ("x,animal,part\n" + "1,cat,train\n2,dog,train\n" * 8, {"split_column": "part"}, "no sample is in part test"),
        ("x,animal,part\n" + "1,cat,train\n2,dog,tests\n" * 8, {"split_column": "part"}, "'tests' is not a part"),
        ("x,animal,part\n" + "1,cat,train\n2,dog,test\n" * 8, {"split_column": "part"}, "class 'dog' has no training sample"),
    ],
)  # fmt: skip
def test_tables_that_do_not_fit_are_refused(
    content: str, more: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.csv").write_text(content)
    block = {**CLASSES, "file": str(tmp_path / "mine.csv"), **more}
    with pytest.raises(UserError, match=message):
        prepare(config(block).workloads["mine"][1], tmp_path / "store" / "features.json", None)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({**CLASSES, "file": "a", "target": ["animal", "age"]}, "mine.target"),
        ({**CLASSES, "file": "a", "split_column": "part", "test": 0.2}, "mine.test"),
        ({**CLASSES, "file": "a", "validation": 0.5, "test": 0.5}, "mine.validation"),
        ({**CLASSES, "file": "a", "time_column": "day", "split_seed": 1}, "mine.split_seed"),
        ({**CLASSES, "file": "a", "time_column": "day", "groups_column": "person"}, "mine.time_column"),
        ({**CLASSES, "file": "a", "columns": {"animal": "one-hot"}}, "mine.target"),
        ({**CLASSES, "file": "a", "columns": {"age": ["one-hot", "median"]}}, "mine.columns.age"),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together_are_refused(block: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        config(block)
