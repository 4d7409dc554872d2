"""The ledger of claims: strict, with a rule for each claim that reads its thresholds, studies and quantities."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from benchmarks import claims
from benchmarks.claims import rules
from benchmarks.claims.ledger import Claim
from benchmarks.claims.readings import LOSSES, SAME_LOSSES, TESTED, Spans
from ketscale.analysis.columns import RUNS
from ketscale.analysis.figures import SPANS
from ketscale.errors import UserError
from tests.nightly.claims import factory

BY_ID = {claim.id: claim for claim in claims.load()}
MEASURED = [claim for claim in BY_ID.values() if not claim.verdict]
# The study has one of two simulators (the other one needs more memory at 10 qubits than most hosts have).
INCOMPLETE = {"0.7"}


@pytest.mark.parametrize("claim", MEASURED, ids=lambda claim: claim.id)
def test_every_threshold_is_read(claim: Claim) -> None:
    read = {end for ends in factory.bounds(claim).values() for end in ends}
    assert read == {end for name in claim.thresholds if name != SAME_LOSSES for end in claim.limits(name)}


@pytest.mark.parametrize("claim", MEASURED, ids=lambda claim: claim.id)
def test_every_side_of_a_reading_is_one_point_of_its_study(claim: Claim) -> None:
    readings = factory.asked(claim)
    for reading in readings:
        for runs in reading.sides:
            points = {run.name.rpartition("/")[0] for run in runs}
            assert len(points) == 1 or (claim.id in INCOMPLETE and not points), (reading.name, points)
    config = factory.config_of(claim)
    read = {run for reading in readings for runs in reading.sides for run in runs}
    for name in factory.names_of(claim):
        (study,) = (study for study in config.studies if study.name == name)
        assert read & set(study.runs)


@pytest.mark.parametrize("claim", MEASURED, ids=lambda claim: claim.id)
def test_every_quantity_is_a_column_or_a_span(claim: Claim) -> None:
    columns = [column.name for column in RUNS.columns(factory.config_of(claim))]
    for reading in factory.asked(claim):
        if isinstance(reading.quantity, Spans):
            assert set(reading.quantity.names) <= set(SPANS)
        else:
            assert reading.quantity in (*columns, LOSSES, TESTED)


def test_every_claim_has_a_rule_or_a_reason() -> None:
    ruled = {name for name in vars(rules) if name.startswith("claim_")}
    assert ruled == {f"claim_{claim.id.replace('.', '_')}" for claim in MEASURED}


def test_a_wrong_entry_is_named(tmp_path: Path) -> None:
    ledger: dict[str, Any] = yaml.safe_load(claims.LEDGER.read_text())
    first, _, third, *_ = ledger["claims"]
    for entries, message in (
        ([{**third, "verdict": "refuted"}], r"claim 0\.3.*give verdict and reason, or neither"),
        ([first, first], r"two claims have the id 0\.1"),
    ):
        (tmp_path / "claims.yaml").write_text(yaml.safe_dump({**ledger, "claims": entries}))
        with pytest.raises(UserError, match=message):
            claims.load(tmp_path / "claims.yaml")


def test_a_register_in_two_memories_has_the_state_of_one() -> None:
    """Claim 0.12: a gate on the qubit that numbers the memories exchanges their halves, and is exact."""
    random = np.random.default_rng(0)
    qubits = 4
    state = random.normal(size=2**qubits) + 1j * random.normal(size=2**qubits)
    memories = [half.copy() for half in np.split(state, 2)]
    for qubit in (0, 2, 0, 3, 1):
        gate, _ = np.linalg.qr(random.normal(size=(2, 2)) + 1j * random.normal(size=(2, 2)))
        left, right = np.eye(2**qubit), np.eye(2 ** (qubits - qubit - 1))
        state = np.kron(np.kron(left, gate), right) @ state
        if qubit == 0:
            received = memories[::-1]
            memories = [gate[k, k] * memories[k] + gate[k, 1 - k] * received[k] for k in range(2)]
        else:
            local = np.kron(np.kron(np.eye(2 ** (qubit - 1)), gate), right)
            memories = [local @ memory for memory in memories]
    np.testing.assert_allclose(np.concatenate(memories), state, rtol=0, atol=1e-14)


def test_columns_and_halves_are_sharded_along_two_axes() -> None:
    """Claim 2.11: two shards of columns by two halves of their amplitudes, which a gate on the first qubit exchanges."""
    random = np.random.default_rng(1)
    columns = random.normal(size=(8, 6)) + 1j * random.normal(size=(8, 6))
    gate, _ = np.linalg.qr(random.normal(size=(2, 2)) + 1j * random.normal(size=(2, 2)))
    shards = [[part.copy() for part in np.split(half, 2, axis=1)] for half in np.split(columns, 2)]
    shifted = [
        [gate[k, k] * shards[k][c] + gate[k, 1 - k] * shards[1 - k][c] for c in range(2)] for k in range(2)
    ]
    np.testing.assert_allclose(np.block(shifted), np.kron(gate, np.eye(4)) @ columns, rtol=0, atol=1e-14)


def test_the_shift_rule_is_that_of_a_probability_and_not_of_its_logarithm() -> None:
    """Claim 3.8, for P = cos(t / 2)^2: the derivative of -ln P is tan(t / 2)."""
    at, quarter = 0.9, math.pi / 2

    def probability(angle: float) -> float:
        return math.cos(angle / 2) ** 2

    up, down = probability(at + quarter), probability(at - quarter)
    derivative = math.tan(at / 2)
    of_probability = -(up - down) / 2 / probability(at)
    of_loss = (-math.log(up) + math.log(down)) / 2
    assert of_probability == pytest.approx(derivative, rel=1e-12)
    assert abs(of_loss / derivative - 1) > 0.5


def test_the_documented_example_is_a_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (factory.ROOT / "docs" / "adding.md").read_text().split("## A claim and its rule")[1]
    entry, function = (page.split(f"```{language}\n")[1].split("```")[0] for language in ("yaml", "python"))
    (tmp_path / "claims.yaml").write_text(entry)
    (claim,) = claims.load(tmp_path / "claims.yaml")
    result = dict(vars(rules))
    exec(function, result)
    monkeypatch.setattr(rules, "claim_5_1", result["claim_5_1"], raising=False)
    for reading in factory.asked(claim):
        assert all(len({run.name.rpartition("/")[0] for run in runs}) == 1 for runs in reading.sides)
    assert {name for name in claim.thresholds if name != SAME_LOSSES} == {"claimed", "refuted"}
