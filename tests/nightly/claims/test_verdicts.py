"""Verdicts on claims: every rule with doctored rows, and each reader against numbers computed by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks import claims
from benchmarks.claims import readings, rules
from benchmarks.claims.ledger import MORE, REFUTED, SUPPORTED, Claim, Rule
from benchmarks.claims.readings import Finding, Reader, Reading, Spans, every, some
from benchmarks.claims.verdicts import judge
from ketscale.analysis import comparison
from ketscale.analysis.comparison import Collected
from ketscale.analysis.intervals import FEWEST, LEVEL
from ketscale.config import Config
from ketscale.grid import Run
from tests import records_factory
from tests.nightly.claims import factory
from tests.nightly.claims.test_claims import BY_ID, MEASURED


def combinations(claim: Claim) -> Iterator[dict[str, float]]:
    """Every combination of values below, between and above the thresholds of each reading."""
    bounds = factory.bounds(claim)
    values = [
        [bound[0] / 2, *(math.sqrt(a * b) for a, b in itertools.pairwise(bound)), 1.5 * bound[-1], None]
        for bound in bounds.values()
    ]
    # Two readings of the same runs cannot have any values, so some are left to follow.
    for combination in itertools.product(*values):
        named = zip(bounds, combination, strict=True)
        yield {name: value for name, value in named if value is not None}


def judged(claim: Claim, evidence: Collected, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The verdict; the study of 0.7 lacks one of its simulators, of which it is not asked here."""
    if claim.id == "0.7":
        each = Reader.each
        monkeypatch.setattr(Reader, "each", lambda self, name, *values: each(self, name, values[0]))
    return judge(claim, evidence)


EQUAL = dict.fromkeys(factory.CLOSE, 1.0)


