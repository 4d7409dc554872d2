"""Verdicts on claims: every rule with made-up readings, and each reading against numbers computed by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace as changed
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks.claims import verdicts
from benchmarks.claims.__main__ import COLUMNS, rows
from benchmarks.claims.ledger import (
    NOT_MEASURED,
    REFUTED,
    SUPPORTED,
    UNDECIDED,
    Asked,
    Claim,
    Region,
    Rule,
    Spans,
)
from benchmarks.claims.readings import Reading, readings
from benchmarks.claims.verdicts import judge, judged, recorded
from ketscale.analysis import comparison
from ketscale.analysis.comparison import Collected
from ketscale.analysis.intervals import FEWEST, LEVEL, Estimate
from ketscale.config import Config
from ketscale.files import csv_of
from ketscale.grid import Run
from tests import records_factory
from tests.nightly.claims import factory
from tests.nightly.claims.test_claims import BY_ID, READ


def inside(region: Region) -> Estimate:
    """An estimate with a narrow interval in a region."""
    low, high = region
    value = math.sqrt(low * high) if low and high else 2 * low if low else high / 2 if high else 1.0
    return Estimate(value, 0.999 * value, 1.001 * value, 5)


def of_verdict(claim: Claim, verdict: Any) -> list[Reading]:
    """Readings that lie where a verdict has them; what it does not speak of is unknown."""
    regions = claim.regions[verdict]
    named = regions if isinstance(regions, dict) else {"": regions}
    return [
        next(
            (Reading(name, inside(named[each])) for each in named if name.startswith(each)),
            Reading(name, fault="none"),
        )
        for name in factory.names(claim)
    ]


@pytest.mark.parametrize("claim", READ, ids=lambda claim: claim.id)
def test_every_claim_can_have_every_verdict_of_its_rule_and_a_proxy_none(claim: Claim) -> None:
    for verdict in claim.regions:
        read = of_verdict(claim, verdict)
        assert judge(replace(claim, proxy=""), read).verdict == verdict
        found = judge(replace(claim, proxy="two cores"), read)
        assert (found.verdict, found.rests_on) == (NOT_MEASURED, "a proxy: two cores")
        assert found.reason.startswith("not measured there; on two cores: ")


@pytest.mark.parametrize("claim", READ, ids=lambda claim: claim.id)
def test_no_claim_is_decided_by_an_interval_that_covers_everything_or_by_none(claim: Claim) -> None:
    claim = replace(claim, proxy="")
    wide = Estimate(1.0, 1e-12, 1e12, 5)
    assert judge(claim, [Reading(name, wide) for name in factory.names(claim)]).verdict == UNDECIDED
    nothing = [Reading(name, fault="missing", absent=True) for name in factory.names(claim)]
    assert (judge(claim, nothing).verdict, judge(claim, nothing).rests_on) == (NOT_MEASURED, "nothing")


def test_what_has_not_been_run_is_named() -> None:
    claim = BY_ID["4.9"]
    config = factory.config_of(claim)
    assert claim in verdicts.tested(config)
    unrun = factory.evidence(config, [], why=dict.fromkeys(config.runs, "missing (not run yet)"))
    (found,) = (each for each in judged(unrun) if each.claim.id == "4.9")
    assert (found.verdict, "missing (not run yet)" in found.reason) == (NOT_MEASURED, True)
    elsewhere = factory.ready_made("eegmmidb.yaml")
    assert verdicts.tested(elsewhere) == []
    assert "not in the study" in readings(claim, factory.evidence(elsewhere, []))[0].fault


def test_a_claim_without_runs_says_what_it_rests_on() -> None:
    assert judge(BY_ID["0.15"], ()).rests_on == "by arithmetic"
    assert judge(BY_ID["0.16"], ()).rests_on == "measured" and judge(BY_ID["0.16"], ()).after_the_fact
    assert judge(BY_ID["4.7"], ()).rests_on == "nothing"


# By hand: two ranks beside one, and threads, of one model.
STUDY = {
    "kind": "strong",
    "question": "?",
    "axes": {
        **records_factory.point(seed=[0, 1, 2, 3, 4]),
        "backend": ["cpu-n1r1t1", "cpu-n1r1t2", "mpi-n1r2t1", "mpi-n1r4t1"],
    },
}
CONFIG = records_factory.small_config({"strong": STUDY})
ONE, TWO = {"layout": "cpu-n1r1t1"}, {"layout": "mpi-n1r2t1"}
RATIO = Asked("x", "step_s", ONE, TWO)
FAST = {"cpu-n1r1t1": [2.0, 4.0, 8.0], "mpi-n1r2t1": [1.0, 2.2, 3.8]}
# The 97.5 % quantile of Student's t with two degrees of freedom, in closed form.
STUDENT = 0.95 / math.sqrt(2 * 0.975 * 0.025)


def runs(config: Config = CONFIG, **wanted: Any) -> list[Run]:
    """The runs of a config with these values, by seed."""
    return [run for run in config.runs if all(getattr(run, name) == value for name, value in wanted.items())]


def made(layouts: Mapping[str, Sequence[Any]], column: str = "step_s", **more: Any) -> list[dict[str, Any]]:
    """Rows of layouts with a value of a column for each seed from 0."""
    return [
        factory.row(CONFIG, run, **{column: value}, **more)
        for layout, values in layouts.items()
        for run, value in zip(runs(layout=layout), values, strict=False)
    ]


def claim(*asked: Asked, **more: Any) -> Claim:
    """A claim about the study."""
    usual: dict[str, Any] = {
        "id": "9.9",
        "statement": "Two ranks are faster.",
        "source": "a test",
        "file": "a file",
        "hardware": "cores",
        "committed": datetime(2026, 1, 1, tzinfo=UTC),
        "study": "strong",
        "estimator": "The ratio of steps.",
        "rule": Rule(supported="it is above 1.5", refuted="it is below 1.2"),
        "smallest_effect": "1.1 x",
        "readings": [*asked],
        "regions": {SUPPORTED: (1.5, None), REFUTED: (None, 1.2)},
    }
    return Claim(**{**usual, **more})


def read(evidence: Collected, asked: Asked, **more: Any) -> Reading:
    """The one reading of a claim."""
    (found,) = readings(claim(asked, **more), evidence)
    return found


def verdict(evidence: Collected, *asked: Asked, **more: Any) -> str:
    """The verdict on a claim with these readings."""
    given = claim(*asked, **more)
    return judge(given, readings(given, evidence)).verdict


def test_a_ratio_is_the_geometric_mean_of_ratios_paired_by_seed() -> None:
    logs = [math.log(2.0), math.log(4 / 2.2), math.log(8 / 3.8)]
    mean = sum(logs) / 3
    half = STUDENT * math.sqrt(sum((each - mean) ** 2 for each in logs) / 2) / math.sqrt(3)
    for times in (1.0, 0.5):
        found = read(
            factory.evidence(CONFIG, made(FAST)), Asked("x", "step_s", ONE, TWO, times=times)
        ).estimate
        assert found is not None
        expected = (*(times * math.exp(mean + each * half) for each in (0, -1, 1)), 3)
        assert (found.value, found.low, found.high, found.n) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        ("step_s", 1.0),
        (Spans(["a"]), 0.3),
        (Spans(["a", "never"]), 0.3),
        (Spans(["a", "b"], over="the step"), 0.9 / 1.5),
        (Spans(["a"], over="the largest other"), 0.3 / 0.6),
        (Spans(["b"], over="the largest other"), 0.6 / 0.3),
    ],
    ids=str,
)
def test_columns_and_spans(quantity: str | Spans, value: float) -> None:
    """Three equal times do not show that there is no noise: their interval is that of the least that is believed."""
    records = {
        run: factory.record(step_s=1.5, a=0.3, b=0.6, **{"c.total": 9.0}) for run in runs(layout="cpu-n1r1t1")
    }
    evidence = factory.evidence(CONFIG, made({"cpu-n1r1t1": [1.0] * 3}), records)
    found = read(evidence, Asked("x", quantity, ONE)).estimate
    assert found is not None
    half = STUDENT * comparison.RESOLUTION / math.sqrt(3)
    expected = (value, value * math.exp(-half), value * math.exp(half))
    assert (found.value, found.low, found.high) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("asked", "end"), [
    (Asked("x", "test_error", ONE), None),
    (Asked("x", "test_error", ONE, TWO), None),
    (Asked("x", "test_negativity", ONE), 0.25),
    (Asked("x", "test_simulator_error", ONE, TWO), 1.0),
    (Asked("x", Spans(["never"]), ONE), 0.0),
    (Asked("x", Spans(["never"], over="the step"), ONE), 0.0),
])  # fmt: skip
@pytest.mark.parametrize("seeds", [2, 3])
def test_equal_results_of_all_seeds_have_an_interval_only_where_chance_has_no_part_in_them(
    asked: Asked, end: float | None, seeds: int
) -> None:
    results: dict[str, Any] = dict.fromkeys(("test_error", "test_negativity", "test_simulator_error"), 0.25)
    equal = made({"cpu-n1r1t1": [1.0] * seeds, "mpi-n1r2t1": [1.0] * seeds}, **results)
    records = {run: factory.record(a=0.3) for run in runs()}
    found = read(factory.evidence(CONFIG, equal, records), asked)
    assert found.estimate is not None
    if seeds < FEWEST:
        assert found.estimate.low is None and found.fault == "2 seeds; an interval needs 3"
    elif end is None:
        assert found.estimate.low is None and found.fault == "all seeds are equal, so there is no interval"
    else:
        assert found.fault == "" and found.estimate.low == found.estimate.high == pytest.approx(end)
        assert found.lies((end - 1, end + 1), 0.99) is True


@pytest.mark.parametrize(
    ("low", "alone", "more", "expected"),
    [
        # One ratio has an interval above 1.9 at 95 %; at 97.5 %, as one of two of which either is enough, it has not.
        (1.9, True, {}, SUPPORTED),
        (1.9, False, {"any": [SUPPORTED]}, UNDECIDED),
        (1.85, False, {"any": [SUPPORTED]}, SUPPORTED),
        (1.85, False, {}, UNDECIDED),
    ],
)
def test_what_any_reading_may_decide_is_asked_at_a_higher_level(
    low: float, alone: bool, more: dict[str, Any], expected: str
) -> None:
    # Ratios around 2: by Student's t with two degrees of freedom the ends are 1.914 (95 %), 1.879 (97.5 %).
    noisy = [2.0 * math.exp(0.01774 * each) for each in (-1, 0, 1)]
    evidence = factory.evidence(
        CONFIG, made({"cpu-n1r1t1": noisy, "mpi-n1r2t1": [1.0] * 3, "mpi-n1r4t1": noisy})
    )
    layouts: list[str | int] = ["mpi-n1r2t1", *([] if alone else ["mpi-n1r4t1"])]
    asked = Asked("x", "step_s", ONE, {}, each={"layout": layouts})
    regions = {SUPPORTED: (low, None), REFUTED: (None, 0.1)}
    assert verdict(evidence, asked, regions=regions, **more) == expected


def test_an_interval_around_zero_is_widened_on_both_sides() -> None:
    found = Reading("x", Estimate(0.1, -0.1, 0.3, 3))
    # Student's quantiles with two degrees of freedom in closed form: t = (2 p - 1) / sqrt(2 p (1 - p)).
    half = 0.2 * (0.98 / math.sqrt(2 * 0.99 * 0.01)) / STUDENT
    assert found.lies((0.1 - half - 1e-9, 0.1 + half + 1e-9), 0.98) is True
    assert found.lies((0.1 - half + 1e-9, None), 0.98) is found.lies((None, 0.1 + half - 1e-9), 0.98) is False


def test_losses_are_compared_seed_by_seed() -> None:
    apart = {0: 1e-6, 1: -2e-6, 2: 0.0}
    records = {run: factory.record((1 + apart.get(run.seed, 0), 0.5)) for run in runs(layout="mpi-n1r2t1")}
    evidence = factory.evidence(CONFIG, made(FAST), records)
    for limit, fault in ((2.1e-6, ""), (1e-6, "its first losses differ by 2.0e-06, over 1e-06")):
        assert read(evidence, RATIO, same_losses=limit).fault == fault
    assert verdict(evidence, RATIO) == SUPPORTED
    assert verdict(evidence, RATIO, same_losses=1e-6) == UNDECIDED


def test_an_interval_lies_in_a_region_as_a_whole() -> None:
    found = Reading("x", Estimate(1.5, 1.0, 2.0, 3))
    truths = {
        (None, 2.0): False,
        (None, 2.1): True,
        (1.0, None): False,
        (0.9, None): True,
        (0.9, 2.1): True,
        (1.1, 2.1): False,
    }
    assert {region: found.lies(region, LEVEL) for region in truths} == truths
    assert changed(found, fault="busy").lies((None, 2.1), LEVEL) is None


def test_groups_are_those_that_are_planned() -> None:
    asked = Asked(
        "x", "step_s", {**ONE, "ranks": 1, "backend": "cpu"}, {}, where={"backend": "mpi"}, each={"ranks": []}
    )
    times = {"cpu-n1r1t1": [4.0] * 3, "mpi-n1r2t1": [4.0] * 3, "mpi-n1r4t1": [1.0] * 3}
    evidence = factory.evidence(CONFIG, made(times))
    assert [each.words for each in readings(claim(asked), evidence)] == [
        "x (ranks 2) 1 (0.9877 to 1.012)",
        "x (ranks 4) 4 (3.951 to 4.05)",
    ]
    # With two ranks alone, what any may support and what four refute are still open.
    part = factory.evidence(
        CONFIG, made({name: times[name] for name in list(times)[:2]}), why=dict.fromkeys(CONFIG.runs, "missing (not run yet)")
    )  # fmt: skip
    regions: dict[str, Any] = {SUPPORTED: (1.5, None), REFUTED: (None, 0.5)}
    assert verdict(part, asked, regions=regions) == UNDECIDED
    assert verdict(part, asked, regions=regions, any=[SUPPORTED]) == NOT_MEASURED
    assert verdict(part, asked, regions={**regions, SUPPORTED: {"x (ranks 4)": (1.5, None)}}) == NOT_MEASURED
    assert "x (ranks 4)" in judge(claim(asked), readings(claim(asked), part)).reason


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"quiet": False}, "layout mpi-n1r2t1 busy"),
        ({"timed": False}, "untimed"),
        ({"status": "diverged"}, "no usable run (diverged)"),
        ({"shared_cores": True}, "no run with cores of its own"),
        ({"shared_cores": None}, "no run with cores of its own"),
    ],
)
def test_runs_that_do_not_count(change: dict[str, Any], why: str) -> None:
    asked, good = Asked("x", "step_s", ONE, TWO, own_cores=True), made(FAST)
    assert verdict(factory.evidence(CONFIG, good), asked) == SUPPORTED
    spoilt = [each | (change if each["layout"] == "mpi-n1r2t1" else {}) for each in good]
    found = read(factory.evidence(CONFIG, spoilt), asked)
    assert found.absent and (why in found.fault or "most seeds failed" in found.fault)
    assert verdict(factory.evidence(CONFIG, spoilt), asked) == NOT_MEASURED


def test_runs_of_other_code_or_hosts_decide_nothing() -> None:
    spoilt = [each | {"packages": f"torch=2.{each['ranks']}"} for each in made(FAST)]
    assert read(factory.evidence(CONFIG, spoilt), RATIO).words == "x: other packages (torch 2.1 and 2.2)"
    spoilt = [each | {"hardware": f"host {each['ranks']}"} for each in made(FAST)]
    assert "other hosts" in read(factory.evidence(CONFIG, spoilt), RATIO).fault
    assert verdict(factory.evidence(CONFIG, spoilt), RATIO) == UNDECIDED


def test_results_of_a_test_count_whatever_the_clock_says() -> None:
    asked = Asked("x", "test_result", ONE, TWO)
    told = [each | {"quiet": each["seed"] == 0, "resumed": each["seed"] // 2} for each in made(FAST)]
    shares = {"cpu-n1r1t1": 0.9, "mpi-n1r2t1": 0.7}
    records = {
        run: factory.tested(factory.record(), shares[name]) for name in shares for run in runs(layout=name)
    }
    found = read(factory.evidence(CONFIG, told, records), asked)
    assert found.estimate is not None and found.estimate.low is not None
    assert (found.estimate.value, found.estimate.n) == (pytest.approx(0.2), 3)
    # A host or a precision of its own changes the times of a side, but not what it has learned; data and splits do.
    for change, why in (
        ({"hardware": "B"}, ""), ({"precision": "fp32"}, ""), ({"data_hash": "b"}, "other data"),
        ({"split": "trials"}, "other splits (subjects and trials)"), ({"packages": "torch=3"}, "other packages"),
    ):  # fmt: skip
        usual = {"data_hash": "a", "split": "subjects", "packages": "torch=2"}
        spoilt = [each | usual | (change if each["layout"] == "mpi-n1r2t1" else {}) for each in told]
        reading = read(factory.evidence(CONFIG, spoilt, records), asked)
        assert reading.fault.startswith(why) and bool(reading.fault) == bool(why)


def test_busy_and_failed_seeds_are_left_out() -> None:
    four = {name: [*values, 100.0] for name, values in FAST.items()}
    spoilt = [each | {"quiet": each["seed"] != 3} for each in made(four)]
    whole = read(factory.evidence(CONFIG, made(FAST)), RATIO)
    assert read(factory.evidence(CONFIG, spoilt), RATIO) == whole
    seven = records_factory.small_config(
        {"strong": {**STUDY, "axes": {**STUDY["axes"], "seed": list(range(7))}}}
    )  # type: ignore[dict-item]
    rows_of = [
        factory.row(seven, run, status="completed" if run.seed < 3 else "diverged", step_s=3.0 / run.ranks) for run in seven.runs
    ]  # fmt: skip
    assert "most seeds failed" in read(factory.evidence(seven, rows_of), RATIO).fault
    assert verdict(factory.evidence(seven, [row for row in rows_of if row["seed"] < 6]), RATIO) == SUPPORTED


def test_recorded_readings_give_the_verdict_of_their_records(tmp_path: Path) -> None:
    asked = Asked("x", "step_s", ONE, {}, each={"layout": ["mpi-n1r2t1", "mpi-n1r4t1"]})
    evidence = factory.evidence(CONFIG, made({**FAST, "mpi-n1r4t1": [1.0, 1.0]}))
    given = claim(asked)
    here = changed(judge(given, readings(given, evidence)))
    lines = list(rows(here, evidence))
    older = [
        {**line, "value": 0.1, "low": 0.09, "high": 0.11, "measured": "2025-01-01T00:00:00+00:00"}
        for line in lines
    ]
    file = tmp_path / "readings.csv"
    # An older file does not count.
    file.write_bytes(csv_of([*older, *lines], COLUMNS))
    found = recorded(file, given, CONFIG)
    assert (found.verdict, found.reason, found.after_the_fact) == (here.verdict, here.reason, False)
    file.write_bytes(csv_of(older, COLUMNS))
    assert recorded(file, given, CONFIG).after_the_fact
    file.write_bytes(csv_of(lines[:1], COLUMNS))
    assert "not recorded" in recorded(file, given, CONFIG).reason
    file.write_bytes(csv_of([], COLUMNS))
    assert recorded(file, given, CONFIG).verdict == NOT_MEASURED


def test_a_record_that_is_older_than_its_rule_decides_after_the_fact() -> None:
    given = claim(RATIO)
    found = readings(given, factory.evidence(CONFIG, made(FAST)))
    for early in (False, True):
        at = given.since - timedelta(seconds=1 if early else -1)
        assert judge(given, found, at).after_the_fact == early
    amended = BY_ID["4.9"]
    assert max(each.date for each in amended.amendments) > amended.since > given.since
