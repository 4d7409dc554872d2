"""Verdicts on claims: every rule with doctored rows, and each estimator against numbers computed by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from ketscale.analysis import claims
from ketscale.analysis.claims.estimates import Estimates
from ketscale.analysis.claims.evidence import Evidence
from ketscale.analysis.claims.verdicts import judge
from ketscale.config import Config
from ketscale.grid import Run
from tests import records_factory
from tests.analysis import claims_factory as factory
from tests.analysis.test_claims import BY_ID, MEASURED, numbers_of

# Where the interval overlaps a range, the claim is supported, so a wide one decides.
OVERLAPPING = {claim["id"] for claim in MEASURED if "overlaps" in str(claim["test"])}


def limits(test: Mapping[str, Any], name: str) -> list[float]:
    """The numbers that the conditions compare an estimate with; of an estimate that is compared with others, all."""

    def own(condition: Any) -> Iterator[float]:
        for key, inner in condition.items():
            if key in ("all", "any"):
                yield from itertools.chain(*map(own, inner))
            elif key in ("every", "some", "last"):
                yield from own(inner)
            elif key == name:
                yield from numbers_of(inner)

    conditions = (test["supported"], test["refuted"])
    found = set(itertools.chain(*map(own, conditions)))
    return sorted(found or set(itertools.chain(*map(numbers_of, conditions))))


def candidates(test: Mapping[str, Any], name: str) -> list[float]:
    """Values below, between and above an estimate's limits."""
    known = limits(test, name)
    return [known[0] / 2, *(math.sqrt(a * b) for a, b in itertools.pairwise(known)), 1.5 * known[-1]]


def combinations(test: Mapping[str, Any]) -> Iterator[dict[str, float]]:
    """Every combination of the candidates of all estimates."""
    names = list(test["estimates"])
    # Two estimates of the same runs cannot have any values, so some are left to follow.
    for values in itertools.product(*([*candidates(test, name), None] for name in names)):
        yield {name: value for name, value in zip(names, values, strict=True) if value is not None}


@pytest.mark.parametrize("claim", MEASURED, ids=lambda claim: claim["id"])
def test_every_claim_can_be_supported_and_refuted(claim: dict[str, Any]) -> None:
    wanted = {"supported", "refuted"}
    # The study of 0.7 lacks one of its simulators, so that it is supplied here.
    judged = {**claim, "test": _only_fused(claim["test"])} if claim["id"] == "0.7" else claim
    for targets in combinations(judged["test"]):
        found = judge(judged, factory.doctored(judged, targets))
        if found.verdict in wanted:
            assert found.reading is not None and found.hardware == factory.HOST and found.records
            assert found.reading.estimate is not None and found.reading.estimate.low is not None
        wanted.discard(found.verdict)
        if not wanted:
            break
    assert not wanted


@pytest.mark.parametrize("claim", MEASURED, ids=lambda claim: claim["id"])
def test_no_claim_is_decided_by_two_seeds(claim: dict[str, Any]) -> None:
    test = claim["test"]
    whole = (targets for targets in combinations(test) if targets.keys() == test["estimates"].keys())
    for targets in itertools.islice(whole, 9):
        found = judge(claim, factory.doctored(claim, targets, seeds=2))
        assert found.verdict == ("not measured" if claim["id"] == "0.7" else "undecided")
        assert claim["id"] == "0.7" or "2 seeds; an interval needs 3" in found.reason


@pytest.mark.parametrize(
    "claim", [c for c in MEASURED if c["id"] not in OVERLAPPING], ids=lambda claim: claim["id"]
)
def test_no_claim_is_decided_by_an_interval_that_covers_its_thresholds(claim: dict[str, Any]) -> None:
    test = claim["test"]
    targets = {name: math.sqrt(limits(test, name)[0] * limits(test, name)[-1]) for name in test["estimates"]}
    found = judge(claim, factory.doctored(claim, targets, spread=factory.WIDE))
    assert found.verdict == "undecided"
    assert found.reason and found.records