@pytest.mark.parametrize(
    ("claim", "spread"),
    [
        *(pytest.param(claim, factory.CLOSE, id=claim.id) for claim in MEASURED),
        pytest.param(BY_ID["4.5"], EQUAL, id="what a simulator is like, equal for all seeds"),
    ],
)
def test_every_claim_can_have_every_verdict_of_its_rule(
    claim: Claim, spread: Mapping[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {SUPPORTED, REFUTED} | ({MORE} if claim.rule.more else set())
    for targets in combinations(claim):
        result = judged(claim, factory.doctored(claim, targets, spread), monkeypatch)
        if result.verdict in expected:
            assert result.reading is not None and result.hardware == factory.HOST and result.records
            assert result.reading.estimate is not None and result.reading.estimate.low is not None
        expected.discard(result.verdict)
        if not expected:
            break
    assert not expected


@pytest.mark.parametrize("claim", MEASURED, ids=lambda claim: claim.id)
def test_no_claim_is_decided_by_an_interval_that_covers_its_thresholds(claim: Claim) -> None:
    targets = {name: math.sqrt(bound[0] * bound[-1]) for name, bound in factory.bounds(claim).items()}
    result = judge(claim, factory.doctored(claim, targets, spread=factory.WIDE))
    assert result.verdict == "undecided"
    assert result.reason and result.records


@pytest.mark.parametrize("claim", MEASURED[::6], ids=lambda claim: claim.id)
def test_what_has_not_been_run_is_named(claim: Claim) -> None:
    config = factory.config_of(claim)
    unrun = dict.fromkeys(config.runs, "missing (not run yet)")
    result = judge(claim, factory.evidence(config, [], why=unrun))
    assert (result.verdict, result.records) == ("not measured", ())
    assert "missing (not run yet)" in result.reason
    assert claim in claims.tested(config)
    other = factory.ready_made("eegmmidb.yaml")
    assert claims.tested(other) == []
    result = judge(claim, factory.evidence(other, []))
    assert result.verdict == "not measured" and "not in the study" in result.reason


def test_a_record_that_is_older_than_its_rule_decides_after_the_fact() -> None:
    claim = BY_ID["4.3"]
    new = factory.doctored(claim, {"speedup": 3.0})
    supported = judge(claim, new)
    assert (supported.verdict, supported.after_the_fact) == ("supported", False)
    assert supported.subject == "policy-1 by literal on CPU, policy-1 by rk4-0.01-torch on CPU"
    assert claim.since == datetime(2026, 11, 26, 20, 30, tzinfo=UTC) > claim.committed
    before = replace(factory.record(), started=datetime(2026, 11, 26, 20, 29, tzinfo=UTC))
    old = factory.evidence(new.config, rows_of(new), dict.fromkeys(new.records, before))
    amended = replace(claim.amendments[-1], verdict="refuted")
    result = judge(replace(claim, amendments=[*claim.amendments[:-1], amended]), old)
    assert (result.verdict, result.after_the_fact, result.records) == ("supported", True, supported.records)
    assert result.reason.startswith(
        "after the fact (its rule is of 2026-11-26, by the words before it refuted): speedup 3 ("
    )


# By hand: two ranks beside one, and threads, of one model.
POINT = records_factory.point(seed=[0, 1, 2, 3, 4])
STUDY = {
    "kind": "strong",
    "question": "?",
    "axes": {**POINT, "backend": ["cpu-n1r1t1", "cpu-n1r1t2", "mpi-n1r2t1", "mpi-n1r4t1"]},
}
CONFIG = records_factory.small_config({"strong": STUDY})
ONE, TWO = {"layout": "cpu-n1r1t1"}, {"layout": "mpi-n1r2t1"}


def runs(config: Config = CONFIG, **wanted: Any) -> list[Run]:
    """The runs of a config with these values, by seed."""
    return [run for run in config.runs if all(getattr(run, name) == value for name, value in wanted.items())]


def rows(layouts: Mapping[str, Sequence[Any]], column: str = "step_s", **more: Any) -> list[dict[str, Any]]:
    """Rows of layouts with a value of a column for each seed from 0."""
    return [
        factory.row(CONFIG, run, **{column: value}, **more)
        for layout, values in layouts.items()
        for run, value in zip(runs(layout=layout), values, strict=False)
    ]


def read(evidence: Collected, reader: Callable[[Reader], Reading], **thresholds: Any) -> Reading:
    """What a reader of the study reads."""
    return reader(Reader(claim(**thresholds), evidence))


def rows_of(evidence: Collected) -> list[Mapping[str, Any]]:
    """All rows of some evidence."""
    return list(itertools.chain(*evidence.points.values()))


def claim(**thresholds: Any) -> Claim:
    """A claim about the study."""
    return claims.Claim(
        id="9.9",
        statement="Two ranks are faster.",
        source="a test",
        committed=datetime(2026, 1, 1, tzinfo=UTC),
        study="strong",
        estimator="The ratio of steps.",
        rule=Rule(supported="it is above 1.5", refuted="it is below 1.2"),
        smallest_effect="1.1 x",
        needs=["time"],
        thresholds={"supported": 1.5, "refuted": 1.2, **thresholds},
    )


@pytest.fixture
def ruled(monkeypatch: pytest.MonkeyPatch) -> Callable[[rules.Rule], None]:
    """Makes a rule that of the claim."""
    return lambda rule: monkeypatch.setattr(rules, "claim_9_9", rule, raising=False)


def ratio(runs: Reader) -> Reading:
    return runs.ratio("x", "step_s", ONE, TWO)


@pytest.fixture
def of_ratio(ruled: Callable[[rules.Rule], None]) -> None:
    """The rule of the ratio of one rank over two."""
    ruled(lambda runs: rules.higher([ratio(runs)]))


# The 97.5 % quantile of Student's t with two degrees of freedom, in closed form.
STUDENT = 0.95 / math.sqrt(2 * 0.975 * 0.025)
FAST = {"cpu-n1r1t1": [2.0, 4.0, 8.0], "mpi-n1r2t1": [1.0, 2.2, 3.8]}


def test_a_ratio_is_the_geometric_mean_of_ratios_paired_by_seed() -> None:
    result = read(factory.evidence(CONFIG, rows(FAST)), ratio).estimate
    logs = [math.log(2.0), math.log(4 / 2.2), math.log(8 / 3.8)]
    mean = sum(logs) / 3
    deviation = math.sqrt(sum((each - mean) ** 2 for each in logs) / 2)
    half = STUDENT * deviation / math.sqrt(3)
    assert result is not None
    expected = math.exp(mean), math.exp(mean - half), math.exp(mean + half), 3
    assert (result.value, result.low, result.high, result.n) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        ("step_s", 1.0),
        (Spans("a"), 0.3),
        (Spans("a", "never"), 0.3),
        (Spans("a", "b", over="the step"), 0.9 / 1.5),
        (Spans("a", over="the largest other"), 0.3 / 0.6),
        (Spans("b", over="the largest other"), 0.6 / 0.3),
    ],
    ids=str,
)
def test_columns_and_spans(quantity: readings.Quantity, value: float) -> None:
    """Three equal times do not show that there is no noise: their interval is that of the least that is believed."""
    spans = {"a": 0.3, "b": 0.6, "c.total": 9.0}
    records = {run: factory.record(step_s=1.5, **spans) for run in runs(layout="cpu-n1r1t1")}
    evidence = factory.evidence(CONFIG, rows({"cpu-n1r1t1": [1.0] * 3}), records)
    result = read(evidence, lambda runs: runs.of(**ONE).value("x", quantity)).estimate
    assert result is not None
    half = STUDENT * comparison.RESOLUTION / math.sqrt(3)
    ends = value * math.exp(-half), value * math.exp(half)
    assert (result.value, result.low, result.high) == pytest.approx((value, *ends), rel=1e-12)


