"""The file of baselines: what it is of, when it is fitted again, and that what is damaged is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ketscale import cli
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.jobs import baselines, prepared
from ketscale.problems.registry import FAMILIES
from tests import record_maker as maker

WHERE = Path("results/baselines/own.json")


def given(**settings: Any) -> dict[str, Any]:
    """A config of one run on sentences."""
    made = maker.given(one=maker.study())
    made["workloads"] = {"own": {"kind": "sentences", "seed": 1, "held_out": 1, "split_seed": 0, **settings}}
    made["simulators"] |= {
        "closed": {"device": "closed-form", "gradient": "backprop", "batching": "broadcast"}
    }
    axes = {
        "workload": "own", "model": "superposition_transformer", "layers": 1, "simulator": "closed",
        "protocol": "parity", "seed": 0, "batch": 2,
    }  # fmt: skip
    made["studies"]["one"] = maker.study(**axes) | {"kind": "parity"}
    return made


def fit(**settings: Any) -> Config:
    """What Snakemake calls, with these settings of the workload."""
    Path("config.yaml").write_text(json.dumps(given(**settings)))
    assert cli.main(["prepare", "own"]) == 0
    assert cli.main(["baseline", "own"]) == 0
    return Config.of(given(**settings), FAMILIES)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_file_is_of_the_data_and_says_what_was_reached(capsys: pytest.CaptureFixture[str]) -> None:
    config = fit()
    found = baselines.read(WHERE)
    assert found is not None and [each.name for each in found.results] == ["most frequent word", "bigram"]
    assert found.features == prepared.features_hash(prepared.manifest(config, Path("results"), "own"))
    assert baselines.path(config, Path("results"), "own") == WHERE
    assert "own: most frequent word: 0 on the test" in capsys.readouterr().out
    before = WHERE.read_bytes()
    fit()
    assert WHERE.read_bytes() == before


def test_other_data_are_fitted_again_and_the_same_are_not() -> None:
    config = fit()
    assert not baselines.outdated(config, Path("results"), "own")
    hashed = baselines.read(WHERE)
    Path("config.yaml").write_text(json.dumps(given(split_seed=1)))
    assert cli.main(["prepare", "own"]) == 0
    assert baselines.outdated(config, Path("results"), "own")
    other = fit(split_seed=1)
    assert not baselines.outdated(other, Path("results"), "own")
    again = baselines.read(WHERE)
    assert hashed and again and hashed.hash != again.hash


def test_what_lacked_a_package_is_tried_again_when_packages_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, missing = fit(), baselines.Baseline("bigram", why="needs a package")
    features = prepared.features_hash(Path("results/features/own/features.json")) or ""
    with monkeypatch.context() as patch:
        patch.setattr(baselines, "PACKAGES", ("numpy",))
        baselines.write(WHERE, features, [])
    assert not baselines.outdated(config, Path("results"), "own")
    baselines.write(WHERE, features, [missing])
    assert not baselines.outdated(config, Path("results"), "own")
    with monkeypatch.context() as patch:
        patch.setattr(baselines, "PACKAGES", ("numpy",))
        baselines.write(WHERE, features, [missing])
    assert baselines.outdated(config, Path("results"), "own")


@pytest.mark.parametrize(
    "change",
    [lambda text: text.replace('"test": 0.0', '"test": 1.0'), lambda text: text[:-20]],
    ids=["a result", "cut off"],
)
def test_what_is_damaged_is_refused_and_fitted_again(change: Any) -> None:
    config = fit()
    assert change(WHERE.read_text()) != WHERE.read_text()
    WHERE.write_text(change(WHERE.read_text()))
    with pytest.raises(UserError, match=r"own\.json: .*; delete it, and run the rule baseline again"):
        baselines.read(WHERE)
    assert baselines.outdated(config, Path("results"), "own")