@pytest.mark.parametrize("claim", MEASURED, ids=lambda claim: claim["id"])
def test_what_has_not_been_run_is_named(claim: dict[str, Any]) -> None:
    config = factory.config_of(claim)
    unrun = dict.fromkeys(config.runs, "missing (not run yet)")
    found = judge(claim, factory.evidence(config, [], why=unrun))
    assert (found.verdict, found.records) == ("not measured", ())
    assert "missing (not run yet)" in found.reason
    elsewhere = judge(claim, factory.evidence(factory.ready_made("eegmmidb.yaml"), []))
    assert elsewhere.verdict == "not measured"
    assert elsewhere.reason.startswith("run workflow/studies/")


def _only_fused(test: Mapping[str, Any]) -> dict[str, Any]:
    fused = {
        name: {**spec, "runs": {**spec["runs"], "simulator": ["fused"]}}
        for name, spec in test["estimates"].items()
    }
    return {**test, "estimates": fused}


def test_what_needs_no_run_is_decided_in_every_config() -> None:
    empty = factory.evidence(factory.ready_made(""), [])
    found = {number: judge(claim, empty) for number, claim in BY_ID.items() if claim not in MEASURED}
    decided = {number: verdict.verdict for number, verdict in found.items() if "test" in BY_ID[number]}
    assert decided == {
        "0.5": "refuted", "0.11": "refuted", "0.15": "refuted", "1.5": "refuted", "4.2": "supported",
    }  # fmt: skip
    assert found["0.5"].reason == "steps = ceil(1492 / 128) = 12"
    assert found["0.12"].reason.startswith("By argument.")


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


def claim(test: Mapping[str, Any]) -> dict[str, Any]:
    """A claim about the study."""
    return {"id": "9.9", "study": "strong", "needs": ["time"], "test": test}