@pytest.mark.parametrize(("reading", "end"), [
    (lambda runs: runs.of(**ONE).value("x", "test_error"), None),
    (lambda runs: runs.ratio("x", "test_error", ONE, TWO), None),
    (lambda runs: runs.of(**ONE).value("x", "test_negativity"), 0.25),
    (lambda runs: runs.ratio("x", "test_simulator_error", ONE, TWO), 1.0),
    (lambda runs: runs.of(**ONE).value("x", Spans("never")), 0.0),
    (lambda runs: runs.of(**ONE).value("x", Spans("never", over="the step")), 0.0),
])  # fmt: skip
@pytest.mark.parametrize("seeds", [2, 3])
def test_equal_results_of_all_seeds_have_an_interval_only_where_chance_has_no_part_in_them(
    reading: Callable[[Reader], Reading], end: float | None, seeds: int
) -> None:
    results: dict[str, Any] = dict.fromkeys(("test_error", "test_negativity", "test_simulator_error"), 0.25)
    equal = rows({"cpu-n1r1t1": [1.0] * seeds, "mpi-n1r2t1": [1.0] * seeds}, **results)
    records = {run: factory.record(a=0.3) for run in runs()}
    result = read(factory.evidence(CONFIG, equal, records), reading)
    assert result.estimate is not None
    if seeds < FEWEST:
        assert result.estimate.low is None and result.fault == "2 seeds; an interval needs 3"
    elif end is None:
        assert result.estimate.low is None and result.fault == "all seeds are equal, so there is no interval"
    else:
        assert result.fault == "" and result.ends(LEVEL) == result.ends(0.99) == (result.estimate.value,) * 2
        assert result.estimate.value == pytest.approx(end)


@pytest.mark.parametrize(
    ("decide", "alone", "verdict"),
    [
        # One comparison has an interval above 1.9 at 95 %; at 97.5 %, as each of two that some joins, it has not.
        (lambda fast, slow: fast.above("fast"), True, "supported"),
        (lambda fast, slow: some((fast.above("fast"), slow.above("fast"))), True, "undecided"),
        (lambda fast, slow: every((fast.above("fast"), slow.below("slow"))), True, "supported"),
        (lambda fast, slow: some((fast.above("less"), slow.above("less"))), True, "supported"),
        (lambda fast, slow: some((some((fast.above("less"), slow.above("less"))), slow.above("less"))), True, "undecided"),
        # Two hosts are two chances.
        (lambda fast, slow: fast.above("fast"), False, "undecided"),
        (lambda fast, slow: fast.above("less"), False, "supported"),
    ],
)  # fmt: skip
def test_what_some_joins_holds_together(
    ruled: Callable[[rules.Rule], None], decide: Callable[[Reading, Reading], Any], alone: bool, verdict: str
) -> None:
    def rule(runs: Reader) -> rules.Ruling:
        fast, slow = (
            runs.ratio(name, "step_s", ONE, {"layout": name}) for name in ("mpi-n1r2t1", "mpi-n1r4t1")
        )
        return {SUPPORTED: decide(fast, slow), REFUTED: never(fast)}

    ruled(rule)
    # Ratios around 2: by Student's t with two degrees of freedom the ends are 1.914 (95 %), 1.879 (97.5 %) and 1.829.
    noisy = [2.0 * math.exp(0.01774 * each) for each in (-1, 0, 1)]
    times = {"cpu-n1r1t1": noisy, "mpi-n1r2t1": [1.0] * 3, "mpi-n1r4t1": noisy}
    copies = rows(times) if alone else [each | {"hardware": host} for host in "AB" for each in rows(times)]
    copies = [each for each in copies if each["hardware"] != "B" or each["layout"] != "mpi-n1r2t1"]
    bounds = {"fast": 1.9, "less": 1.85, "slow": 1.1, "impossible": 1e9}
    assert judge(claim(**bounds), factory.evidence(CONFIG, copies)).verdict == verdict


