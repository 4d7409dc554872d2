"""Times beside each other: doctored runs of known truth, coverage by simulation, and what stands in the way of a comparison."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ketscale import analysis
from ketscale.analysis import comparability, verdicts
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.comparison import RESOLUTION, Compared, Times
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.points import point
from ketscale.grid import Run, layout
from ketscale.measure.form import Gpu
from tests import record_maker
from tests import records_factory as factory
from tests.unit.analysis import simulated_times as simulated
from tests.unit.analysis.test_speed import APART, FASTER, SAME, SLOWER, TWO, UNSURE, ranks, row, rows_of

GPUS = {name: [Gpu(name=name, uuid=f"GPU-{number}") for number in range(4)] for name in ("H100", "H200")}
Step = Callable[[int], float]


def noisy(median_s: float, spread: float, salt: int) -> Step:
    """Step times by seed that vary around a median, relative."""
    return lambda seed: median_s * math.exp(np.random.default_rng([seed, salt]).normal(0.0, spread))


def steady(step_s: float) -> Step:
    return lambda seed: step_s


def slow_in(seeds: tuple[int, ...], step: Step) -> Step:
    return lambda seed: step(seed) * (2.5 if seed in seeds else 1.0)


ONE, HALF = noisy(1.0, 0.05, 1), noisy(0.5, 0.05, 2)


@dataclass(frozen=True)
class Doctored:
    """One core and two ranks: their steps by seed, and what must be said. first, second: what differs of a seed's run."""

    seeds: int
    verdict: str
    why: str = ""
    one: Step = ONE
    two: Step = HALF
    first: Callable[[int], Mapping[str, Any]] = lambda seed: {}
    second: Callable[[int], Mapping[str, Any]] = lambda seed: {}
    outliers: int = 0


