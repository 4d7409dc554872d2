"""How often intervals of accuracies hold the truth, by simulation: `python -m tests.unit.analysis.coverage` prints docs' table.

A seed s gets sample i right if level + seed_s + sample_i + interaction_i + noise > 0, with normal effects and logistic noise:
the logits of seeds differ by a standard deviation of up to 0.5, those of samples by up to 4. Every simulated table has new
seeds and new samples.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from ketscale.analysis.metrics import Scored, Seed, difference, estimate
from ketscale.config import Metric

Shares, Effects = tuple[float, float], tuple[float, float, float]
ACCURACY = Metric("accuracy", "accuracy", "share correct", "up")
SEEDS, SAMPLES = (3, 5, 8, 30), (9, 27, 180, 1000)
# Accuracies of a model and its control.
SHARES = ((0.5, 0.8), (0.75, 0.7), (0.95, 0.95), (0.97, 0.9), (0.99, 0.99))
# Standard deviations of the logits of seeds, of samples for both models, and of samples for each model.
EFFECTS = tuple(
    (seed, *sample) for seed in (0.0, 0.5) for sample in ((0.0, 0.0), (1.5, 0.7), (4.0, 0.5), (4.0, 2.0))
)
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(60)


class Covered(NamedTuple):
    """How often an interval held the truth, and its mean width."""

    share: float
    width: float


def level(share: float, deviation: float) -> float:
    """The level at which so large a share is right, if logits vary by this standard deviation."""
    weights = _WEIGHTS / _WEIGHTS.sum()
    return float(brentq(lambda mean: weights @ expit(mean + deviation * _NODES) - share, -80, 80))


def samples_of(
    seeds: int,
    samples: int,
    shares: Shares,
    effects: Effects,
    draw: np.random.Generator,
    nested: bool = False,
) -> Iterator[dict[Seed, Scored]]:
    """The tests of a model and of its control; nested: each seed has samples of its own, a fold, which share its effect."""
    of_seed, of_both, of_one = effects
    rows = seeds if nested else 1
    common = of_both * draw.normal(size=(rows, samples)) + (
        of_seed * draw.normal(size=(rows, 1)) if nested else 0
    )
    for share in shares:
        own = of_one * draw.normal(size=(rows, samples)) + of_seed * draw.normal(size=(seeds, 1))
        deviation = float(np.sqrt(of_seed**2 * (1 + nested) + of_both**2 + of_one**2))
        right = draw.random((seeds, samples)) < expit(level(share, deviation) + common + own)
        yield {
            ("", seed): Scored(row.mean(), row.astype(float), seed if nested else None)
            for seed, row in enumerate(right)
        }


def coverage(
    seeds: int, samples: int, shares: Shares, effects: Effects, repeats: int, **more: Any
) -> tuple[Covered, Covered]:
    """The coverage of the interval of a model's accuracy, and of its difference from the control."""
    draw, held, widths = np.random.default_rng(1), np.zeros(2), np.zeros(2)
    truths = np.array([shares[0], shares[0] - shares[1]])
    for _ in range(repeats):
        one, other = samples_of(seeds, samples, shares, effects, draw, **more)
        values = [estimate(one, ACCURACY), difference(one, other, ACCURACY)]
        ends = np.array([(each.low, each.high) for each in values if each], float).T
        held += (ends[0] <= truths + 1e-12) & (truths <= ends[1] + 1e-12)
        widths += ends[1] - ends[0]
    return tuple(Covered(*pair) for pair in zip(held / repeats, widths / repeats, strict=True))  # type: ignore[return-value]


def main(repeats: int) -> None:
    """Print a table: for each number of seeds and samples the least and the mean coverage, and the mean width."""
    print("| seeds | samples | accuracy: least | mean | width | difference: least | mean | width |")
    print("|---|---|---|---|---|---|---|---|")
    for seeds in SEEDS:
        for samples in SAMPLES:
            few = repeats if seeds * samples < 9000 else (repeats + 1) // 2
            result = np.array(
                [coverage(seeds, samples, shares, effects, few) for shares in SHARES for effects in EFFECTS]
            )
            least, mean = result[..., 0].min(0), result.mean(0)
            cells = (
                f"{100 * least[n]:.1f} % | {100 * mean[n, 0]:.1f} % | {100 * mean[n, 1]:.1f}" for n in (0, 1)
            )
            print(f"| {seeds} | {samples} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