@pytest.mark.usefixtures("of_ratio")
def test_losses_are_compared_seed_by_seed() -> None:
    offsets = {0: 1e-6, 1: -2e-6, 2: 0.0}
    records = {run: factory.record((1 + offsets.get(run.seed, 0), 0.5)) for run in runs(layout="mpi-n1r2t1")}
    evidence = factory.evidence(CONFIG, rows(FAST), records)
    result = read(evidence, lambda runs: runs.losses("x", TWO, ONE)).estimate
    assert result is not None
    assert (result.value, result.low, result.high, result.n) == pytest.approx((2e-6, 0.0, 2e-6, 3), rel=1e-9)
    for limit, fault in ((2.1e-6, ""), (1e-6, "its first losses differ by 2.0e-06, over 1e-06")):
        assert read(evidence, ratio, same_losses=limit).fault == fault
    assert judge(claim(), evidence).verdict == "supported"
    assert judge(claim(same_losses=1e-6), evidence).verdict == "undecided"


@pytest.mark.parametrize(
    ("relation", "bound", "holds"),
    [
        ("below", 2.0, False), ("below", 2.1, True), ("at_most", 2.0, True), ("at_most", 1.9, False),
        ("above", 1.0, False), ("above", 0.9, True), ("at_least", 1.0, True), ("at_least", 1.1, False),
        ("within", (1.0, 2.0), True), ("within", (1.1, 2.0), False), ("within", (1.0, 1.9), False),
        ("below", (2.1, 3.0), True), ("below", (2.0, 3.0), False), ("above", (0.1, 0.9), True),
        ("above", (0.1, 1.0), False),
    ],
)  # fmt: skip
def test_relations_are_about_the_whole_interval(relation: str, bound: Any, holds: bool) -> None:
    result = Reading("x", claim(bound=bound), claims_estimate(1.0, 2.0))
    assert getattr(result, relation)("bound")(LEVEL).truth is holds


def claims_estimate(low: float, high: float) -> Any:
    return readings.Estimate((low + high) / 2, low, high, 3)


def known(finding: Finding, level: float) -> Finding:
    """What holds or not at every level."""
    return finding


def test_what_is_unknown_is_neither_true_nor_false() -> None:
    reading = Reading("x", claim(), None)
    holds, fails, unknown = (
        partial(known, Finding(truth, reading, (reading,))) for truth in (True, False, None)
    )
    assert [every(each)(LEVEL).truth for each in ((holds, unknown), (fails, unknown), (holds, holds))] == [
        None,
        False,
        True,
    ]
    assert [some(each)(LEVEL).truth for each in ((holds, unknown), (fails, unknown), (fails, fails))] == [
        True,
        None,
        False,
    ]


