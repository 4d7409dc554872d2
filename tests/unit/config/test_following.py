"""Sizes that follow the data: `qubits: features` is as many qubits as a workload has features."""

from __future__ import annotations

import copy
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.problems.registry import FAMILIES
from tests import own_files


def saved(path: Path, **arrays: Any) -> str:
    """The path of a file with these arrays."""
    np.savez(path, **arrays)
    return str(path)


@pytest.fixture
def two(tmp_path: Path) -> dict[str, Any]:
    """A config with two workloads, `wide` of 5 features and `slim` of 3, and one study of both."""
    labels = np.arange(40) % 2
    given = own_files.given(
        {"kind": "arrays", "file": saved(tmp_path / "wide.npz", x=np.ones((40, 5)), y=labels)}
    )
    given["workloads"] = {
        "wide": given["workloads"]["mine"],
        "slim": {"kind": "arrays", "file": saved(tmp_path / "slim.npz", features=np.ones((40, 3)), y=labels)},
    }
    given["studies"]["s"]["axes"] |= {"workload": ["wide", "slim"], "qubits": "features"}
    return given


def with_axes(given: dict[str, Any], **axes: Any) -> dict[str, Any]:
    changed = copy.deepcopy(given)
    changed["studies"]["s"]["axes"] |= axes
    return changed


def sizes(given: dict[str, Any], **how: Any) -> list[tuple[str, str]]:
    return [(run.workload, run.size) for run in Config.of(given, FAMILIES, **how).runs]


def test_each_workload_has_as_many_qubits_as_features(two: dict[str, Any]) -> None:
    assert sizes(two) == [("wide", "q5-l1"), ("slim", "q3-l1")]


def test_numbers_stand_beside_the_word_and_points_may_follow_too(two: dict[str, Any]) -> None:
    assert sizes(with_axes(two, qubits=[2, 3, "features"])) == [
        ("wide", "q2-l1"), ("wide", "q3-l1"), ("wide", "q5-l1"), ("slim", "q2-l1"), ("slim", "q3-l1"),
    ]  # fmt: skip
    study = two["studies"]["s"]
    del study["axes"]["qubits"]
    rest = {"simulator": "none", "model": "mlp", "qubits": 0, "layers": 0}
    study["points"] = [{"qubits": "features"}, rest]
    assert sizes(two) == [("wide", "q5-l1"), ("slim", "q3-l1"), ("wide", "q0-l0"), ("slim", "q0-l0")]


def test_the_text_has_the_numbers_so_that_a_report_needs_no_file(two: dict[str, Any], tmp_path: Path) -> None:
    config = Config.of(two, FAMILIES)
    for file in tmp_path.iterdir():
        file.unlink()
    again = Config.of(json.loads(config.text), FAMILIES, placed=False)
    assert again.runs == config.runs
    assert again.text == config.text
    assert '"features"' not in json.dumps(json.loads(config.text)["studies"])


def test_only_the_head_of_a_file_is_read(two: dict[str, Any], tmp_path: Path) -> None:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"shape": (10**12, 4), "fortran_order": False, "descr": "<f8"})
    with zipfile.ZipFile(tmp_path / "slim.npz", "w") as file:
        file.writestr("x.npy", head.getvalue())
    assert ("slim", "q4-l1") in sizes(two)


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"workload": "scans"}, r"studies\.s"),
        ({"workload": "lost"}, r"workloads\.lost\.file"),
        ({"workload": "flat"}, r"flat\.npz: shape \(40,\) is not that of features"),
        ({"workload": "none"}, r"none\.npz: has no array called features or x"),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_refused_in_words(
    two: dict[str, Any], tmp_path: Path, axes: dict[str, Any], said: str
) -> None:
    two["workloads"] |= {
        "scans": {"kind": "digits", "split_seed": 0, **own_files.NETWORK},
        "lost": {"kind": "arrays", "file": str(tmp_path / "lost.npz")},
        "flat": {
            "kind": "arrays",
            "file": saved(tmp_path / "flat.npz", x=np.ones(40), y=np.ones(40)),
        },
        "none": {"kind": "arrays", "file": saved(tmp_path / "none.npz", y=np.ones(40))},
        "many": {"kind": "arrays", "file": saved(tmp_path / "many.npz", x=np.ones((40, 31)))},
    }
    with pytest.raises(UserError, match=said):
        Config.of(with_axes(two, **axes), FAMILIES)
