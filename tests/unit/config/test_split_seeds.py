"""Several splits of the same data are several workloads, which a study names by one name."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.problems.registry import FAMILIES
from tests.own_files import ANIMALS, VECTORS, npz, study_settings

MINE = {"kind": "rows", "file": "a.npz"}


def of(block: dict[str, Any], **workloads: Any) -> Config:
    result = study_settings(block)
    result["workloads"] |= workloads
    return Config.of(result, FAMILIES)


def test_each_seed_is_a_workload_and_a_study_has_them_all() -> None:
    result = of({**MINE, "split_seeds": [0, 7]})
    assert list(result.workloads) == ["mine.s0", "mine.s7"]
    assert [run.workload for run in result.runs] == ["mine.s0", "mine.s7"]
    assert result.splits == {"mine.s0": "mine", "mine.s7": "mine"}
    for seed in (0, 7):
        single = of({**MINE, "split_seed": seed})
        assert result.workload_text(f"mine.s{seed}") == single.workload_text("mine")
        # The path alone is another.
        (run,) = single.runs
        one = {
            **result.settings(next(r for r in result.runs if r.workload == f"mine.s{seed}")).content,
            "run": None,
        }
        assert one == {**single.settings(run).content, "run": None}


def test_a_point_may_name_one_split_or_all() -> None:
    block = study_settings({**MINE, "split_seeds": [0, 1]})
    axes = block["studies"]["s"]["axes"]
    del axes["workload"]
    block["studies"]["s"]["points"] = [{"workload": ["mine"], "seed": 0}, {"workload": "mine.s1", "seed": 5}]
    values = [(run.workload, run.seed) for run in Config.of(block, FAMILIES).runs]
    assert sorted(values) == [("mine.s0", 0), ("mine.s1", 0), ("mine.s1", 5)]


def test_what_a_report_is_made_for_is_the_same_config() -> None:
    result = of({**MINE, "split_seeds": [0, 1]})
    repeat = Config.of(json.loads(result.text), FAMILIES, placed=False)
    assert repeat.splits == result.splits and repeat.runs == result.runs and repeat.text == result.text
    assert "a.npz" not in result.text


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({**MINE, "folds": 2, "split_seeds": [1, 2]}, "workloads.mine.split_seeds: 2 folds need whole blocks"),
        ({**MINE, "split_seeds": [0], "split_seed": 0}, "split_seed gives one split"),
        ({**MINE, "split_seeds": [0], "split": "given"}, "workloads.mine.split_seed"),
        ({"kind": "table", "file": "a", "target": "y", "split_column": "part", "split_seeds": [0]}, "workloads.mine.split_seed"),
    ],
)  # fmt: skip
def test_splits_that_cannot_be_are_refused(block: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as raised:
        of(block)
    assert message in str(raised.value)


def test_a_workload_with_the_name_of_a_split_is_refused() -> None:
    with pytest.raises(UserError, match=r"workloads\.mine\.s0"):
        of({**MINE, "split_seeds": [0]}, **{"mine.s0": MINE})


def test_splits_of_the_same_file_differ(tmp_path: Path) -> None:
    block = {"kind": "rows", "file": npz(tmp_path, x=VECTORS, y=ANIMALS), "split_seeds": [0, 1]}
    result = of(copy.deepcopy(block))
    one, other = (workload.load(None) for _, workload in result.workloads.values())  # type: ignore[attr-defined]
    assert one.splits["test"].tolist() != other.splits["test"].tolist()
    assert one.values.tolist() == other.values.tolist()
