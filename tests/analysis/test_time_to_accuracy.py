"""Accuracy against time: seeds that never reach a level count, and unknown times are not guessed."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from ketscale.analysis import catalogue
from ketscale.analysis.kinds.accuracy import Part
from ketscale.analysis.overviews import time_to_accuracy
from ketscale.analysis.overviews.time_to_accuracy import Progress, progress
from ketscale.config import Metric
from ketscale.grid import POINT
from tests import records_factory as factory

SHARE = Metric("accuracy", "accuracy", "share correct", "up")
ERROR = Metric("infidelity", "infidelity", "", "down")


def history(metric: Metric, *seeds: list[tuple[float | None, float | None]]) -> pd.DataFrame:
    """The history of one point: of each seed, the seconds and the metric of its epochs."""
    rows = [
        {**dict.fromkeys(POINT, "a"), "curve": "a", "seed": seed, "epoch": epoch, "epoch_s": seconds, f"validation_{metric.name}": value}
        for seed, epochs in enumerate(seeds)
        for epoch, (seconds, value) in enumerate(epochs)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def trained(metric: Metric, **curves: list[list[tuple[float | None, float | None]]]) -> Progress:
    """The training of models, each with the seconds and the metric of its seeds' epochs."""
    epochs = [progress(history(metric, *seeds), metric).assign(curve=name) for name, seeds in curves.items()]
    part = Part("s", "w", metric, pd.DataFrame(), 0)
    return Progress(part, pd.concat(epochs), {name: len(seeds) for name, seeds in curves.items()}, 0)


def test_times_add_up_and_the_best_so_far_stays() -> None:
    found = progress(history(SHARE, [(1, 0.5), (2, None), (4, 0.25), (8, 0.75)]), SHARE)
    assert found["trained_s"].tolist() == [1, 3, 7, 15]
    assert found["best"].tolist() == [0.5, 0.5, 0.5, 0.75]
    assert progress(history(ERROR, [(1, 0.5), (1, 0.25), (1, 1.0)]), ERROR)["best"].tolist() == [
        0.5,
        0.25,
        0.25,
    ]


def test_from_an_epoch_of_unknown_time_on_nothing_is_known() -> None:
    found = progress(history(SHARE, [(1, 0.5), (None, 0.6), (1, 0.7)], [(3, 0.1), (3, 0.1)]), SHARE)
    assert found["trained_s"].fillna(-1).tolist() == [1, -1, -1, 3, 6]


def test_a_seed_that_never_reaches_a_level_takes_forever() -> None:
    found = trained(SHARE, a=[[(1, 0.5), (1, 0.8)], [(5, 0.5), (5, 0.5)], [(2, 0.9)]])
    assert sorted(found.reached("a", 0.8)) == [2, 2, math.inf]
    assert sorted(found.reached("a", 0.5)) == [1, 2, 5]
    assert sorted(found.reached("a", 0.95)) == [math.inf] * 3
    down = trained(ERROR, a=[[(1, 0.5), (1, 0.125)], [(3, 0.5), (1, 0.25)]])
    assert sorted(down.reached("a", 0.25)) == [2, 4]


def test_the_level_is_the_one_that_the_median_seed_of_every_model_reaches() -> None:
    both = trained(SHARE, good=[[(1, 0.9)], [(1, 0.8)]], bad=[[(1, 0.7)], [(1, 0.75)]])
    assert both.target() == 0.7, "of two seeds both are needed"
    assert max(both.reached("good", 0.7)) < math.inf
    # A model whose seeds failed reaches nothing, and says nothing of a level.
    assert Progress(both.part, both.epochs, {**both.seeds, "failed": 2}, 0).target() == 0.7
    assert trained(ERROR, a=[[(1, 0.5)], [(1, 0.2)], [(1, 0.1)]]).target() == 0.2, (
        "of three seeds two are enough"
    )
    assert Progress(both.part, both.epochs, {"failed": 2}, 0).target() is None


@pytest.mark.parametrize("failed", [0, 1])
def test_the_figure_says_which_seeds_never_do(
    tmp_path: Path, failed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = factory.small_config({"accuracy": factory.default_study()["studies"]["accuracy"]})
    lost = [run for run in config.runs if run.model == "vqc" and run.seed < failed]
    factory.write_all(config, tmp_path, lambda run: {"status": "diverged"} if run in lost else {})
    factory.collect(config, tmp_path)
    monkeypatch.setattr(catalogue, "figures_of", lambda config: (time_to_accuracy.TIME_TO_ACCURACY,))
    factory.draw(config, tmp_path)
    drawn = pd.read_csv(tmp_path / "figures/time_to_accuracy.csv")
    targets = drawn[drawn["target"].notna()]
    # The factory's seeds end at these accuracies, both models alike; the median seed is 1, or of those left 2.
    seed = 1 + failed
    assert targets["target"].tolist() == pytest.approx(
        [1 - (2.3 * 0.85 ** (30 - 2 * seed) + 0.1 + 0.02 * seed) / 3] * 6, abs=1e-4
    )
    never = targets["reached_s"].isna().groupby(targets["curve"]).sum()
    assert never.to_dict() == {"vqc": 1, "mlp": 1 - failed}
    # Epochs of 0.2 s, 30 at most.
    assert targets["reached_s"].dropna().between(0.2, 6.0).all()


def test_a_median_that_most_seeds_never_reach_is_none() -> None:
    assert time_to_accuracy.words_of(math.inf, 4, 8) == "no median; 4 of 8 seeds never"
    assert time_to_accuracy.words_of(2.1, 1, 3) == "median 2.1 s; 1 of 3 seeds never"