def test_groups_are_those_that_are_planned(ruled: Callable[[rules.Rule], None]) -> None:
    def ranks(runs: Reader) -> list[Reading]:
        groups = runs.each("ranks", backend="mpi")
        return [each.ratio("x", "step_s", {**ONE, "ranks": 1}, {"backend": "mpi"}) for each in groups]

    times = {"cpu-n1r1t1": [4.0] * 3, "mpi-n1r2t1": [4.0] * 3, "mpi-n1r4t1": [1.0] * 3}
    evidence = factory.evidence(CONFIG, rows(times))
    assert [each.words for each in ranks(Reader(claim(), evidence))] == [
        "x (ranks 2) 1 (0.9877 to 1.012)",
        "x (ranks 4) 4 (3.951 to 4.05)",
    ]
    # With two ranks alone, some and the last are still open, and every is not.
    part = factory.evidence(
        CONFIG, rows({name: times[name] for name in list(times)[:2]}), why=dict.fromkeys(CONFIG.runs, "missing (not run yet)")
    )  # fmt: skip
    for combine, verdict in (
        (lambda result: every(x.above("supported") for x in result), "undecided"),
        (lambda result: some(x.above("supported") for x in result), "not measured"),
        (lambda result: result[-1].above("supported"), "not measured"),
        (lambda result: some(x.below("refuted") for x in result), "supported"),
    ):
        ruled(lambda runs, combine=combine: {SUPPORTED: combine(ranks(runs)), REFUTED: never(ranks(runs)[0])})  # type: ignore[misc]
        result = judge(claim(impossible=1e9), part)
        assert result.verdict == verdict
        assert "layout mpi-n1r4t1" not in result.reason
    ruled(lambda runs: {SUPPORTED: ranks(runs)[-1].above("supported"), REFUTED: never(ranks(runs)[0])})
    assert "x (ranks 4): backend mpi missing (not run yet)" in judge(claim(impossible=1e9), part).reason


def never(reading: Reading) -> Finding:
    return reading.above("impossible")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"quiet": False}, "layout mpi-n1r2t1 busy"),
        ({"timed": False}, "untimed"),
        ({"status": "diverged"}, "no usable run (diverged)"),
        ({"shared_cores": True}, "no run with cores of its own (shared)"),
        ({"shared_cores": None}, "no run with cores of its own (perhaps shared)"),
    ],
)
def test_runs_that_do_not_count(
    ruled: Callable[[rules.Rule], None], change: dict[str, Any], why: str
) -> None:
    ruled(lambda runs: rules.higher([ratio(runs.on_own_cores())]))
    good = rows(FAST)
    assert judge(claim(), factory.evidence(CONFIG, good)).verdict == "supported"
    spoilt = [each | (change if each["layout"] == "mpi-n1r2t1" else {}) for each in good]
    result = judge(claim(), factory.evidence(CONFIG, spoilt))
    assert result.verdict == "not measured"
    assert why in result.reason


@pytest.mark.usefixtures("of_ratio")
def test_runs_of_other_code_decide_nothing() -> None:
    spoilt = [each | {"packages": f"torch=2.{each['ranks']}"} for each in rows(FAST)]
    result = judge(claim(), factory.evidence(CONFIG, spoilt))
    assert (result.verdict, result.reason) == ("undecided", "x: other packages (torch 2.1 and 2.2)")


