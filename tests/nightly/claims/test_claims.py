"""The ledger of claims: strict; each reading is of runs of its study, and each verdict of readings that are made."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from benchmarks.claims.ledger import LEDGER, MORE, REFUTED, SUPPORTED, Claim, Spans, load
from benchmarks.claims.readings import TESTED, _planned, groups
from ketscale.analysis.columns import RUNS
from ketscale.analysis.figures import SPANS
from ketscale.analysis.points import point_of
from ketscale.errors import UserError
from ketscale.grid import BACKENDS
from tests.nightly.claims import factory

BY_ID = {claim.id: claim for claim in load()}
READ = [claim for claim in BY_ID.values() if claim.readings]
# The study has one of two simulators (the other one needs more memory at 10 qubits than most hosts have).
INCOMPLETE = {"10 qubits over 6 (simulator default.qubit)"}

# Their studies measure a part of what they are about: two ranks, whole processes, one pulse for all tasks.
PARTS = ("3.4", "3.12", "4.9")


@pytest.mark.parametrize("claim", READ, ids=lambda claim: claim.id)
def test_every_side_of_a_reading_is_one_point_of_its_study(claim: Claim) -> None:
    config = factory.config_of(claim)
    nothing, read = factory.evidence(config, []), set()
    for asked in claim.readings:
        found = list(groups(claim, asked, nothing))
        assert found, asked.name
        for name, where in found:
            for side in (asked.of, *([] if asked.over is None else [asked.over])):
                runs = _planned(claim, nothing, {**where, **side})
                points = {point_of(run) for run in runs}
                assert len(points) == 1 or (name in INCOMPLETE and not points), (name, side)
                read.update(runs)
    for name in claim.studies:
        (study,) = (study for study in config.studies if study.name == name.rpartition("#")[2])
        assert read & set(study.runs)
    # Cores are no GPUs, and a part is not the whole; both say so.
    devices = {BACKENDS[run.backend].device for run in read}
    cores = "GPU" in claim.hardware and "gpu" not in devices
    assert bool(claim.proxy) == (cores or claim.id in PARTS)


@pytest.mark.parametrize("claim", READ, ids=lambda claim: claim.id)
def test_regions_are_of_readings_that_are_made_of_columns_and_spans(claim: Claim) -> None:
    columns = [column.name for column in RUNS.columns(factory.config_of(claim))]
    for asked in claim.readings:
        if isinstance(asked.quantity, Spans):
            assert set(asked.quantity.spans) <= set(SPANS)
        else:
            assert asked.quantity in (*columns, TESTED)
    names = factory.names(claim)
    assert len(names) == len(set(names))
    assert set(claim.regions) == {SUPPORTED, REFUTED} | ({MORE} if claim.rule.more else set())
    for regions in claim.regions.values():
        if isinstance(regions, dict):
            assert all(any(name.startswith(each) for name in names) for each in regions)


@pytest.mark.parametrize("claim", READ, ids=lambda claim: claim.id)
def test_the_words_of_a_rule_have_its_numbers(claim: Claim) -> None:
    words = f"{claim.rule.supported} {claim.rule.refuted} {claim.rule.more}"
    for regions in claim.regions.values():
        for region in regions.values() if isinstance(regions, dict) else [regions]:
            for end in region:
                shown = (
                    () if end is None else (f"{end:g}", f"{end:,.0f}", f"{100 * end:g}", f"{1000 * end:g} ms")
                )
                assert end is None or any(each in words for each in shown), (end, words)


def test_a_wrong_entry_is_named(tmp_path: Path) -> None:
    ledger: dict[str, Any] = yaml.safe_load(LEDGER.read_text())
    first, _, third, *_ = ledger["claims"]
    for entries, message in (
        ([{**third, "verdict": "refuted"}], r"claim 0\.3: give it once"),
        ([first, first], r"claim 0\.1: give it once"),
        ([{**first, "colour": "red"}], r"claim 0\.1: .*colour"),
    ):
        (tmp_path / "claims.yaml").write_text(yaml.safe_dump({**ledger, "claims": entries}))
        with pytest.raises(UserError, match=message):
            load(tmp_path / "claims.yaml")


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
    moved = [
        [gate[k, k] * shards[k][c] + gate[k, 1 - k] * shards[1 - k][c] for c in range(2)] for k in range(2)
    ]
    np.testing.assert_allclose(np.block(moved), np.kron(gate, np.eye(4)) @ columns, rtol=0, atol=1e-14)


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


def test_the_documented_example_is_a_claim(tmp_path: Path) -> None:
    page = (factory.ROOT / "docs" / "adding.md").read_text().split("## A claim and its rule")[1]
    (tmp_path / "claims.yaml").write_text(page.split("```yaml\n")[1].split("```")[0])
    (claim,) = load(tmp_path / "claims.yaml")
    test_every_side_of_a_reading_is_one_point_of_its_study(claim)
    test_regions_are_of_readings_that_are_made_of_columns_and_spans(claim)