def simple(supported: Any, refuted: Any, spec: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A claim with one estimate, called x."""
    return claim({"estimates": {"x": spec}, "supported": supported, "refuted": refuted, **more})


RATIO = simple({"x": {"above": 1.5}}, {"x": {"below": 1.2}}, {"ratio": "step_s", "of": ONE, "over": TWO})
FAST = {"cpu-n1r1t1": [2.0, 4.0, 8.0], "mpi-n1r2t1": [1.0, 2.2, 3.8]}


def read(spec: Mapping[str, Any], evidence: Evidence, **test: Any) -> Any:
    """The reading of one estimate."""
    made = {
        "estimates": {"x": spec},
        "supported": {"x": {"above": 0}},
        "refuted": {"x": {"below": 0}},
        **test,
    }
    return Estimates(made, ["strong"], evidence).read("x", {})


def test_a_ratio_is_the_geometric_mean_of_ratios_paired_by_seed() -> None:
    found = read(RATIO["test"]["estimates"]["x"], factory.evidence(CONFIG, rows(FAST))).estimate
    logs = [math.log(2.0), math.log(4 / 2.2), math.log(8 / 3.8)]
    mean = sum(logs) / 3
    # The 97.5 % quantile of Student's t with two degrees of freedom, in closed form.
    half = (
        0.95
        / math.sqrt(2 * 0.975 * 0.025)
        * math.sqrt(sum((each - mean) ** 2 for each in logs) / 2)
        / math.sqrt(3)
    )
    expected = math.exp(mean), math.exp(mean - half), math.exp(mean + half), 3
    assert (found.value, found.low, found.high, found.n) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("efficiency", [1.0, 4 / 4.4, 8 / 7.6]),
        ("reduction", [1 - 0.5, 1 - 2.2 / 4, 1 - 3.8 / 8]),
        ("difference", [1.0, 1.8, 4.2]),
    ],
)
def test_what_else_is_made_of_pairs(kind: str, values: list[float]) -> None:
    spec = {kind: "step_s", "of": ONE, "over": TWO}
    found = read(spec, factory.evidence(CONFIG, rows(FAST)), every_seed=True).estimate
    assert (found.low, found.high) == pytest.approx((min(values), max(values)), rel=1e-12)
    mean = math.prod(values) ** (1 / 3) if kind == "efficiency" else sum(values) / 3
    assert found.value == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        ("step_s", 1.0),
        ("span a", 0.3),
        ("span a + never", 0.3),
        ("share a + b", 0.9 / 1.5),
        ("lead a", 0.3 / 0.6),
        ("lead b", 0.6 / 0.3),
    ],
)
def test_columns_and_spans(quantity: str, value: float) -> None:
    spans = {"a": 0.3, "b": 0.6, "c.total": 9.0}
    records = {run: factory.record(step_s=1.5, **spans) for run in runs(layout="cpu-n1r1t1")}
    evidence = factory.evidence(CONFIG, rows({"cpu-n1r1t1": [1.0] * 3}), records)
    found = read({"value": quantity, "runs": ONE}, evidence).estimate
    assert (found.value, found.low, found.high) == pytest.approx((value, value, value), rel=1e-12)


def test_losses_are_compared_seed_by_seed() -> None:
    apart = {0: 1e-6, 1: -2e-6, 2: 0.0}
    records = {run: factory.record((1 + apart.get(run.seed, 0), 0.5)) for run in runs(layout="mpi-n1r2t1")}
    evidence = factory.evidence(CONFIG, rows(FAST), records)
    found = read({"losses": "first", "of": TWO, "over": ONE}, evidence).estimate
    assert (found.value, found.low, found.high, found.n) == pytest.approx((2e-6, 0.0, 2e-6, 3), rel=1e-9)
    for limit, fault in ((2.1e-6, ""), (1e-6, "its first losses differ by 2.0e-06, over 1e-06")):
        spec = {"ratio": "step_s", "of": TWO, "over": ONE}
        assert read(spec, evidence, same_losses=limit).fault == fault
    differing = {**RATIO, "test": {**RATIO["test"], "same_losses": 1e-6}}
    assert judge(RATIO, evidence).verdict == "supported"
    assert judge(differing, evidence).verdict == "undecided"


@pytest.mark.parametrize(
    ("relation", "bound", "holds"),
    [
        ("below", 2.0, False), ("below", 2.1, True), ("at_most", 2.0, True), ("at_most", 1.9, False),
        ("above", 1.0, False), ("above", 0.9, True), ("at_least", 1.0, True), ("at_least", 1.1, False),
        ("within", [1.0, 2.0], True), ("within", [1.1, 2.0], False), ("within", [1.0, 1.9], False),
        ("outside", [2.1, 3.0], True), ("outside", [0.1, 0.9], True), ("outside", [2.0, 3.0], False),
        ("overlaps", [2.0, 3.0], True), ("overlaps", [0.5, 1.0], True), ("overlaps", [2.1, 3.0], False),
    ],
)  # fmt: skip
def test_relations_are_about_the_whole_interval(relation: str, bound: Any, holds: bool) -> None:
    never = {"x": {"above": 1e9}}
    made = simple({"x": {relation: bound}}, never, {"value": "step_s", "runs": ONE}, every_seed=True)
    evidence = factory.evidence(CONFIG, rows({"cpu-n1r1t1": [1.0, 1.5, 2.0]}))
    assert judge(made, evidence).verdict == ("supported" if holds else "undecided")


def test_groups_and_their_quantifiers() -> None:
    spec = {"ratio": "step_s", "of": {**ONE, "ranks": 1}, "over": {"backend": "mpi"}}
    times = {"cpu-n1r1t1": [4.0] * 3, "mpi-n1r2t1": [4.0] * 3, "mpi-n1r4t1": [1.0] * 3}
    evidence = factory.evidence(CONFIG, rows(times))
    never = {"x": {"above": 100}}
    for word, holds in (("every", False), ("some", True), ("last", True)):
        made = simple({word: {"x": {"above": 3}}}, never, spec, each=["ranks"])
        found = judge(made, evidence)
        assert found.verdict == ("supported" if holds else "undecided")
    assert "x (ranks 4) 4 (4 to 4)" in found.reason
    # With two ranks alone, some and last are still open, and every is not.
    part = factory.evidence(
        CONFIG, rows({name: times[name] for name in list(times)[:2]}), why=dict.fromkeys(CONFIG.runs, "missing (not run yet)")
    )  # fmt: skip
    made = simple(never, {"some": {"x": {"below": 3}}}, spec, each=["ranks"])
    assert judge(made, part).verdict == "refuted"
    made = simple(never, {"last": {"x": {"below": 3}}}, spec, each=["ranks"])
    assert judge(made, part).verdict == "not measured"
    assert "layout mpi-n1r4t1" not in judge(made, part).reason
    assert "x (ranks 4): backend mpi, ranks 4 missing (not run yet)" in judge(made, part).reason


def test_nothing_is_asked_for_that_could_not_decide() -> None:
    test = {
        "estimates": {"x": {"value": "step_s", "runs": ONE}, "y": {"value": "step_s", "runs": TWO}},
        "supported": {"x": {"above": 2}, "y": {"above": 2}},
        "refuted": {"x": {"below": 1}},
    }
    for x, verdict in ((1.5, "undecided"), (3.0, "not measured"), (0.5, "refuted")):
        evidence = factory.evidence(CONFIG, rows({"cpu-n1r1t1": [x] * 3}))
        assert judge(claim(test), evidence).verdict == verdict


def test_an_estimate_may_be_the_bound_of_another() -> None:
    test = {
        "estimates": {"x": {"value": "step_s", "runs": ONE}, "y": {"value": "step_s", "runs": TWO}},
        "supported": {"x": {"above": "y"}},
        "refuted": {"x": {"overlaps": "y"}},
        "every_seed": True,
    }
    for x, verdict in (
        ([3.0, 4.0, 5.0], "supported"),
        ([2.0, 4.0, 5.0], "refuted"),
        ([0.1, 0.2, 0.3], "undecided"),
    ):
        evidence = factory.evidence(CONFIG, rows({"cpu-n1r1t1": x, "mpi-n1r2t1": [1.0, 1.5, 2.0]}))
        assert judge(claim(test), evidence).verdict == verdict


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"quiet": False}, "layout mpi-n1r2t1 busy"),
        ({"timed": False}, "untimed"),
        ({"status": "diverged"}, "no usable run (diverged)"),
        ({"shared_cores": True}, "no run as demanded (shared_cores is True)"),
        ({"shared_cores": None}, "no run as demanded (shared_cores is None)"),
    ],
)
def test_runs_that_do_not_count(change: dict[str, Any], why: str) -> None:
    demanding = {**RATIO, "test": {**RATIO["test"], "records": {"shared_cores": False}}}
    good = rows(FAST)
    assert judge(demanding, factory.evidence(CONFIG, good)).verdict == "supported"
    spoilt = [each | (change if each["layout"] == "mpi-n1r2t1" else {}) for each in good]
    found = judge(demanding, factory.evidence(CONFIG, spoilt))
    assert found.verdict == "not measured"
    assert why in found.reason


def test_results_of_a_test_count_whatever_the_clock_says() -> None:
    lost = simple(
        {"x": {"above": 0.1}}, {"x": {"below": 0}}, {"difference": "test_accuracy", "of": ONE, "over": TWO}
    )
    of = {"cpu-n1r1t1": 0.9, "mpi-n1r2t1": 0.7}
    told = [
        each | {"test_accuracy": of[each["layout"]], "quiet": each["seed"] == 0, "resumed": each["seed"] // 2}
        for each in rows(FAST)
    ]
    found = judge(lost, factory.evidence(CONFIG, told))
    assert found.verdict == "supported"
    assert found.reading is not None and found.reading.estimate is not None and found.reading.estimate.n == 3


def test_one_busy_seed_of_four_is_left_out() -> None:
    four = {name: [*values, 100.0] for name, values in FAST.items()}
    spoilt = [each | {"quiet": each["seed"] != 3} for each in rows(four)]
    found = judge(RATIO, factory.evidence(CONFIG, spoilt))
    assert found == judge(RATIO, factory.evidence(CONFIG, rows(FAST)))
    assert found.reading is not None and found.reading.estimate is not None and found.reading.estimate.n == 3


def test_hosts_are_never_mixed() -> None:
    first, second = rows(FAST), rows({"cpu-n1r1t1": [0] * 3, "mpi-n1r2t1": [0] * 3}, hardware="B")
    mixed = [
        a if a["layout"] == "cpu-n1r1t1" else b | {"step_s": 1.0} for a, b in zip(first, second, strict=True)
    ]
    found = judge(RATIO, factory.evidence(CONFIG, mixed))
    assert found.verdict == "not measured"
    assert "measured on another host" in found.reason
    # Three seeds on one host, and two on another, which say nothing.
    five = {"cpu-n1r1t1": [2.0, 4.0, 8.0, 1.0, 1.0], "mpi-n1r2t1": [1.0, 2.2, 3.8, 9.0, 9.0]}
    apart = [each | {"hardware": "B" if each["seed"] > 2 else "A"} for each in rows(five)]
    found = judge(RATIO, factory.evidence(CONFIG, apart))
    assert (found.verdict, found.hardware, len(found.records)) == ("supported", "A", 6)
    assert found.reading is not None and found.reading.estimate is not None and found.reading.estimate.n == 3


def test_hosts_that_contradict_each_other_decide_nothing() -> None:
    six = records_factory.small_config(
        {"strong": {**STUDY, "axes": {**STUDY["axes"], "seed": [0, 1, 2, 3, 4, 5]}}}
    )
    made = [
        factory.row(six, run, step_s=2.0 if run.ranks == 1 and run.seed < 3 else 1.0, hardware="A" if run.seed < 3 else "B")
        for run in six.runs
    ]  # fmt: skip
    found = judge(RATIO, factory.evidence(six, made))
    assert (found.verdict, found.reason) == ("undecided", "hosts differ: supported on A; refuted on B")


def test_rows_of_other_models_and_ambiguous_filters_decide_nothing() -> None:
    other = {**RATIO, "test": {**RATIO["test"], "runs": {"model": "hydra"}}}
    evidence = factory.evidence(CONFIG, rows(FAST))
    assert judge(other, evidence).reason == "run config.yaml (strong); it needs time"
    vague = simple({"x": {"above": 1}}, {"x": {"below": 1}}, {"value": "step_s", "runs": {"backend": "mpi"}})
    assert judge(vague, evidence).verdict == "undecided"
    assert "several points of the study" in judge(vague, evidence).reason
    absent = {**ONE, "layers": 7}
    unplanned = simple(
        {"x": {"above": 1}}, {"x": {"below": 1}}, {"ratio": "step_s", "of": absent, "over": ONE}
    )
    assert "layers 7 not in the study; run config.yaml (strong)" in judge(unplanned, evidence).reason


def test_the_table_has_the_verdict_its_effect_and_its_records() -> None:
    known = [claim for claim in claims.load() if claim["id"] in ("4.2", "4.3", "2.7")]
    three = {claim["id"]: claim for claim in known}
    found = {
        row["id"]: row for row in claims.table(known, factory.doctored(three["4.3"], {"speedup": 600.0}))
    }
    assert all(tuple(row) == claims.COLUMNS for row in found.values())
    measured = found["4.3"]
    assert (measured["verdict"], measured["effect_of"], measured["n"]) == ("refuted", "speedup", 3)
    assert measured["low"] < measured["effect"] < measured["high"] and measured["low"] > 590
    assert measured["reason"].startswith("speedup 600 (")
    assert len(measured["records"].split()) == 6
    assert all(path.startswith("results-control/runs/") for path in measured["records"].split())
    assert (found["4.2"]["verdict"], found["4.2"]["effect"], found["4.2"]["n"]) == ("supported", 4000.0, None)
    assert (found["2.7"]["verdict"], found["2.7"]["effect"]) == ("not testable as stated", None)


def test_numbers_stay_numbers_of_the_claim() -> None:
    rows = {row["id"]: row for row in claims.table(claims.load(), factory.evidence(CONFIG, []))}
    assert rows["1.4"]["number"] == "loop + parameter-shift over Lightning + adjoint: 2 to 10 x"
    assert rows["1.4"]["verdict"] == "not measured"