def test_results_of_a_test_count_whatever_the_clock_says(ruled: Callable[[rules.Rule], None]) -> None:
    ruled(lambda runs: rules.higher([runs.difference("x", ONE, TWO)]))
    changed = [each | {"quiet": each["seed"] == 0, "resumed": each["seed"] // 2} for each in rows(FAST)]
    records = {
        run: factory.tested(factory.record(), share)
        for layout, share in (("cpu-n1r1t1", 0.9), ("mpi-n1r2t1", 0.7))
        for run in runs(layout=layout)
    }
    result = judge(claim(supported=0.1, refuted=0), factory.evidence(CONFIG, changed, records))
    assert result.verdict == "supported"
    assert result.reading is not None and result.reading.estimate is not None
    assert (result.reading.estimate.value, result.reading.estimate.n) == (pytest.approx(0.2), 3)
    # A host or a precision of its own changes the times of a side, but not what it has learned; data and splits do.
    for change, why in (
        ({"hardware": "B"}, ""), ({"precision": "fp32"}, ""), ({"data_hash": "b"}, "other data"),
        ({"split": "trials"}, "other splits (subjects and trials)"), ({"packages": "torch=3"}, "other packages"),
    ):  # fmt: skip
        same = {"data_hash": "a", "split": "subjects", "packages": "torch=2"}
        spoilt = [each | same | (change if each["layout"] == "mpi-n1r2t1" else {}) for each in changed]
        reading = read(factory.evidence(CONFIG, spoilt, records), lambda runs: runs.difference("x", ONE, TWO))
        assert reading.fault.startswith(why) and bool(reading.fault) == bool(why)


@pytest.mark.usefixtures("of_ratio")
def test_one_busy_seed_of_four_is_left_out() -> None:
    four = {name: [*values, 100.0] for name, values in FAST.items()}
    spoilt = [each | {"quiet": each["seed"] != 3} for each in rows(four)]
    value = judge(claim(), factory.evidence(CONFIG, spoilt))
    assert value == judge(claim(), factory.evidence(CONFIG, rows(FAST)))
    assert value.reading is not None and value.reading.estimate is not None and value.reading.estimate.n == 3


@pytest.mark.usefixtures("of_ratio")
def test_three_seeds_that_are_left_of_seven_decide_nothing() -> None:
    seven = records_factory.small_config(
        {"strong": {**STUDY, "axes": {**STUDY["axes"], "seed": list(range(7))}}}
    )
    values = [
        factory.row(seven, run, status="completed" if run.seed < 3 else "diverged", step_s=3.0 / run.ranks) for run in seven.runs
    ]  # fmt: skip
    assert "most seeds failed" in judge(claim(), factory.evidence(seven, values)).reason
    one_less = [row for row in values if row["seed"] < 6]
    assert judge(claim(), factory.evidence(seven, one_less)).verdict == "supported"


@pytest.mark.usefixtures("of_ratio")
def test_hosts_are_never_mixed() -> None:
    first, second = rows(FAST), rows({"cpu-n1r1t1": [0] * 3, "mpi-n1r2t1": [0] * 3}, hardware="B")
    mixed = [
        a if a["layout"] == "cpu-n1r1t1" else b | {"step_s": 1.0} for a, b in zip(first, second, strict=True)
    ]
    value = judge(claim(), factory.evidence(CONFIG, mixed))
    assert value.verdict == "not measured"
    assert "measured on another host" in value.reason
    # Three seeds on one host, and two on another, which say nothing.
    five = {"cpu-n1r1t1": [2.0, 4.0, 8.0, 1.0, 1.0], "mpi-n1r2t1": [1.0, 2.2, 3.8, 9.0, 9.0]}
    hosts = [each | {"hardware": "B" if each["seed"] > 2 else "A"} for each in rows(five)]
    value = judge(claim(), factory.evidence(CONFIG, hosts))
    assert (value.verdict, value.hardware, len(value.records)) == ("supported", "A", 6)
    assert value.reading is not None and value.reading.estimate is not None and value.reading.estimate.n == 3


def test_a_claim_about_devices_may_be_of_the_hosts_that_have_them() -> None:
    claim = BY_ID["1.1"]
    complete = factory.doctored(claim, {"slowdown": 2.0})
    rows = [{**row, "hardware": "C" if row["backend"] == "cpu" else "G"} for row in rows_of(complete)]
    result = judge(claim, factory.evidence(complete.config, rows, complete.records))
    assert (result.verdict, result.hardware) == ("supported", "C and G")
    mixed = [{**row, "hardware": f"{row['hardware']}{row['seed'] % 2}"} for row in rows]
    result = judge(claim, factory.evidence(complete.config, mixed, complete.records))
    assert result.verdict == "undecided" and "other hosts" in result.reason


@pytest.mark.usefixtures("of_ratio")
def test_hosts_that_contradict_each_other_decide_nothing() -> None:
    six = records_factory.small_config(
        {"strong": {**STUDY, "axes": {**STUDY["axes"], "seed": [0, 1, 2, 3, 4, 5]}}}
    )
    values = [
        factory.row(six, run, step_s=2.0 if run.ranks == 1 and run.seed < 3 else 1.0, hardware="A" if run.seed < 3 else "B")
        for run in six.runs
    ]  # fmt: skip
    result = judge(claim(), factory.evidence(six, values))
    assert (result.verdict, result.reason) == ("undecided", "hosts differ: supported on A; refuted on B")


def test_the_table_has_the_verdict_its_effect_and_its_records() -> None:
    result = {
        row["id"]: row
        for row in map(claims.row, claims.judged(factory.doctored(BY_ID["4.3"], {"speedup": 600.0})))
    }
    measured = result["4.3"]
    assert (measured["verdict"], measured["effect_of"], measured["n"]) == ("more than claimed", "speedup", 3)
    assert 590 < measured["low"] < measured["effect"] < measured["high"]
    assert all(path.startswith("results-control/runs/") for path in measured["records"].split())
    assert (result["4.8"]["verdict"], result["4.8"]["effect"]) == ("not measured", None)
