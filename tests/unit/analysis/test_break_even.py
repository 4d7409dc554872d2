"""The figure that says from how much work further ranks pay."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ketscale.analysis import verdicts
from ketscale.analysis.kinds.break_even import crossing
from ketscale.analysis.kinds.kind import Answer
from ketscale.grid import Run
from tests import records_factory as factory
from tests.sentences import answers_of, faults

# A step of batch * 2 ms on one rank; on two half of that and 2 ms of talking.
BATCHES = (1, 2, 4, 8)


def study(**axes: Any) -> dict[str, Any]:
    usual = factory.point(simulator="fused", batch=list(BATCHES), backend=["cpu-n1r1t1", "mpi-n1r2t1"])
    return {"pays": {"kind": "break-even", "question": "?", "axes": {**usual, **axes}}}


def test_the_figure_has_times_and_speedups_of_each_way_and_a_panel_for_each_batch(tmp_path: Path) -> None:
    def change(run: Run) -> dict[str, Any]:
        alone = 0.002 * run.batch
        return {"step_s": alone if run.ranks == 1 else alone / 2 + 0.002}

    config = factory.small_config(study())
    factory.write_all(config, tmp_path, change)
    factory.draw(config, tmp_path)
    found = pd.read_csv(tmp_path / "figures/pays.csv")
    assert found["panel"].unique().tolist() == [f"batch {batch:,}" for batch in BATCHES]
    ranks = found[found["way"] == "MPI ranks"].sort_values("batch")
    assert ranks["speedup_same"].tolist() == pytest.approx([2 / 3, 1.0, 4 / 3, 1.6])
    assert found[found["way"] == "one core"]["step_s"].tolist() == pytest.approx(
        [0.002 * batch for batch in BATCHES]
    )


def points(*pairs: tuple[float, float]) -> pd.DataFrame:
    return pd.DataFrame(pairs, columns=["work_s", "speedup_same"])


@pytest.mark.parametrize(
    "found, expected",
    [
        (points((1, 0.5), (100, 1.5)), 10.0),
        (points((1, 1.2), (100, 1.5)), None),
        (points((1, 0.5), (100, 0.9)), None),
        (points((1, 1.5), (10, 0.9), (1000, 1.1)), 100.0),
        (points((1, math.nan), (100, 1.5)), None),
        (points((1, 0.5), (100, math.nan)), None),
        (points((1, math.nan), (10, 0.9), (1000, 1.1)), 100.0),
    ],
)
def test_the_crossing_is_found_on_logarithmic_work(found: pd.DataFrame, expected: float | None) -> None:
    assert crossing(found, "speedup_same") == (None if expected is None else pytest.approx(expected))


def answer(results: Path, talk_s: float, **axes: Any) -> Answer:
    """A step of batch * 2 ms on one rank; on two half of that and `talk_s` of talking, with noise of 1 % by seed."""
    config = factory.small_config(study(seed=[0, 1, 2, 3], **axes))

    def change(run: Run) -> dict[str, Any]:
        alone = 0.002 * run.batch
        return {"step_s": alone if run.ranks == 1 else (alone / 2 + talk_s) * (1 + 0.01 * (run.seed - 1.5))}

    factory.write_all(config, results, change)
    (found,) = answers_of(config, results).values()
    assert not faults(found)
    return found


def test_a_break_even_is_told_from_where_it_surely_pays_and_has_an_interval(tmp_path: Path) -> None:
    found = answer(tmp_path, 0.003)
    # Equal at batch 3, with 3 ms of work per rank; interpolated between 2 and 4 ms.
    assert found.effect and found.effect.low and found.effect.high
    assert 0.002 < found.effect.low < found.effect.value < found.effect.high < 0.004
    told = [(row.more["work per worker"], row.verdict) for row in found.rows if row.beside]
    no, yes = verdicts.PAYS_NOT, verdicts.PAYS
    assert told == [("1 ms", no), ("2 ms", no), ("4 ms", yes), ("8 ms", yes)]


def test_a_break_even_may_be_beyond_the_range_or_below_it(tmp_path: Path) -> None:
    beyond, below = answer(tmp_path / "beyond", 1.0), answer(tmp_path / "below", 1e-5)
    assert (beyond.verdict, below.verdict) == (verdicts.PAYS_NOT, verdicts.PAYS)
    assert beyond.effect is None and below.effect is None


def test_a_layout_that_is_nowhere_faster_does_not_lead(tmp_path: Path) -> None:
    config = factory.small_config(study(backend=["cpu-n1r1t1", "mpi-n1r2t1", "ddp-cpu-n1r2t1"]))

    def change(run: Run) -> dict[str, Any]:
        alone = 0.002 * run.batch
        if run.backend == "ddp-cpu":
            return {"step_s": 2 * alone}
        # Faster at the most work, but by less than what is worth it.
        return {"step_s": alone * (1.1 - 0.016 * run.batch) if run.ranks == 2 else alone}

    factory.write_all(config, tmp_path, change)
    (found,) = answers_of(config, tmp_path).values()
    assert found.effect is not None and found.verdict == "no clear gain"


def test_the_work_per_worker_is_that_of_one_worker_of_the_same_kind(tmp_path: Path) -> None:
    layouts = ["cpu-n1r1t1", "gpu-n1r1t1", "ddp-n1r2t1"]
    config = factory.small_config(study(batch=[8], backend=layouts))
    times = dict(zip(layouts, (0.1, 0.008, 0.005), strict=True))
    factory.write_all(config, tmp_path, lambda run: {"step_s": times[run.layout]})
    (found,) = answers_of(config, tmp_path).values()
    assert found.rows[-1].beside == "one GPU"
    assert found.rows[-1].more["work per worker"] == "4 ms"


@pytest.mark.parametrize(
    ("batch", "said"), [(2, "4 ms of work per worker and above"), (8, "three of four cases")]
)
def test_nothing_is_said_of_work_at_which_times_are_not_comparable(
    batch: int, said: str, tmp_path: Path
) -> None:
    config = factory.small_config(study())

    def change(run: Run) -> dict[str, Any]:
        other = {"packages": {"torch": "2.13"}} if run.ranks == 2 and run.batch == batch else {}
        return {"step_s": 0.002 * run.batch / run.ranks, **other}

    factory.write_all(config, tmp_path, change)
    (found,) = answers_of(config, tmp_path).values()
    assert said in found.text and found.verdict == verdicts.PAYS and not faults(found)
