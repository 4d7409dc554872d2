"""What a kind of study says depends on its runs alone: not on their order, the unit of time, or who is called the reference."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketscale.analysis import metrics, verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.comparison import Times
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds import kinds
from ketscale.analysis.kinds.kind import Kind
from ketscale.analysis.kinds.selection import Comparison, Configuration, together
from ketscale.analysis.kinds.speed import SPEED
from ketscale.config import Metric
from ketscale.grid import POINT, Run, Study
from tests.nightly.claims import factory as claims_factory
from tests.unit.analysis.test_speed import CONFIG, row

Row = dict[str, Any]
# Every kind of speed but that of simulators with a step.
KINDS = {name: kind for name, kind in kinds(CONFIG.families).items() if name in {*SPEED, "qubits", "depth"} - {"convergence"}}
# Other points than the usual one on one core, which is the baseline of each kind.
OTHERS: dict[str, list[Row]] = {
    **{
        name: [{"layout": f"mpi-n1r{2**n}t1", "batch": batch << n} for n in (1, 2, 3)]
        for name, batch in (("strong", 0), ("weak", 64), ("break-even", 0))
    },
    "batch": [{"batch": batch} for batch in (16, 128)],
    "qubits": [{"size": "q6-l3", "qubits": 6}, {"size": "q8-l3", "qubits": 8}],
    "depth": [{"size": "q4-l5", "layers": 5}, {"size": "q4-l9", "layers": 9}],
    "features": [{"protocol": "timing-inline", "features": "inline"}],
}
USUAL = [{"simulator": "fused"}, {"layout": "cpu-n1r1t2"}, {"layout": "mpi-n1r2t1"}, {"batch": 32}]
# What every run has recorded beside its times.
RECORD = claims_factory.record()
# What befalls a seed of a point.
FATES = ("completed",) * 6 + ("busy", "diverged", "absent")
SEED = st.integers(0, 10**6)


@dataclass(frozen=True, repr=False)
class Studied:
    """Rows of runs.csv, and what a study of this kind makes of them."""

    kind: Kind
    rows: Sequence[Row]
    asked: Sequence[Row]

    def told(self, rows: Sequence[Row] | None = None) -> list[Row]:
        """Its rows of speed.csv; rows: others in place of its own."""
        study = Study("s", self.kind.name, "?", tuple(Run.of(each) for each in self.asked))
        rows = self.rows if rows is None else rows
        collected = Collected.of(CONFIG, rows, (), {Run.of(each): RECORD for each in rows})
        return [dict(each) for each in self.kind.rows(study, collected)]

    def __repr__(self) -> str:
        """Short: hypothesis warns of long ones where it draws thousands."""
        points = {tuple(each[name] for name in POINT) for each in self.rows}
        return f"{self.kind.name}: {len(points)} points, {len(self.rows)} of {len(self.asked)} runs"


def apart(one: Row, two: Row) -> bool:
    """Whether two rows are of other points."""
    return any(one[name] != two[name] for name in POINT)


@st.composite
def studied(draw: st.DrawFn, fates: Sequence[str] = FATES) -> Studied:
    name = draw(st.sampled_from(sorted(KINDS)))
    others = OTHERS.get(name, USUAL)
    others = draw(st.lists(st.sampled_from(others), min_size=1, max_size=3, unique_by=repr))
    others = [{key: value for key, value in each.items() if value} for each in others]
    seeds = draw(st.integers(1, 8))
    noise = np.random.default_rng(draw(SEED))
    spread, asked, rows = draw(st.sampled_from([0.0, 0.003, 0.03, 0.3])), [], []
    for point in ({}, *others):
        typical = draw(st.sampled_from([1e-5, 0.01, 1.0, 1.03, 1.2, 2.0, 600.0]))
        for seed in range(seeds):
            made = row(seed=seed, step_s=typical * float(np.exp(spread * noise.normal())), **point)
            asked.append(made)
            fate = draw(st.sampled_from(fates))
            if fate != "absent":
                changed = {"busy": {"quiet": False}, "diverged": {"status": "diverged"}}.get(fate, {})
                rows.append({**made, **changed})
    return Studied(KINDS[name], rows, asked)


def timed(made: Row, step_s: float) -> Row:
    """The same row with other times."""
    own = {name: made[name] for name in ("layout", "quiet", "status", "seed", "batch", "size", "qubits")}
    own |= {name: made[name] for name in ("layers", "simulator", "protocol", "features")}
    share = step_s / made["step_s"]
    return row(**own, step_s=step_s, first_step_s=2.0 * share, circuit_s=0.25 * share)


@given(studied(), SEED)
def test_the_order_of_records_changes_nothing(made: Studied, order: int) -> None:
    rows = list(made.rows)
    random.Random(order).shuffle(rows)
    assert made.told(rows) == made.told()


@given(studied(), st.sampled_from([1e-6, 0.1, 3.0, 86400.0]))
def test_times_in_another_unit_are_the_same_ratios_and_verdicts(made: Studied, unit: float) -> None:
    before, after = made.told(), made.told([timed(each, unit * each["step_s"]) for each in made.rows])
    for one, two in zip(before, after, strict=True):
        for name in one.keys() - {FOUND}:
            seconds = name.endswith(("_s", "cost_s")) and name != "samples_per_s"
            factor = unit if seconds else 1 / unit if name == "samples_per_s" else 1
            expected = one[name] * factor if isinstance(one[name], float) else one[name]
            assert two[name] == (
                pytest.approx(expected, rel=1e-9) if isinstance(expected, float) else expected
            ), name


@given(studied())
def test_two_sides_exchanged_invert_the_ratio_and_swap_the_verdict(made: Studied) -> None:
    times = Collected.of(CONFIG, made.rows, (), {}).times
    groups = list(times.points.values())
    words = {verdicts.FASTER: verdicts.SLOWER, verdicts.SLOWER: verdicts.FASTER}
    for one, two in ((one, two) for one in groups for two in groups):
        found, other = times.speedup(one, two), times.speedup(two, one)
        assert bool(found.why) == bool(other.why) and bool(found.flag) == bool(other.flag)
        assert bool(found.ratio) == bool(other.ratio)
        if found.ratio and other.ratio:
            same(found.ratio.inverse(), other.ratio)
        limits = (verdicts.WORTH, 1 / verdicts.WORTH, verdicts.FASTER, verdicts.SLOWER, verdicts.UNCHANGED)
        (word,), (opposite,) = verdicts.changes([found], *limits), verdicts.changes([other], *limits)
        assert opposite == words.get(word, word)


def same(one: Estimate, two: Estimate) -> None:
    assert (one.n, one.outliers) == (two.n, two.outliers)
    ends, others = (
        [end for end in (each.value, each.low, each.high) if end is not None] for each in (one, two)
    )
    assert ends == pytest.approx(others, rel=1e-9, abs=1e-12)


@given(studied(("completed",)), SEED)
def test_a_seed_that_is_missing_changes_no_comparison(made: Studied, chance: int) -> None:
    gone = made.rows[chance % len(made.rows)]
    before, after = made.told(), made.told([each for each in made.rows if each is not gone])
    after = {tuple(each[name] for name in POINT): each for each in after}
    for one in before:
        two = after.get(tuple(one[name] for name in POINT))
        if two is None:  # its only seed
            assert not apart(one, gone)
            continue
        lost = 0 if apart(one, gone) else 1
        assert (two["n"], two["absent"]) == (one["n"] - lost, one["absent"] + lost)
        if len(made.rows) > len(before):
            assert two["same_reference"] == one["same_reference"]
        assert (two["flag"], two["why"]) == (one["flag"], one["why"])
        if one[FOUND] and one[FOUND].ratio and two[FOUND] and two[FOUND].ratio:
            used = one["speedup_same_n"] + one["speedup_same_outliers"]
            left = two["speedup_same_n"] + two["speedup_same_outliers"]
            assert left in (used - 1, used)


@given(studied(), st.floats(1e-9, 1e9))
def test_busy_and_diverged_seeds_enter_no_ratio(made: Studied, junk: float) -> None:
    def doubtful(each: Row) -> bool:
        return each["status"] == "diverged" or not each["quiet"]

    good = [tuple(each[name] for name in POINT) for each in made.rows if not doubtful(each)]
    spoilt = [timed(each, junk * each["step_s"]) if doubtful(each) else each for each in made.rows]
    for one, two in zip(made.told(), made.told(spoilt), strict=True):
        if tuple(one[name] for name in POINT) in good and not one["flag"]:
            assert {**two, FOUND: None} == {**one, FOUND: None}
        elif one["flag"] in ("busy", "busy reference") and one["verdict"]:
            assert one["verdict"] in (verdicts.DISTURBED, verdicts.FAILED, verdicts.APART)
    unseen = [{**each, "quiet": True} for each in made.rows if each["status"] == "diverged"]
    assert not any(Times({}).speedup(unseen, unseen).ratio for _ in unseen[:1])


SHARE = Metric("accuracy", "accuracy", "share correct", "up")
ERROR = Metric("rmse", "rmse", "", "down")


@st.composite
def matched(draw: st.DrawFn) -> Comparison:
    """Two models by their tests: accuracies with single samples, or errors without; some of their seeds failed."""
    metric = draw(st.sampled_from([SHARE, ERROR]))
    generator = np.random.default_rng(draw(SEED))
    splits, seeds, samples = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(5, 200))
    middle = draw(st.sampled_from([0.5, 0.9]))
    sides = []
    for name in ("vqc", "mlp"):
        level = middle + draw(st.sampled_from([0.0, 0.01, 0.08, -0.4]))
        lost = draw(st.sampled_from([0.0, 0.0, 0.2, 0.6]))
        tests: dict[metrics.Seed, metrics.Scored] = {}
        failed = []
        for seed in ((f"set.s{split}", seed) for split in range(splits) for seed in range(seeds)):
            if generator.random() < lost:
                failed.append(seed)
                continue
            cases = (generator.random(samples) < level).astype(float)
            value = (
                float(cases.mean()) if metric is SHARE else level * float(np.exp(generator.normal(0, 0.05)))
            )
            tests[seed] = metrics.Scored(value, cases if metric is SHARE else None, None, 0.2)
        sides.append(Configuration((name,), (), metric, ("set", ""), name, tests, tuple(failed), level, None))
    return Comparison(*sides)


def of(match: Comparison) -> tuple[Estimate | None, str]:
    """The effect of two sides that have a seed in common, and the verdict."""
    if not match.chosen.tests or not (match.control and match.control.tests):
        return None, verdicts.FEW
    (found,) = together([replace(match, verdict=match.undecided())])
    return found.effect(), found.verdict


@given(matched(), SEED)
def test_the_order_of_tests_changes_no_effect(match: Comparison, order: int) -> None:
    assert match.control

    def turned(side: Configuration) -> Configuration:
        tests, failed = list(side.tests.items()), list(side.failed)
        random.Random(order).shuffle(tests)
        random.Random(order).shuffle(failed)
        return replace(side, tests=dict(tests), failed=tuple(failed))

    assert of(replace(match, chosen=turned(match.chosen), control=turned(match.control))) == of(match)


@given(matched())
def test_two_models_exchanged_invert_the_effect_and_swap_the_verdict(match: Comparison) -> None:
    assert match.control
    words = {verdicts.BETTER: verdicts.WORSE, verdicts.WORSE: verdicts.BETTER}
    (found, word), (other, opposite) = of(match), of(Comparison(match.control, match.chosen))
    assert opposite == words.get(word, word)
    if found and other:
        same(found.inverse() if match.unit == "times" else found.times(-1), other)
