"""The ledger of claims: complete, strict, and open until a study decides."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from ketscale.analysis import claims
from ketscale.analysis.drawing.inputs import read_table
from ketscale.errors import UserError
from ketscale.files import write_csv
from tests.unit import records_factory as factory

LEDGER: dict[str, Any] = yaml.safe_load(claims.LEDGER.read_text())


def written(folder: Path, ledger: Any) -> Path:
    """The ledger as a file."""
    path = folder / "claims.yaml"
    path.write_text(yaml.safe_dump(ledger))
    return path


def test_the_ledger_has_every_claim_of_its_sections() -> None:
    expected = [f"0.{number}" for number in range(1, 17)] + [f"1.{number}" for number in range(1, 10)]
    expected += (
        [f"2.{number}" for number in range(1, 9)]
        + [f"3.{number}" for number in range(1, 8)]
        + [f"4.{number}" for number in range(1, 9)]
    )
    assert [claim["id"] for claim in claims.load()] == expected


def test_every_claim_without_a_study_says_what_it_needs() -> None:
    assert all(claim["needs"] for claim in claims.load() if claim["study"] is None)


def test_every_study_that_a_claim_names_exists() -> None:
    named = {claim["study"] for claim in claims.load() if claim["study"]}
    studies = set(yaml.safe_load((factory.ROOT / "config.yaml").read_text())["studies"])
    for path in (factory.ROOT / "workflow" / "studies").glob("*.yaml"):
        studies |= {f"{path.name}#{study}" for study in yaml.safe_load(path.read_text())["studies"]}
    assert named <= studies


def test_every_verdict_is_open() -> None:
    rows = claims.table(claims.load())
    assert {row["verdict"] for row in rows} == {"open"}
    numbers = {row["id"]: row["number"] for row in rows}
    assert numbers["1.4"] == "loop + parameter-shift over Lightning + adjoint: 2 to 10 x"
    assert all(set(row) == set(claims.COLUMNS) for row in rows)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("verdict", "refuted", "Additional properties"),
        ("id", "one", "does not match"),
        ("smallest_effect", None, "is not of type 'string'"),
        ("rule", {"supported": "always"}, "'refuted' is a required property"),
        ("numbers", [{"of": "x", "low": "two", "high": 3, "unit": "x"}], "'two' is not of type 'number'"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, key: str, value: Any, message: str) -> None:
    ledger = copy.deepcopy(LEDGER)
    ledger["claims"][2][key] = value
    with pytest.raises(UserError, match=message) as raised:
        claims.load(written(tmp_path, ledger))
    assert "claims.2" in str(raised.value)


def test_an_id_may_be_given_once(tmp_path: Path) -> None:
    ledger = {"claims": LEDGER["claims"][:1] * 2}
    with pytest.raises(UserError, match=r"two claims have the id 0\.1"):
        claims.load(written(tmp_path, ledger))


def test_a_missing_or_broken_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such claims ledger"):
        claims.load(tmp_path / "none.yaml")
    (tmp_path / "claims.yaml").write_text("claims: [")
    with pytest.raises(UserError, match="not YAML"):
        claims.load(tmp_path / "claims.yaml")


def test_ids_stay_text_in_the_table(tmp_path: Path) -> None:
    """0.10 is not 0.1."""
    write_csv(tmp_path / "claims.csv", claims.table(claims.load()), claims.COLUMNS)
    ids = read_table(tmp_path / "claims.csv")["id"].tolist()
    assert ids == [claim["id"] for claim in claims.load()]
    assert {"0.1", "0.10"} <= set(ids)
