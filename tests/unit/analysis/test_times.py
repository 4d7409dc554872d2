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

from ketscale.analysis import comparability, verdicts
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.comparison import RESOLUTION, Compared, Times
from ketscale.analysis.intervals import Estimate
from ketscale.config import Config
from ketscale.grid import POINT, layout
from ketscale.measure.form import Gpu
from tests import record_maker
from tests import records_factory as factory
from tests.unit.analysis import simulated_times as simulated
from tests.unit.analysis import test_speed
from tests.unit.analysis.test_speed import row

Step = Callable[[int], float]


def noisy(median_s: float, spread: float, salt: int) -> Step:
    """Step times by seed that vary around a median, relative."""
    return lambda seed: median_s * math.exp(np.random.default_rng([seed, salt]).normal(0.0, spread))


@dataclass(frozen=True)
class Doctored:
    """Two points, one core and two ranks: their steps by seed, what differs of each seed's run, and what must be said."""

    one: Step
    two: Step
    seeds: int
    verdict: str
    why: str = ""
    first: Callable[[int], Mapping[str, Any]] = lambda seed: {}
    second: Callable[[int], Mapping[str, Any]] = lambda seed: {}
    outliers: int = 0


def steady(step_s: float) -> Step:
    return lambda seed: step_s


def slow_in(seeds: tuple[int, ...], step: Step) -> Step:
    return lambda seed: step(seed) * (2.5 if seed in seeds else 1.0)


DISTURBED = lambda seed: {"quiet": False}  # noqa: E731
CODE, OTHER = {"imported": "nameHASH"}, {"hardware": "b: CPU, 2 cores"}
HALF = noisy(0.5, 0.05, 2)
ONE = noisy(1.0, 0.05, 1)
DOCTORED = {
    "true 1.03x, 5 % noise": Doctored(ONE, noisy(1 / 1.03, 0.05, 2), 5, verdicts.CANNOT_TELL),
    "true 2x, 5 % noise": Doctored(ONE, HALF, 5, verdicts.FASTER),
    "true 0.5x, 5 % noise": Doctored(ONE, noisy(2.0, 0.05, 2), 5, verdicts.SLOWER),
    "true 2x, three seeds": Doctored(ONE, HALF, 3, verdicts.FASTER),
    "one seed": Doctored(ONE, HALF, 1, verdicts.CANNOT_TELL, verdicts.FEW),
    "two seeds": Doctored(ONE, HALF, 2, verdicts.CANNOT_TELL, verdicts.FEW),
    "another host": Doctored(ONE, HALF, 5, verdicts.NOT_COMPARABLE, "other hosts", second=lambda seed: OTHER),
    "other code": Doctored(ONE, HALF, 5, verdicts.NOT_COMPARABLE, "other code", second=lambda seed: CODE),
    "seeds of two codes": Doctored(
        ONE, HALF, 6, verdicts.NOT_COMPARABLE, "other code", second=lambda seed: CODE if seed > 3 else {}
    ),
    "code that only one of them imported": Doctored(
        ONE, HALF, 5, verdicts.FASTER, second=lambda seed: {"imported": "elseHASH"}
    ),
    "another torch": Doctored(
        ONE, HALF, 5, verdicts.NOT_COMPARABLE, "other packages (torch 2.13 and 2.9)",
        second=lambda seed: {"packages": "snakemake=9 torch=2.13"},
    ),
    "another Snakemake": Doctored(
        ONE, HALF, 5, verdicts.FASTER, second=lambda seed: {"packages": "snakemake=9 torch=2.9"}
    ),
    "three slow of thirty, equal medians": Doctored(
        slow_in((3, 11, 20), noisy(1.0, 0.01, 1)), noisy(1.0, 0.01, 2), 30, verdicts.SAME, "outliers left out: 3", outliers=3
    ),
    "one slow of seven": Doctored(
        slow_in((4,), noisy(1.0, 0.01, 1)), noisy(0.8, 0.01, 2), 7, verdicts.FASTER, "outliers left out: 1", outliers=1
    ),
    "five of eight failed": Doctored(
        ONE, HALF, 8, verdicts.FAILED, verdicts.MOST_FAILED, second=lambda seed: {"status": "diverged"} if seed > 2 else {}
    ),
    "two of eight failed": Doctored(
        ONE, HALF, 8, verdicts.FASTER, second=lambda seed: {"status": "diverged"} if seed > 5 else {}
    ),
    "all busy": Doctored(ONE, HALF, 5, verdicts.CANNOT_TELL, verdicts.BUSY, second=DISTURBED),
    "a busy baseline": Doctored(ONE, HALF, 5, verdicts.CANNOT_TELL, verdicts.BUSY, first=DISTURBED),
    "busy seeds leave two pairs": Doctored(
        ONE, HALF, 5, verdicts.CANNOT_TELL, verdicts.FEW,
        first=lambda seed: {"quiet": seed != 0}, second=lambda seed: {"quiet": seed not in (1, 2)},
    ),
    "no variance, 1.05x": Doctored(steady(1.05), steady(1.0), 3, verdicts.CANNOT_TELL),
    "no variance, 2x": Doctored(steady(2.0), steady(1.0), 3, verdicts.FASTER),
    "ties": Doctored(steady(1.0), steady(1.0), 5, verdicts.SAME),
    "1.001x without variance": Doctored(steady(1.001), steady(1.0), 30, verdicts.SAME),
}  # fmt: skip