CODE, BUSY, LOST = {"imported": "nameHASH"}, {"quiet": False}, {"status": "diverged"}
DOCTORED = {
    "true 1.03x, 5 % noise": Doctored(5, UNSURE, two=noisy(1 / 1.03, 0.05, 2)),
    "true 2x, 5 % noise": Doctored(5, FASTER),
    "true 0.5x, 5 % noise": Doctored(5, SLOWER, two=noisy(2.0, 0.05, 2)),
    "true 2x, three seeds": Doctored(3, FASTER),
    "one seed": Doctored(1, UNSURE, verdicts.FEW),
    "two seeds": Doctored(2, UNSURE, verdicts.FEW),
    "another host": Doctored(5, APART, "other hosts", second=lambda seed: {"hardware": "b: CPU, 2 cores"}),
    "other code": Doctored(5, APART, "other code", second=lambda seed: CODE),
    "seeds of two codes": Doctored(6, APART, "other code", second=lambda seed: CODE if seed > 3 else {}),
    "code that only one of them imported": Doctored(5, FASTER, second=lambda seed: {"imported": "elseHASH"}),
    "another torch": Doctored(
        5, APART, "other packages (torch 2.13 and 2.9)", second=lambda seed: {"packages": "snakemake=9 torch=2.13"}),
    "another Snakemake": Doctored(5, FASTER, second=lambda seed: {"packages": "snakemake=9 torch=2.9"}),
    "three slow of thirty, equal medians": Doctored(
        30, SAME, "outliers excluded: 3", slow_in((3, 11, 20), noisy(1.0, 0.01, 1)), noisy(1.0, 0.01, 2), outliers=3),
    "one slow of seven": Doctored(
        7, FASTER, "outliers excluded: 1", slow_in((4,), noisy(1.0, 0.01, 1)), noisy(0.8, 0.01, 2), outliers=1),
    "five of eight failed": Doctored(8, verdicts.FAILED, verdicts.MOST_FAILED, second=lambda seed: LOST if seed > 2 else {}),
    "two of eight failed": Doctored(8, FASTER, second=lambda seed: LOST if seed > 5 else {}),
    "all busy": Doctored(5, UNSURE, verdicts.BUSY, second=lambda seed: BUSY),
    "a busy baseline": Doctored(5, UNSURE, verdicts.BUSY, first=lambda seed: BUSY),
    "busy seeds leave two pairs": Doctored(
        5, UNSURE, verdicts.FEW, first=lambda seed: {} if seed else BUSY, second=lambda seed: BUSY if seed in (1, 2) else {}),
    "no variance, 1.05x": Doctored(3, UNSURE, one=steady(1.05), two=steady(1.0)),
    "no variance, 2x": Doctored(3, FASTER, one=steady(2.0), two=steady(1.0)),
    "ties": Doctored(5, SAME, one=steady(1.0), two=steady(1.0)),
    "1.001x without variance": Doctored(30, SAME, one=steady(1.001), two=steady(1.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCTORED)
def test_what_is_said_follows_from_what_is_known(name: str) -> None:
    case, seeds = DOCTORED[name], range(DOCTORED[name].seeds)
    rows = [row(seed=seed, step_s=case.one(seed), **case.first(seed)) for seed in seeds]
    rows += [ranks(2, seed=seed, step_s=case.two(seed), **case.second(seed)) for seed in seeds]
    result = rows_of("strong", rows)[-1]
    assert (result["verdict"], result["outliers"] or 0) == (case.verdict, case.outliers)
    assert result["why"].startswith(case.why) and bool(result["why"]) == bool(case.why)
    assert (result["effect"] is None) == (case.verdict == APART)
    assert result["low"] is None or result["low"] < 0.999 * result["high"]


def test_a_comparison_of_devices_names_both_classes_of_host() -> None:
    gpu = {"layout": "gpu-n1r1t1", "hardware": "b: CPU, 2 cores, H100", "packages": "torch=2.9"}
    core, fast = ([row(seed=seed, **changes) for seed in range(3)] for changes in ({}, gpu))
    result = Times({}).speedup(fast, core)
    assert result.ratio is not None and result.hosts == ("CPU, 2 cores", "b: CPU, 2 cores, H100")
    assert Times({}).speedup([{**each, **layout("cpu-n1r1t2")} for each in fast], core).why


@pytest.mark.parametrize("slow", simulated.SLOW)
@pytest.mark.parametrize("seeds", simulated.SEEDS)
def test_the_interval_of_each_pair_covers_the_truth_whatever_else_is_in_the_folder(
    seeds: int, slow: str
) -> None:
    """At least 93 %, and two standard errors of 1.3 points; docs/timing.md has the table of more replicates."""
    assert min(pair.share for pair in simulated.covered(simulated.of_package, seeds, slow, 400)) >= 0.905


def test_the_simulation_finds_a_variance_that_is_borrowed_from_quiet_pairs() -> None:
    assert simulated.covered(simulated.moderated, 3, simulated.SLOW[0], 400)[1].share < 0.9


LOW, HIGH = 1 / verdicts.WORTH, verdicts.WORTH


@pytest.mark.parametrize(("low", "high", "flag", "why", "verdict"), [
    (1.06, 1.2, "", "", FASTER), (HIGH + 1e-9, 1.2, "", "", FASTER), (0.8, LOW - 1e-9, "", "", SLOWER),
    # The same only with the whole interval: one that reaches across a bound decides nothing.
    (LOW + 1e-9, HIGH - 1e-9, "", "", SAME), (1.01, 1.04, "", "", SAME),
    (LOW - 1e-9, 1.02, "", "", UNSURE), (0.98, HIGH + 1e-9, "", "", UNSURE),
    (HIGH - 1e-9, 1.2, "", "", UNSURE), (0.8, LOW + 1e-9, "", "", UNSURE),
    (0.5, 2.0, "", "", UNSURE), (None, None, "", "", UNSURE),
    (1.5, 1.7, "busy", "", UNSURE), (1.5, 1.7, "untimed reference", "", UNSURE),
    (1.5, 1.7, "bounded", "", FASTER), (1.5, 1.7, "failed", "", verdicts.FAILED),
    (1.5, 1.7, "busy", "other code", APART),
])  # fmt: skip
def test_the_whole_interval_decides(low: Any, high: Any, flag: str, why: str, verdict: str) -> None:
    ratio = Estimate(1.1 if low is None else math.sqrt(low * high), low, high, 3)
    ((word, text),) = verdicts.ratios([Compared(ratio, flag, why)])
    assert word == verdict and word in verdicts.MEANINGS and text.startswith(why)
    assert bool(text) == (bool(why) or word == verdicts.FAILED or flag not in ("", "bounded") or low is None)
    opposite = {FASTER: SLOWER, SLOWER: FASTER}.get(verdict, verdict)
    assert verdicts.ratios([Compared(ratio.inverse(), flag, why)])[0][0] == opposite


def test_verdicts_of_a_study_hold_together_and_may_have_another_threshold() -> None:
    """At 95 % this is 6 % faster, and at 97.5 %, Holm's first level of two, it may be less than 5 %."""
    single, wide = Compared(Estimate(1.1, 1.06, 1.1**2 / 1.06, 3)), Compared(Estimate(1.0, 0.5, 2.0, 3))
    assert [word for word, _ in verdicts.ratios([single])] == [FASTER]
    assert [word for word, _ in verdicts.ratios([single, wide])] == [UNSURE] * 2
    assert single.ratio and verdicts.of_ratio(single.ratio, 0.975, within=1.2) == SAME


def test_holm_accepts_at_the_level_of_those_that_are_left() -> None:
    """Adjusted p-values of Holm's own procedure, step by step: 0.01 x 3, 0.02 x 2, 0.2."""
    calls: list[float] = []

    def decide(p: float) -> Callable[[float], str | None]:
        return lambda level: calls.append(level) or ("yes" if p <= 1 - level + 1e-12 else None)

    assert verdicts.holm([decide(0.02), decide(0.01), decide(0.2)]) == ["yes", "yes", None]
    assert sorted(set(calls)) == pytest.approx([0.95, 1 - 0.05 / 2, 1 - 0.05 / 3])
    assert verdicts.holm([decide(0.03), decide(0.03), decide(0.03)]) == [None] * 3


@pytest.mark.parametrize(("n", "outliers"), [(3, 0), (5, 1)])
def test_an_interval_at_another_level_is_students_and_an_outlier_costs_two_degrees(
    n: int, outliers: int
) -> None:
    """t quantiles for 2 degrees of freedom: 4.3027 at 97.5 %, 6.2053 at 98.75 % (two comparisons)."""
    ratio = Estimate(1.0, math.exp(-4.302653), math.exp(4.302653), n, outliers)
    assert np.log(verdicts.widened(ratio, 0.975)) == pytest.approx([-6.205347, 6.205347], rel=1e-6)


def test_three_equal_times_are_no_proof_of_no_noise() -> None:
    steps = {count: noisy(1.0, 0.03, count) if count > 1 else steady(1.0) for count in (1, 2, 4, 8)}
    rows = [
        [ranks(count, seed=seed, step_s=step(seed)) for seed in range(3)] for count, step in steps.items()
    ]
    assert Times({point(group[0]): group for group in rows}).least > RESOLUTION
    assert Times({}).least == RESOLUTION


def test_no_order_of_blocks_points_or_seeds_changes_a_word_or_a_number(tmp_path: Path) -> None:
    result = []

    def step_s(run: Run) -> float:
        return 0.01 * noisy(1.0, 0.03, zlib.crc32(run.folder.rpartition("/")[0].encode()))(run.seed)

    for turn in (1, -1):
        axes = {
            "batch": [16, 64],
            "simulator": ["fused", "default.qubit"],
            "backend": ["cpu-n1r1t1", "cpu-n1r1t2", TWO],
            "seed": [0, 1, 2],
        }
        every = factory.point(**{name: values[::turn] for name, values in axes.items()})
        single = {**every, "backend": "cpu-n1r1t1"}
        points = {"strong": {**every, "batch": 16}, "simulator": single, "batch": single, "break-even": every}
        studies = {
            kind: {"kind": kind, "question": "?", "axes": axes} for kind, axes in [*points.items()][::turn]
        }
        settings = factory.small_study(studies)
        blocks = {
            name: dict([*settings[name].items()][::turn]) for name in ("workloads", "simulators", "protocols")
        }
        config = analysis.of({**settings, **blocks})
        if turn > 0:
            factory.write_all(config, tmp_path, lambda run: {"step_s": step_s(run)})
        tables = Analysed.of(config, tmp_path).tables
        result.append(
            [sorted(tables[name].to_csv(index=False).splitlines()) for name in ("speed", "fits", "answers")]
        )
    for one, two in zip(*result, strict=True):
        assert one == two


def on(**changes: Any) -> str:
    """The class of a host."""
    host = msgspec.structs.replace(record_maker.machine(), memory_bytes=10**10)
    return comparability.host_class(msgspec.structs.replace(host, **changes))


@pytest.mark.parametrize(("one", "other", "same"), [
    ({}, {}, True), ({}, {"host": "another"}, False), ({}, {"cpu": "another"}, False), ({}, {"memory_bytes": 2 * 10**10}, False),
    ({}, {"memory_bytes": 10**10 + 10**8}, True),
    # Nodes of one type are one class, and so are jobs that were given one GPU or four.
    ({"node_type": "icelake", "host": "a"}, {"node_type": "icelake", "host": "b"}, True),
    ({"gpus": GPUS["H100"][:1]}, {"gpus": GPUS["H100"]}, True), ({"gpus": GPUS["H100"]}, {"gpus": GPUS["H200"]}, False),
])  # fmt: skip
def test_the_class_of_a_host(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    assert (on(**one) == on(**other)) == same


def test_what_a_study_varies_is_no_part_of_the_key() -> None:
    other = row(hardware="a: CPU, 2 cores, H100", precision="fp64", data_hash="e", shared_cores=True)
    assert comparability.mismatch([comparability.times(row()), comparability.times(other)])
    varied = ("device", "layout", "protocol", "workload")
    assert not comparability.mismatch(
        [comparability.times(row(), varied), comparability.times(other, varied)]
    )


@pytest.mark.parametrize(("changes", "why"), [
    ({"data_hash": "e"}, "other data"), ({"features_hash": None}, ""), ({"data_hash": None}, ""),
    ({"data_hash": "e", "features_hash": None}, "other data"), ({"data_hash": None, "features_hash": "g"}, "other data"),
    ({"test_samples": 90}, "other splits (samples 180 and 90)"), ({"test_samples": 90, "fold": 1}, ""),
])  # fmt: skip
def test_an_unknown_hash_hides_no_other_and_differs_from_none(changes: dict[str, Any], why: str) -> None:
    one = {**row(), "split": "labels", "folds": None, "fold": None, "test_samples": 180}
    for key in (comparability.quality, *([] if "test_samples" in changes else [comparability.times])):
        assert comparability.mismatch([key(one), key({**one, **changes})]) == why
    assert comparability.mismatch([(), (("hosts", frozenset({("", "a")})),)]) == ""
