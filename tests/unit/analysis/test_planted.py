"""The world with known truth: what is planted is what is drawn, and what the report says of it is what was forecast."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from ketscale.measure.right import unpacked
from tests.unit.analysis import planted

# Enough of everything for one study to show its truth.
LARGE = planted.World(
    "", splits=1, seeds=400, training=100, validation=1, test=1000, effects=planted.Effects(training=0.0)
)


def right(world: planted.World, advantage: float) -> dict[str, np.ndarray]:
    """Which samples of the test (columns) each seed (rows) gets right, by model."""
    found = planted.drawn(world, advantage, np.random.default_rng(0))
    rows: dict[str, list[list[int]]] = {}
    for run in sorted(found):
        case = found[run].right
        assert case is not None
        rows.setdefault(run.model, []).append([ones for ones, _ in unpacked(case)])
    return {model: np.array(table, float) for model, table in rows.items()}


def test_the_advantage_that_is_planted_is_drawn_with_the_variances_of_the_forecast() -> None:
    tables = right(LARGE, 0.05)
    apart = tables["vqc"] - tables["mlp"]
    v = planted.Variances.of(LARGE.effects, 0.05)
    seeds, samples = apart.shape
    spread = sqrt((v.seed + v.cell) / seeds + v.sample / samples + v.rest / apart.size)
    assert apart.mean() == pytest.approx(0.05, abs=4 * spread)
    assert tables["mlp"].mean() == pytest.approx(planted.SHARE, abs=0.04)
    assert apart.mean(0).var() == pytest.approx(v.sample + v.rest / seeds, rel=0.2)
    assert apart.mean(1).var() == pytest.approx(v.seed + v.cell + v.rest / samples, rel=0.3)
    assert apart.var() == pytest.approx(v.sample + v.seed + v.cell + v.rest, rel=0.1)


def test_training_sets_that_overlap_are_alike() -> None:
    """The mean over splits varies by what they share of training, beyond what independent ones would."""
    world = planted.World("", splits=4, seeds=2, training=700, validation=1, test=299,
                          effects=planted.Effects(0.0, 0.0, 0.3, 0.0, 0.0))  # fmt: skip
    draws = [planted.drawn(world, 0.0, np.random.default_rng(number)) for number in range(150)]
    of_split = np.array(
        [
            [[one[run].test["accuracy"] for run in sorted(one) if (run.model, run.workload) == ("vqc", f"set0.s{split}")] for split in range(4)]
            for one in draws
        ]
    ).mean(2)  # fmt: skip
    within = np.cov(of_split.T)
    alike = within[~np.eye(4, dtype=bool)].mean() / (np.diag(within).mean() - 0.16 / 299 / 2)
    assert alike == pytest.approx(0.7, abs=0.15)


@pytest.mark.parametrize(("advantage", "studies"), [(0.0, 40), (0.05, 40)])
def test_better_is_said_as_often_as_forecast(advantage: float, studies: int) -> None:
    expected = planted.power(planted.FIVE, advantage)
    found = planted.told(planted.FIVE, advantage, studies).each
    assert found == pytest.approx(expected, abs=3 * sqrt(max(expected * (1 - expected), 0.02) / studies))


def test_the_forecast_grows_with_the_advantage_and_falls_with_the_number_of_data_sets() -> None:
    one = [planted.power(planted.FIVE, advantage) for advantage in (0.0, 0.02, 0.05, 0.15)]
    six = [planted.power(planted.SETS, advantage) for advantage in (0.0, 0.02, 0.05, 0.15)]
    assert one == sorted(one) and one[-1] > 0.99
    assert all(few >= many for few, many in zip(one, six, strict=True))
    whole = [planted.power_for_all(planted.SETS, advantage) for advantage in (0.0, 0.02, 0.05, 0.15)]
    assert whole == sorted(whole) and whole[0] == pytest.approx(0.5**6) and whole[-1] > 0.99
