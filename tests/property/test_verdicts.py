"""If nothing is different, a study says so: at most one of twenty finds something, however many comparisons it makes.

Five times KETSCALE_EXAMPLES studies of each sort are simulated, from fixed seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ketscale.analysis import comparison, metrics, verdicts
from ketscale.analysis.intervals import LEVEL
from ketscale.analysis.kinds.selection import Comparison, Configuration, judged
from ketscale.config import Metric
from tests.property import EXAMPLES

STUDIES = 5 * EXAMPLES
SHARE = Metric("accuracy", "accuracy", "share correct", "up")
ERROR = Metric("rmse", "rmse", "", "down")


def most(studies: int, share: float = 1 - LEVEL) -> int:
    """As many false findings as chance exceeds once in a thousand tests, where each study has one with this probability."""
    return int(stats.binom.isf(1e-3, studies, share))


def simulated(seeds: int, points: int, noise: str, studies: int) -> list[list[list[float]]]:
    """Log ratios of times that have one distribution: by study, point and seed. All points share a reference."""
    draw = np.random.default_rng([seeds, points, len(noise)])
    shape = (studies, points + 1, seeds)
    logs = draw.normal(0.0, 0.03, shape)
    if noise == "slow runs":
        logs += (draw.random(shape) < 1 / 7) * np.log(draw.uniform(1.2, 3.0, shape))
    elif noise == "heavy tails":
        logs = 0.03 * draw.standard_t(3, shape)
    return (logs[:, 1:] - logs[:, :1]).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("noise", ["equal", "slow runs", "heavy tails"])
@pytest.mark.parametrize(("seeds", "points"), [(3, 1), (3, 6), (5, 2), (16, 3)])
def test_equal_times_are_seldom_faster_or_slower(seeds: int, points: int, noise: str) -> None:
    wrong = 0
    for study in simulated(seeds, points, noise, STUDIES):
        least = comparison.pooled(study)
        ratios = [dict(enumerate(map(math.exp, logs))) for logs in study]
        values = [comparison.paired(of, dict.fromkeys(of, 1.0), least) for of in ratios]
        # Without a threshold, so that every difference counts.
        wrong += any(verdicts.holm([partial(verdicts.of_ratio, each, within=1.0) for each in values if each]))
    assert wrong <= most(STUDIES)


def side(name: str, metric: Metric, tests: dict[metrics.Seed, metrics.Scored]) -> Configuration:
    """A model by its tests."""
    return Configuration(point=(name,), metric=metric, task=(name, ""), model=name, tests=tests)


def accuracies(draw: np.random.Generator, seeds: int, samples: int) -> tuple[Any, Any]:
    """The right samples of two models that differ by their labels alone: each sample has its difficulty, each seed its luck."""
    difficulty = draw.normal(1.0, 1.0, samples)
    luck = draw.normal(0.0, 0.3, (2, seeds, 1))
    right = draw.random((2, seeds, samples)) < 1 / (1 + np.exp(-difficulty - luck))
    first, second = right.astype(float)
    return first, second


def of_rows(rows: Any) -> dict[metrics.Seed, metrics.Scored]:
    return {("set", seed): metrics.Scored(float(row.mean()), row) for seed, row in enumerate(rows)}


def false(matches: Sequence[Comparison]) -> bool:
    """Whether a study of these finds a better or a worse model."""
    return bool({match.verdict for match in judged(matches)} & {verdicts.BETTER, verdicts.WORSE})


@pytest.mark.parametrize(("seeds", "samples", "models"), [(3, 60, 1), (5, 200, 3), (10, 30, 2)])
def test_equal_models_are_seldom_better_or_worse(seeds: int, samples: int, models: int) -> None:
    draw, wrong = np.random.default_rng([seeds, samples]), 0
    for _ in range(STUDIES):
        pairs = [accuracies(draw, seeds, samples) for _ in range(models)]
        wrong += false(
            [
                Comparison(*(side(f"{at}", SHARE, of_rows(rows)) for rows in pair))
                for at, pair in enumerate(pairs)
            ]
        )
    assert wrong <= most(STUDIES)


@pytest.mark.parametrize("seeds", [3, 8])
def test_equal_errors_are_seldom_lower_or_higher(seeds: int) -> None:
    draw, wrong = np.random.default_rng(seeds), 0
    for values in np.exp(draw.normal(0.0, 0.2, (STUDIES, 2, 2, seeds))):
        matches = [
            Comparison(*(
                side(f"{at}", ERROR, {("set", seed): metrics.Scored(value) for seed, value in enumerate(one)})
                for one in pair
            ))
            for at, pair in enumerate(values.tolist())
        ]  # fmt: skip
        wrong += false(matches)
    assert wrong <= most(STUDIES)
