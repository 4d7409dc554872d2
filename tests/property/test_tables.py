"""Users' own arrays and tables are read as they are and split as they must be, or refused by the name of the file or setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from ketscale.config import sources
from ketscale.problems.splits import SPLITS
from tests.own_files import config
from tests.property import attempt, examples

ORDINARY = st.floats(-1e3, 1e3, width=32)
SHAPES = hn.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=12) | st.tuples(
    st.integers(1, 40), st.integers(1, 3)
)
DTYPES = st.sampled_from(["f4", "f8", "<f2", ">f8", "i1", "u1", "i8", "u8", "?", "c16", "S3", "U3", "M8[D]"])
CLASSES = st.lists(st.sampled_from(["cat", "dog", "eel"]), min_size=40, max_size=40)
CELLS = st.sampled_from(
    ["", "nan", "-inf", "1,5", "1_0", "1e400", "cat", '"', '"a\n', "\ufeff1", "٣", " 2 ", "-0"]
)
# The file, or what in it, or the setting. (The commands put the workload before it.)
NAMED = ("mine.", "class ", "there are ", "groups", "column", "file")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("own")


def read(block: dict[str, Any]) -> tuple[Any, str]:
    """What the workload `mine` reads from its files; or None and what was said, which names what is wrong."""

    def load() -> Any:
        result = config(block)
        sources(result, "mine")
        return result.workloads["mine"][1].load(None)

    data, message = attempt(load)
    assert data is not None or any(name in message for name in NAMED), message
    return data, message


def assert_parts(data: Any, count: int, together: np.ndarray | None = None) -> None:
    """Each sample is in one part, training and test are not empty, and equal ones or those of a group are side by side."""
    parts = np.full(count, "", "U10")
    for name in SPLITS:
        assert (parts[data.splits[name]] == "").all()
        parts[data.splits[name]] = name
    assert (parts != "").all() and {"train", "test"} <= set(parts.tolist())
    if together is not None:
        assert all(len(set(parts[together == one].tolist())) == 1 for one in np.unique(together))


@st.composite
def rows(draw: st.DrawFn) -> np.ndarray:
    """Features of 40 samples, some of them copies of others, and some columns constant."""
    values = draw(hn.arrays(np.float64, (40, draw(st.integers(1, 4))), elements=ORDINARY))
    copies = draw(st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=12))
    for one, other in copies:
        values[one] = values[other]
    if draw(st.booleans()):
        values[:, 0] = 5
    return values


def equal(values: np.ndarray) -> np.ndarray:
    """The number of the first sample that a network cannot tell from each, in single precision as in double."""
    single = (values + 0).astype(np.float32)
    return np.array([next(i for i in range(len(single)) if (single[i] == one).all()) for one in single])


@given(st.data())
def test_arrays_of_any_kind_are_read_or_refused_in_words(folder: Path, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["rows", "series"]))
    arrays = {
        name: data.draw(hn.arrays(data.draw(DTYPES), data.draw(SHAPES)), label=name) for name in ("x", "y")
    }
    if data.draw(st.booleans()):
        arrays["y"] = np.resize(["cat", "dog"], len(arrays["x"]))
    if data.draw(st.booleans()):
        arrays[data.draw(st.sampled_from(["groups", "split", "subject", "train", "other"]))] = np.resize(
            ["train", "test"], len(arrays["x"])
        )
    np.savez(folder / "mine.npz", **arrays)
    more = {"series": {"split": data.draw(st.sampled_from(["trials", "groups", "given"]))}}
    result, _ = read({"kind": kind, "file": str(folder / "mine.npz"), **more.get(kind, {})})
    if result is not None and kind != "series":
        assert np.array_equal(result.values, arrays["x"]) and np.isfinite(result.values).all()
        assert_parts(result, len(arrays["x"]))


@given(rows(), CLASSES, st.integers(0, 3), st.floats(0, 0.5), st.floats(0.01, 0.5))
def test_samples_are_drawn_into_disjoint_parts_with_their_copies(
    folder: Path, values: np.ndarray, classes: list[str], seed: int, validation: float, test: float
) -> None:
    np.savez(folder / "mine.npz", x=values, y=classes)
    shares = {"split_seed": seed, "validation": validation, "test": test}
    data, message = read({"kind": "rows", "file": str(folder / "mine.npz"), **shares})
    # Enough of each class, so that each part gets its share: no other reason to refuse it.
    if data is None:
        assert "samples" in message or "1 class" in message or "validation and test" in message
        return
    assert np.array_equal(data.values, values) and [data.names[one] for one in data.targets] == classes
    assert_parts(data, 40, equal(values))
    assert data.shared() == [0]
    assert set(data.targets[data.splits["train"]].tolist()) == set(range(len(data.names)))
    repeat, _ = read({"kind": "rows", "file": str(folder / "mine.npz"), **shares})
    assert repeat.digest() == data.digest()


@given(rows(), CLASSES, st.integers(2, 6), st.booleans(), st.integers(0, 2))
def test_each_sample_is_in_the_test_of_one_fold(
    folder: Path, values: np.ndarray, classes: list[str], folds: int, grouped: bool, first: int
) -> None:
    groups = np.arange(40) // 3
    np.savez(folder / "mine.npz", x=values, y=classes, **({"groups": groups} if grouped else {}))
    block = {"kind": "rows", "file": str(folder / "mine.npz"), "split": "groups" if grouped else "rows"}
    seeds = range(first * folds, (first + 1) * folds)
    result = [read({**block, "folds": folds, "split_seed": seed})[0] for seed in seeds]
    if any(data is None for data in result):
        return
    tested = np.concatenate([data.splits["test"] for data in result])
    assert sorted(tested.tolist()) == list(range(40))
    for data in result:
        assert_parts(data, 40, groups if grouped else equal(values))


@given(rows(), st.lists(st.sampled_from(["train", "val", "validation", "test"]), min_size=40, max_size=40))
def test_a_given_split_is_kept_and_what_its_parts_share_is_counted(
    folder: Path, values: np.ndarray, given_parts: list[str]
) -> None:
    np.savez(folder / "mine.npz", x=values, y=np.arange(40.0), split=given_parts)
    data, message = read(
        {"kind": "rows", "task": "regression", "split": "given", "file": str(folder / "mine.npz")}
    )
    if data is None:
        assert "split" in message and not {"train", "test"} <= set(given_parts)
        return
    names = np.array(["validation" if name == "val" else name for name in given_parts])
    assert all(np.array_equal(data.splits[name], np.flatnonzero(names == name)) for name in SPLITS)
    alike, order = equal(values), np.array([SPLITS.index(name) for name in names])
    before = [((alike == alike[i]) & (order < order[i])).any() for i in range(40)]
    assert data.shared()[0] >= sum(before)


@examples(2)
@given(st.data())
def test_a_table_is_read_as_it_is_or_refused_by_its_cell(folder: Path, data: st.DataObject) -> None:
    values = data.draw(rows())
    classes = ["cat", "dog"] * 20
    cells = [[*map(repr, row), name] for row, name in zip(values.tolist(), classes, strict=True)]
    names = [*(f"x{column}" for column in range(values.shape[1])), "animal"]
    wrong = data.draw(st.none() | st.tuples(st.integers(0, 39), st.integers(0, values.shape[1]), CELLS))
    if wrong is not None:
        row, column, cell = wrong
        cells[row][column] = cell
    separator = data.draw(st.sampled_from([",", ";", "\t"]))
    ending = data.draw(st.sampled_from(["\n", "\r\n"]))
    text = ending.join(separator.join(line) for line in [names, *cells]) + ending
    (folder / "mine.csv").write_text(data.draw(st.sampled_from(["", "\ufeff"])) + text, newline="")
    result, message = read({"kind": "table", "file": str(folder / "mine.csv"), "target": "animal"})
    if result is None:
        assert wrong is not None or "samples" in message, message
        return
    assert_parts(result, 40)
    same = np.arange(40) != (wrong[0] if wrong else -1)
    assert np.array_equal(result.values[same], values[same])
    assert [name for name, equal in zip(classes, same, strict=True) if equal] == [
        result.names[target] for target, equal in zip(result.targets, same, strict=True) if equal
    ]


@given(st.binary(max_size=300) | st.text(st.sampled_from("ab,;\t\n\"'1.5 -é"), max_size=200).map(str.encode))
def test_what_is_no_table_is_refused_by_its_name(folder: Path, content: bytes) -> None:
    (folder / "mine.csv").write_bytes(content)
    result, message = read({"kind": "table", "file": str(folder / "mine.csv"), "target": "a"})
    assert result is not None or message
