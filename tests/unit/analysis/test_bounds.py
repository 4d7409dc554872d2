"""Times from a machine that others used: what they can have been alone, and what decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ketscale.analysis import points, verdicts
from ketscale.analysis.comparison import Times
from ketscale.analysis.points import BOUNDED, BUSY
from ketscale.grid import Run
from tests import records_factory as factory
from tests.record_maker import others
from tests.unit.analysis.test_speed import ranks, row

STEP = {"median_s": 1.0, "q25_s": 0.9, "q75_s": 1.2, "mean_s": 1.1, "count": 9}


def least(tmp_path: Path, preempted: int | None = None, **quiet: Any) -> Any:
    """The least time of a run, read from its record."""
    axes = factory.point(seed=0)
    config = factory.small_config({"s": {"kind": "strong", "question": "?", "axes": axes}}, partial=True)
    (run,) = config.runs
    unknown = {"cpus": None} if quiet.pop("unknown", False) else {}
    threads = quiet.pop("threads", 1)
    record = factory.record(config, run)
    timing = {**record["timing"], "step": STEP, "preempted": preempted, "steps_s": 11.0, "train_s": 12.0}
    timing |= {"epoch_s": 1.1 * timing["steps_per_epoch"], "samples_per_s": 64.0, "steps": 20}
    topology = {"sockets": 1, "physical_cores": 2, "threads_per_core": threads, "core_of": {"0": 0}}
    machine = {**record["machine"], "topology": topology}
    # Nine steps of 1.1 s on average, and as much time between them.
    watched = {"watched_s": 19.8} | unknown
    factory.write(
        config, tmp_path, {**record, "timing": timing, "machine": machine, "quiet": others(**quiet) | watched}
    )
    (result,) = factory.collect(config, tmp_path).tables["runs"]["least_step_s"]
    return None if np.isnan(result) else float(result)


@pytest.mark.parametrize(("preempted", "quiet", "expected"), [
    (None, {"others_share": 0.01}, 1.0),
    # 4 times 6 % of one CPU, or 3 % of two, of the 2.2 s that the run takes for each step.
    (None, {"others_share": 0.06}, 0.9 - 4 * 0.06 * 2.2),
    (None, {"others_share": 0.06, "cpus": [0, 1]}, None),
    (None, {"others_share": 0.3}, None),
    (None, {"others_share": 0.1, "unknown": True}, None),
    (None, {"others_share": 0.1, "oversubscribed": True}, None),
    # The steps in which others took the core are left out already.
    (3, {"others_share": 0.3}, 1.0),
    (3, {"others_share": 0.3, "steal_share": 0.1}, None),
    # Work on the other thread of its core preempts no step.
    (3, {"others_share": 0.3, "threads": 2}, None),
])  # fmt: skip
def test_what_others_can_have_cost_a_step_at_most(
    tmp_path: Path, preempted: int | None, quiet: dict[str, Any], expected: float | None
) -> None:
    assert least(tmp_path, preempted, **quiet) == (expected and pytest.approx(expected))


def test_the_bound_holds_for_any_loss_of_that_mean() -> None:
    """The median alone is between the bound and the measured median, whatever the steps lost."""
    rng = np.random.default_rng(5)
    for share in (0.05, 0.1, 0.2):
        for _ in range(200):
            single = rng.lognormal(0, rng.choice([0.01, 0.3]), 99)
            loss = rng.exponential(1, 99) * (rng.random(99) < rng.uniform(0.05, 1))
            # The share is of the whole time, with what was lost.
            loss *= share / (1 - share) * single.mean() / max(loss.mean(), 1e-9)
            measured = single + loss
            bound = np.quantile(measured, 0.25) - 4 * share * measured.mean()
            assert bound <= np.median(single) <= np.median(measured)


def busy(found: dict[str, Any], least_s: float | None) -> dict[str, Any]:
    return {**found, "quiet": False, "least_step_s": least_s}


def test_three_undisturbed_seeds_are_enough_and_fewer_count_with_bounds() -> None:
    quiet = [row(seed=seed) for seed in range(3)]
    half, unknown = busy(row(seed=3), 0.5), busy(row(seed=4), None)
    assert points.usable([*quiet, half]) == (quiet, "")
    # A median without the steps that others disturbed is one of a quiet machine.
    assert points.usable([*quiet[:2], busy(row(seed=3), 1.0), half])[1] == ""
    assert points.usable([*quiet[:2], half, unknown]) == ([*quiet[:2], half], BOUNDED)
    assert points.usable([unknown]) == ([unknown], BUSY)


def test_a_busy_reference_is_not_hidden_by_bounds() -> None:
    fast = [busy(ranks(2, seed=seed, step_s=1.0), 0.8) for seed in range(3)]
    slow = [busy(row(seed=seed, step_s=5.0), None) for seed in range(3)]
    result = Times({points.point(group[0]): group for group in (slow, fast)}).speedup(fast, slow)
    assert result.flag == "busy reference" and verdicts.ratios([result]) == [
        (verdicts.CANNOT_TELL, verdicts.BUSY)
    ]


def test_a_large_ratio_is_decided_by_bounds_and_a_small_one_is_not() -> None:
    for factor, verdict in ((40.0, verdicts.FASTER), (1.03, verdicts.CANNOT_TELL)):
        slow = [row(seed=seed, step_s=factor * (1 + 0.002 * seed)) for seed in range(3)]
        fast = [busy(ranks(2, seed=seed, step_s=1 + 0.001 * seed), 0.8) for seed in range(3)]
        slower = [busy(each, 0.8 * each["step_s"]) for each in slow]
        times = Times({points.point(group[0]): group for group in (slow, fast)})
        result = times.speedup(fast, slower)
        assert result.ratio is not None and result.flag == BOUNDED
        assert result.ratio.low < 0.81 * factor < 1.24 * factor < result.ratio.high
        assert verdicts.ratios([result]) == [(verdict, "")]


def test_runs_of_before_are_read(tmp_path: Path) -> None:
    config = factory.small_config({"s": {"kind": "strong", "question": "?", "axes": factory.point(seed=0)}})
    old = factory.record(config, config.runs[0])
    assert "preempted" not in old["timing"] and "passes" not in old["quiet"]
    factory.write(config, tmp_path, {**old, "schema": 8})
    assert [Run.of(each) for each in factory.collect(config, tmp_path).tables["runs"].to_dict("records")] == [
        *config.runs
    ]