def rows_of(case: Doctored) -> list[dict[str, Any]]:
    seeds = range(case.seeds)
    first = [row(seed=seed, **{"step_s": case.one(seed), **case.first(seed)}) for seed in seeds]
    return first + [
        row(layout="mpi-n1r2t1", seed=seed, **{"step_s": case.two(seed), **case.second(seed)})
        for seed in seeds
    ]


def told(rows: list[dict[str, Any]]) -> Mapping[str, Any]:
    """The row of the two ranks in speed.csv."""
    return [each for each in test_speed.told("strong", rows) if each["layout"] == "mpi-n1r2t1"][-1]


@pytest.mark.parametrize("name", DOCTORED)
def test_what_is_said_follows_from_what_is_known(name: str) -> None:
    case = DOCTORED[name]
    found = told(rows_of(case))
    assert (found["verdict"], found["outliers"] or 0) == (case.verdict, case.outliers)
    assert found["why"].startswith(case.why) and bool(found["why"]) == bool(case.why)
    assert (found["effect"] is None) == (case.verdict == verdicts.NOT_COMPARABLE)
    if found["low"] is not None:
        assert found["low"] < 0.999 * found["high"]


def test_a_comparison_of_devices_names_both_classes_of_host() -> None:
    gpu = {"layout": "gpu-n1r1t1", "hardware": "b: CPU, 2 cores, H100", "packages": "torch=2.9"}
    core, fast = ([row(seed=seed, **changes) for seed in range(3)] for changes in ({}, gpu))
    found = Times({}).speedup(fast, core)
    assert found.ratio is not None and found.hosts == ("CPU, 2 cores", "b: CPU, 2 cores, H100")
    assert Times({}).speedup([{**each, **layout("cpu-n1r1t2")} for each in fast], core).why


@pytest.mark.parametrize("slow", simulated.SLOW)
@pytest.mark.parametrize("seeds", simulated.SEEDS)
def test_the_interval_of_each_pair_covers_the_truth_whatever_else_is_in_the_folder(
    seeds: int, slow: str
) -> None:
    """At least 93 %, and two standard errors of 1.3 points; docs/timing.md has the table of more replicates."""
    assert min(pair.share for pair in simulated.covered(simulated.ours, seeds, slow, 400)) >= 0.905


def test_the_simulation_finds_a_variance_that_is_borrowed_from_quiet_pairs() -> None:
    assert simulated.covered(simulated.moderated, 3, simulated.SLOW[0], 400)[1].share < 0.9


LOW, HIGH = 1 / verdicts.WORTH, verdicts.WORTH


