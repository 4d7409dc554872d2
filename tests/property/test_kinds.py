"""What a kind of study says depends on its runs alone: not on their order, the unit of time, or who is called the reference."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketscale.analysis import metrics, verdicts
from ketscale.analysis.comparison import Collected, Times
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds import kinds
from ketscale.analysis.kinds.kind import Kind
from ketscale.analysis.kinds.selection import Comparison, Configuration, judged
from ketscale.analysis.kinds.speed import SPEED
from ketscale.analysis.points import point as place
from ketscale.config import Metric
from ketscale.grid import Run, Study
from tests.nightly.claims import factory as claims_factory
from tests.unit.analysis.test_speed import CONFIG, row

Row = dict[str, Any]
# Every kind of speed but that of simulators with a step.
NAMES = {*SPEED, "qubits", "depth"} - {"convergence"}
KINDS = {name: kind for name, kind in kinds(CONFIG.families).items() if name in NAMES}
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
OPPOSITE = {verdicts.FASTER: verdicts.SLOWER, verdicts.SLOWER: verdicts.FASTER}
OPPOSITE |= {verdicts.BETTER: verdicts.WORSE, verdicts.WORSE: verdicts.BETTER}
# The reference of these is whatever is the fastest, which a single run may change.
RACES = ("simulator", "features")


class Studied:
    """Rows of runs.csv, and what a study of this kind makes of them. No dataclass: hypothesis would print all that it has."""

    def __init__(self, kind: Kind, rows: Sequence[Row], studied: Sequence[Row]) -> None:
        self.kind, self.rows, self.asked = kind, rows, studied

    def __repr__(self) -> str:
        columns = ("layout", "batch", "size", "simulator", "protocol", "seed", "status", "quiet", "step_s")
        rows = (" ".join(str(each[name]) for name in columns) for each in self.rows)
        return "\n".join([f"{self.kind.name}:", *rows])

    def told(self, rows: Sequence[Row] | None = None) -> list[Row]:
        """Its rows of speed.csv; rows: others in place of its own."""
        study = Study("s", self.kind.name, "?", tuple(Run.of(each) for each in self.asked))
        rows = self.rows if rows is None else rows
        collected = Collected.of(CONFIG, rows, (), {Run.of(each): RECORD for each in rows})
        return [dict(each) for each in self.kind.rows(study, collected)]


@st.composite
def studied(draw: st.DrawFn, fates: Sequence[str] = FATES) -> Studied:
    name = draw(st.sampled_from(sorted(KINDS)))
    others = OTHERS.get(name, USUAL)
    others = draw(st.lists(st.sampled_from(others), min_size=1, max_size=3, unique_by=repr))
    others = [{key: value for key, value in each.items() if value} for each in others]
    seeds = draw(st.integers(1, 8))
    noise = np.random.default_rng(draw(SEED))
    spread, studied, rows = draw(st.sampled_from([0.0, 0.003, 0.03, 0.3])), [], []
    for point in ({}, *others):
        typical = draw(st.sampled_from([1e-5, 0.01, 1.0, 1.03, 1.2, 2.0, 600.0]))
        for seed in range(seeds):
            result = row(seed=seed, step_s=typical * float(np.exp(spread * noise.normal())), **point)
            studied.append(result)
            fate = draw(st.sampled_from(fates))
            if fate != "absent":
                changed = {"busy": {"quiet": False}, "diverged": {"status": "diverged"}}.get(fate, {})
                rows.append({**result, **changed})
    return Studied(KINDS[name], rows, studied)


def scaled(made: Row, unit: float) -> Row:
    """The same row with its times in another unit."""
    times = {name for name, value in made.items() if name.endswith("_s") and isinstance(value, float)}
    return made | {name: made[name] * unit ** (-1 if name == "samples_per_s" else 1) for name in times}


@given(studied(), SEED)
def test_the_order_of_records_changes_nothing(made: Studied, order: int) -> None:
    rows = list(made.rows)
    random.Random(order).shuffle(rows)
    assert made.told(rows) == made.told()


@given(studied(), st.sampled_from([1e-6, 0.1, 3.0, 86400.0]))
def test_times_in_another_unit_are_the_same_effects_and_verdicts(made: Studied, unit: float) -> None:
    for one, two in zip(made.told(), made.told([scaled(each, unit) for each in made.rows]), strict=True):
        for name, value in scaled(one, unit).items():
            assert two[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), name


@given(studied(("completed",)))
def test_a_point_and_its_reference_exchanged_invert_the_effect(made: Studied) -> None:
    """That of two points, and that of a study of changes, in which the first one is the reference."""
    ends = place(made.rows[0]), place(made.rows[-1])
    sides = [[each for each in made.rows if place(each) == end] for end in ends]
    changes = kinds(CONFIG.families)["changes"]
    first, second = (Studied(changes, made.rows, sides[n] + sides[1 - n]).told()[-1] for n in (0, 1))
    assert (place(second), place(first)) == ends and first["unit"] == second["unit"]
    assert first["effect"] * second["effect"] == pytest.approx(1, rel=1e-9)
    assert first["pairs"] < 3 or first["low"] * second["high"] == pytest.approx(1, rel=1e-9)
    assert second["verdict"] == OPPOSITE.get(first["verdict"], first["verdict"])


@given(studied())
def test_two_sides_exchanged_invert_the_ratio_and_swap_the_verdict(made: Studied) -> None:
    times = Collected.of(CONFIG, made.rows, (), {}).times
    for one, two in ((one, two) for one in times.points.values() for two in times.points.values()):
        result, other = times.speedup(one, two), times.speedup(two, one)
        assert bool(result.why) == bool(other.why) and bool(result.flag) == bool(other.flag)
        assert bool(result.ratio) == bool(other.ratio)
        if result.ratio and other.ratio:
            same(result.ratio.inverse(), other.ratio)
        ((word, why),), ((opposite, because),) = verdicts.ratios([result]), verdicts.ratios([other])
        assert (opposite, because) == (OPPOSITE.get(word, word), why)


def same(one: Estimate, two: Estimate) -> None:
    first, other = (
        {name: value for name, value in asdict(each).items() if value is not None} for each in (one, two)
    )
    assert first == pytest.approx(other, rel=1e-9, abs=1e-12)


@given(studied(("completed",)), SEED)
def test_a_seed_that_is_missing_changes_only_the_number_of_seeds(made: Studied, chance: int) -> None:
    dropped = made.rows[chance % len(made.rows)]
    after = {place(each): each for each in made.told([each for each in made.rows if each is not dropped])}
    single = len(made.rows) == len({*map(place, made.rows)})
    for one in made.told():
        two, same = after.get(place(one)), place(one) == place(dropped)
        if two is None:
            assert same and single
            continue
        assert (two["n"], two["absent"], two["flag"]) == (one["n"] - same, one["absent"] + same, one["flag"])
        if single or made.kind.name in RACES:
            continue
        assert (two["reference"], two["unit"]) == (one["reference"], one["unit"])
        if one["effect"] is not None:
            used, left = (each["pairs"] + each["outliers"] for each in (one, two))
            assert left == used - (same or one["pairs"] != two["pairs"] or one["outliers"] != two["outliers"])
            assert left < used or two["effect"] == one["effect"]


@given(studied(), st.floats(1e-9, 1e9))
def test_busy_and_diverged_seeds_enter_no_ratio(made: Studied, junk: float) -> None:
    def doubtful(each: Row) -> bool:
        return each["status"] == "diverged" or not each["quiet"]

    good = [place(each) for each in made.rows if not doubtful(each)]
    spoilt = [scaled(each, junk) if doubtful(each) else each for each in made.rows]
    for one, two in zip(made.told(), made.told(spoilt), strict=True):
        if place(one) in good and not one["flag"] and made.kind.name not in RACES:
            # The best that one process does may be of a busy machine.
            serial = {name: one.get(name) for name in one.keys() | two.keys() if "serial" in name}
            assert two | serial == one | serial
        elif one["flag"] in ("busy", "busy reference") and one["verdict"]:
            assert one["verdict"] not in verdicts.DECIDED
    failed = [{**each, "quiet": True} for each in made.rows if each["status"] == "diverged"]
    assert not failed or Times({}).speedup(failed, failed).ratio is None


SHARE = Metric("accuracy", "accuracy", "share correct", "up")
ERROR = Metric("rmse", "rmse", "", "down")


class Matched(Comparison):
    """One with a short name: of thousands of examples some have so many samples that hypothesis warns of their length."""

    def __repr__(self) -> str:
        sides = [f"{len(each.tests)} seeds and {len(each.failed)} that failed" for each in self.sides]
        return f"{self.of.metric.name}, {' over '.join(sides)}"


@st.composite
def matched(draw: st.DrawFn) -> Matched:
    """Two models by their tests: accuracies with single samples, or errors without; some of their seeds failed."""
    metric = draw(st.sampled_from([SHARE, ERROR]))
    generator = np.random.default_rng(draw(SEED))
    splits, seeds, samples = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(5, 200))
    middle = draw(st.sampled_from([0.5, 0.9]))
    sides = []
    for _ in ("vqc", "mlp"):
        level = middle + draw(st.sampled_from([0.0, 0.01, 0.08, -0.4]))
        missing = draw(st.sampled_from([0.0, 0.0, 0.2, 0.6]))
        tests: dict[metrics.Seed, metrics.Scored] = {}
        failed = []
        for seed in ((f"set.s{split}", seed) for split in range(splits) for seed in range(seeds)):
            if generator.random() < missing:
                failed.append(seed)
                continue
            cases = (generator.random(samples) < level).astype(float)
            error = level * float(np.exp(generator.normal(0, 0.05)))
            value, cases_of = (float(cases.mean()), cases) if metric is SHARE else (error, None)
            tests[seed] = metrics.Scored(value, cases_of, None, 0.2)
        sides.append(Configuration(metric=metric, tests=tests, failed=(*failed,), validation=level))
    return Matched(*sides)


def of(match: Comparison) -> tuple[Estimate | None, str]:
    """The effect of two sides, and the verdict."""
    (result,) = judged([match])
    return result.effect(), result.verdict


@given(matched(), SEED)
def test_the_order_of_tests_changes_no_effect(match: Comparison, order: int) -> None:
    assert match.to

    def turned(side: Configuration) -> Configuration:
        tests, failed = list(side.tests.items()), list(side.failed)
        random.Random(order).shuffle(tests)
        random.Random(order).shuffle(failed)
        return replace(side, tests=dict(tests), failed=tuple(failed))

    assert of(replace(match, of=turned(match.of), to=turned(match.to))) == of(match)


@given(matched())
def test_two_models_exchanged_invert_the_effect_and_swap_the_verdict(match: Comparison) -> None:
    assert match.to
    (result, word), (other, opposite) = of(match), of(Comparison(match.to, match.of))
    assert opposite == OPPOSITE.get(word, word)
    if result and other:
        same(result.inverse() if match.unit == "times" else result.times(-1), other)