@pytest.mark.parametrize(("low", "high", "flag", "why", "verdict"), [
    (1.06, 1.2, "", "", verdicts.FASTER), (HIGH + 1e-9, 1.2, "", "", verdicts.FASTER), (0.8, LOW - 1e-9, "", "", verdicts.SLOWER),
    # The same only with the whole interval: one that reaches across a bound decides nothing.
    (LOW + 1e-9, HIGH - 1e-9, "", "", verdicts.SAME), (1.01, 1.04, "", "", verdicts.SAME),
    (LOW - 1e-9, 1.02, "", "", verdicts.CANNOT_TELL), (0.98, HIGH + 1e-9, "", "", verdicts.CANNOT_TELL),
    (HIGH - 1e-9, 1.2, "", "", verdicts.CANNOT_TELL), (0.8, LOW + 1e-9, "", "", verdicts.CANNOT_TELL),
    (0.5, 2.0, "", "", verdicts.CANNOT_TELL), (None, None, "", "", verdicts.CANNOT_TELL),
    (1.5, 1.7, "busy", "", verdicts.CANNOT_TELL), (1.5, 1.7, "untimed reference", "", verdicts.CANNOT_TELL),
    (1.5, 1.7, "bounded", "", verdicts.FASTER), (1.5, 1.7, "failed", "", verdicts.FAILED),
    (1.5, 1.7, "busy", "other code", verdicts.NOT_COMPARABLE),
])  # fmt: skip
def test_the_whole_interval_decides(low: Any, high: Any, flag: str, why: str, verdict: str) -> None:
    ratio = Estimate(1.1 if low is None else math.sqrt(low * high), low, high, 3)
    ((word, said),) = verdicts.ratios([Compared(ratio, flag, why)])
    assert word == verdict and word in verdicts.MEANINGS and said.startswith(why)
    assert bool(said) == (bool(why) or word == verdicts.FAILED or flag not in ("", "bounded") or low is None)
    opposite = {verdicts.FASTER: verdicts.SLOWER, verdicts.SLOWER: verdicts.FASTER}
    assert verdicts.ratios([Compared(ratio.inverse(), flag, why)])[0][0] == opposite.get(verdict, verdict)


def test_verdicts_of_a_study_hold_together_and_may_have_another_threshold() -> None:
    """At 95 % this is 6 % faster, and at 97.5 %, Holm's first level of two, it may be less than 5 %."""
    alone, wide = Compared(Estimate(1.1, 1.06, 1.1**2 / 1.06, 3)), Compared(Estimate(1.0, 0.5, 2.0, 3))
    assert [word for word, _ in verdicts.ratios([alone])] == [verdicts.FASTER]
    assert [word for word, _ in verdicts.ratios([alone, wide])] == [verdicts.CANNOT_TELL] * 2
    assert [word for word, _ in verdicts.ratios([alone, wide], within=1.2)] == [
        verdicts.SAME,
        verdicts.CANNOT_TELL,
    ]


def test_holm_accepts_at_the_level_of_those_that_are_left() -> None:
    """Adjusted p-values of Holm's own procedure, step by step: 0.01 x 3, 0.02 x 2, 0.2."""
    asked: list[float] = []

    def decide(p: float) -> Callable[[float], str | None]:
        return lambda level: asked.append(level) or ("yes" if p <= 1 - level + 1e-12 else None)

    assert verdicts.holm([decide(0.02), decide(0.01), decide(0.2)]) == ["yes", "yes", None]
    assert sorted(set(asked)) == pytest.approx([0.95, 1 - 0.05 / 2, 1 - 0.05 / 3])
    assert verdicts.holm([decide(0.03), decide(0.03), decide(0.03)]) == [None] * 3


def test_an_interval_at_another_level_is_students() -> None:
    """t quantiles for 2 degrees of freedom: 4.3027 at 97.5 %, 6.2053 at 98.75 % (two comparisons)."""
    ratio = Estimate(1.0, math.exp(-4.302653), math.exp(4.302653), 3)
    assert np.log(verdicts.widened(ratio, 0.975)) == pytest.approx([-6.205347, 6.205347], rel=1e-6)


def test_three_equal_times_are_no_proof_of_no_noise() -> None:
    points: dict[Any, Any] = {}
    for number, name in enumerate(("cpu-n1r1t1", "cpu-n1r1t2", "mpi-n1r2t1", "mpi-n1r4t1")):
        step = noisy(1.0, 0.03, number) if number else steady(1.0)
        for seed in range(3):
            made = row(layout=name, seed=seed, step_s=step(seed))
            points.setdefault(tuple(made[axis] for axis in POINT), []).append(made)
    assert Times(points).least > RESOLUTION
    assert Times({}).least == RESOLUTION


def config(turn: Callable[[list[Any]], list[Any]]) -> Config:
    """Four studies with everything in lists and blocks in some order."""
    point = factory.point(
        batch=turn([16, 64]), simulator=turn(["fused", "default.qubit"]), seed=turn([0, 1, 2]),
        backend=turn(["cpu-n1r1t1", "cpu-n1r1t2", "mpi-n1r2t1"]),
    )  # fmt: skip
    studies = {
        "strong": {"kind": "strong", "question": "?", "axes": point},
        "simulators": {"kind": "simulator", "question": "?", "axes": {**point, "backend": "cpu-n1r1t1"}},
        "batch": {"kind": "batch", "question": "?", "axes": {**point, "backend": "cpu-n1r1t1"}},
        "break-even": {"kind": "break-even", "question": "?", "axes": point},
    }
    given = factory.small_study(dict(turn([*studies.items()])))
    return Config.of({**given, **{
        block: dict(turn([*given[block].items()])) for block in ("workloads", "models", "simulators", "protocols")
        if block in given
    }}, factory.default_config().families)  # fmt: skip


def test_no_order_of_blocks_points_or_seeds_changes_a_word_or_a_number(tmp_path: Path) -> None:
    found, made = [], config(list)
    factory.write_all(
        made,
        tmp_path,
        lambda run: {
            "step_s": 0.01 * noisy(1.0, 0.03, zlib.crc32(run.folder.rpartition("/")[0].encode()))(run.seed)
        },
    )
    for turned in (made, config(lambda items: items[::-1])):
        tables = Analysed.of(turned, tmp_path).tables
        rows = [tables[name].to_csv(index=False).splitlines() for name in ("speed", "fits", "answers")]
        found.append([*map(sorted, rows)])
    for one, two in zip(*found, strict=True):
        assert one == two


MACHINE = record_maker.machine()


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"host": "another"}, False),
        ({"cpu": "another"}, False),
        ({"memory_bytes": 2 * 10**10}, False),
        ({"memory_bytes": 10**10 + 10**8}, True),
    ],
)
def test_two_machines_that_share_a_processor_are_two_classes_of_host(
    changes: dict[str, Any], same: bool
) -> None:
    host = msgspec.structs.replace(MACHINE, memory_bytes=10**10)
    other = msgspec.structs.replace(host, **changes)
    assert (comparability.host_class(host) == comparability.host_class(other)) == same


def test_nodes_of_one_type_are_one_class_of_host() -> None:
    one, two = (msgspec.structs.replace(MACHINE, node_type="icelake", host=host) for host in "ab")
    assert comparability.host_class(one) == comparability.host_class(two)


def test_jobs_that_were_given_one_gpu_or_four_are_on_one_class_of_host() -> None:
    classes = [
        comparability.host_class(
            msgspec.structs.replace(
                MACHINE,
                node_type="gpu-node",
                gpus=[Gpu(name=name, uuid=f"GPU-{number}") for number in range(count)],
            )
        )
        for name, count in (("H100", 1), ("H100", 4), ("H200", 4))
    ]
    assert classes[0] == classes[1] != classes[2]


def test_what_a_study_varies_is_no_part_of_the_key() -> None:
    cpu, gpu = (
        row(),
        row(hardware="a: CPU, 2 cores, H100", precision="fp64", data_hash="e", shared_cores=True),
    )
    assert comparability.hindrance([comparability.times(cpu), comparability.times(gpu)])
    varied = ("device", "layout", "protocol", "workload")
    assert not comparability.hindrance([comparability.times(cpu, varied), comparability.times(gpu, varied)])


def test_a_control_that_was_trained_on_other_data_is_none() -> None:
    known = {"split": "labels", "folds": None, "fold": None, "test_samples": 180}
    found = [comparability.quality({**row(**changes), **known}) for changes in ({}, {"data_hash": "e"})]
    assert comparability.hindrance(found) == "other data"
    assert comparability.hindrance([(), (("hosts", frozenset({("", "a")})),)]) == ""


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"features_hash": None}, ""),
        ({"data_hash": None}, ""),
        ({"data_hash": "e", "features_hash": None}, "other data"),
        ({"data_hash": None, "features_hash": "g"}, "other data"),
        ({"test_samples": 90}, "other splits (samples 180 and 90)"),
        ({"test_samples": 90, "fold": 1}, ""),
    ],
)
def test_an_unknown_hash_hides_no_other_and_differs_from_none(changes: dict[str, Any], why: str) -> None:
    one = {**row(), "features_hash": "f", "split": "labels", "folds": None, "fold": None, "test_samples": 180}
    assert (
        comparability.hindrance([comparability.quality(one), comparability.quality({**one, **changes})])
        == why
    )
    if "test_samples" not in changes:
        assert (
            comparability.hindrance([comparability.times(one), comparability.times({**one, **changes})])
            == why
        )
