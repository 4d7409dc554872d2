"""Verdicts in a world whose truth is known: `python -m tests.unit.analysis.planted` prints docs' tables; with 0, the forecast alone.

In each of 200 studies a model and its controls are tested on generated data, where the model is better by 0, 2 or 5 points in
the mean over all data, splits and seeds that there could be. A run gets a sample right if

    level + sample + own sample + training + seed + cell + noise > 0,

with normal effects and logistic noise. Samples are of a pool of which each split takes a part for training and one for test, so
that tests overlap; `training` sums what each sample of training adds, so that training sets that overlap are alike. The level
follows from the accuracy that is planted. The real code makes rows, choices, intervals and verdicts of the records.

`power` forecasts how often such a study says "better", from the components of variance: normal means, and chi-squared mean
squares in the intervals that ketscale.analysis.metrics describes. It draws nothing at random.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import hypot, sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from msgspec import structs
from scipy.optimize import brentq
from scipy.special import expit, gammaincinv

from ketscale import analysis
from ketscale.analysis import columns, verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.columns import Trained
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.intervals import LEVEL, exceeded
from ketscale.analysis.kinds import kinds
from ketscale.analysis.kinds.kind import Answer
from ketscale.config import Config
from ketscale.grid import Run
from ketscale.measure import form
from ketscale.measure.right import packed
from tests import records_factory as factory
from tests.record_maker import typed

STUDIES, ADVANTAGES = 200, (0.0, 0.02, 0.05)
MODEL, CONTROLS = "vqc", ("mlp", "narrow")
# What a control gets right.
SHARE = 0.8
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_QUANTILES = (np.arange(200) + 0.5) / 200


class Effects(NamedTuple):
    """Standard deviations of logits, between what is drawn at random.

    sample, own: of samples for all models, and for each. training: of training sets. seed: of seeds, in all splits alike.
    cell: of a seed in one split.
    """

    sample: float = 1.5
    own: float = 0.7
    training: float = 0.1
    seed: float = 0.1
    cell: float = 0.2


@dataclass(frozen=True)
class World:
    """What a study compares: one model with controls that are all equally good.

    training, validation, test: the samples of a split; together they are the pool. between: the standard deviation of the
    advantage over data sets, of which the planted one is the mean. tried: the configurations of the model and
    of each control, which are all equally good.
    """

    name: str
    data_sets: int = 1
    splits: int = 5
    seeds: int = 5
    training: int = 1050
    validation: int = 225
    test: int = 225
    between: float = 0.0
    controls: int = 1
    tried: tuple[int, int] = (1, 1)
    effects: Effects = field(default_factory=Effects)
    kind: str = "comparison"

    @cached_property
    def config(self) -> Config:
        """A study of it; configurations differ in their batch."""
        blocks = {"weights": "selfsupervised", "image_size": 32, "kind": "digits"}
        split = {"split_seeds": [*range(self.splits)]} if self.splits > 1 else {"split_seed": 0}
        names = [f"set{number}" for number in range(self.data_sets)]
        axes = factory.point(protocol="quality", workload=names, seed=[*range(self.seeds)])
        batches = [[2**at for at in range(count)] for count in self.tried]
        none = {"qubits": 0, "layers": 0, "simulator": "none", "batch": batches[1]}
        controls = CONTROLS[: self.controls]
        points = [{"batch": batches[0]}, *({"model": name, **none} for name in controls)]
        study = {"kind": self.kind, "question": "?", "axes": axes, "points": points}
        return analysis.of(
            factory.small_study(
                {"planted": study},
                workloads={name: {**blocks, **split} for name in names},
                models={name: {"kind": "mlp", "width": 4 + number} for number, name in enumerate(controls)},
            )
        )

    @cached_property
    def trained(self) -> list[Trained]:
        """Each run with a record that lacks nothing but what it has learned."""
        samples = {"train": self.training, "validation": self.validation, "test": self.test}
        made = []
        for run in self.config.runs:
            untested = factory.record(self.config, run, samples=samples, data_hash=run.workload, quality=None)
            made.append(Trained(typed(untested), self.config.settings(run), ("planted",)))
        return made


# --- a study ---


def answered(world: World, advantage: float, draw: np.random.Generator) -> Answer:
    """What the real code says of a study that was drawn."""
    config, (study,) = world.config, world.config.studies
    learned = drawn(world, advantage, draw)
    runs = [
        replace(run, record=structs.replace(run.record, quality=learned[run.settings.run]))
        for run in world.trained
    ]
    rows = list(columns.RUNS.of(runs, config))
    collected = Collected.of(config, rows, {}, {run.settings.run: run.record for run in runs})
    kind = kinds(config.families)[study.kind]
    made = {"runs": rows, "quality": columns.QUALITY.of(kind.rows(study, collected), config)}
    frames = {name: columns.TABLES[name].frame(found, config) for name, found in made.items()}
    tables = dict.fromkeys(
        ("scaling", "laws", "spans", "history", "curves", "completeness", "parity", "claims", "trials"),
        pd.DataFrame(),
    )
    tables |= {name: columns.TABLES[name].typed(frame, config) for name, frame in frames.items()}
    return kind.answer(study, Inputs(config, collected, **tables))


def drawn(world: World, advantage: float, draw: np.random.Generator) -> Mapping[Run, form.Quality]:
    """What each run has learned. All that is random is drawn by data set, split and configuration, in the order of their names."""
    pool, effects = world.training + world.validation + world.test, world.effects
    by_data: dict[str, list[Run]] = {}
    for run in world.config.runs:
        by_data.setdefault(world.config.data(run.workload), []).append(run)
    found = {}
    for _, runs in sorted(by_data.items()):
        sample, more = effects.sample * draw.normal(size=pool), advantage + world.between * draw.normal()
        parts = {split: draw.permutation(pool) for split in sorted({run.workload for run in runs})}
        for point in sorted({(run.model, run.batch) for run in runs}):
            base = level(SHARE + (more if point[0] == MODEL else 0), hypot(*effects))
            logits = base + sample + effects.own * draw.normal(size=pool)
            adds = effects.training * draw.normal(size=pool) / sqrt(world.training)
            of_seed = effects.seed * draw.normal(size=world.seeds)
            for run in sorted(run for run in runs if (run.model, run.batch) == point):
                order = parts[run.workload]
                trained = adds[order[: world.training]].sum()
                here = logits[order[world.training :]] + trained + of_seed[run.seed]
                here += effects.cell * draw.normal()
                right = draw.random(len(here)) < expit(here)
                found[run] = _quality(right[: world.validation], right[world.validation :])
    return found


def _quality(validation: np.ndarray[Any, Any], test: np.ndarray[Any, Any]) -> form.Quality:
    shares: list[dict[str, form.MetricValue]] = [
        {"accuracy": float(part.mean()), "loss": 1.0, "count": len(part), "chance": 0.1}
        for part in (validation, test)
    ]
    return form.Quality(
        epochs=1, best_epoch=1, chosen={}, validation=shares[0], test=shares[1], right=packed([[int(case)] for case in test])
    )  # fmt: skip


def level(share: float, deviation: float) -> float:
    """The level at which so large a share is right, if logits vary by this standard deviation."""
    return float(brentq(lambda mean: _WEIGHTS @ expit(mean + deviation * _NODES) - share, -80, 80))


# --- the forecast ---


@dataclass(frozen=True)
class Variances:
    """Components of the variance of the difference of a model and one control: of one run's test on one sample."""

    sample: float
    training: float
    seed: float
    cell: float
    rest: float

    @classmethod
    def of(cls, effects: Effects, advantage: float) -> Variances:
        """From standard deviations of logits, by Gauss-Hermite quadrature."""
        whole, shares = hypot(*effects), (SHARE + advantage, SHARE)
        levels = [level(share, whole) for share in shares]

        def given(base: float, known: float) -> np.ndarray[Any, Any]:
            """The share right where effects of this standard deviation are at the nodes."""
            others = sqrt(max(0.0, whole**2 - known**2))
            return expit(base + known * _NODES[:, None] + others * _NODES) @ _WEIGHTS

        def both(known: float) -> float:
            return sum(
                float(_WEIGHTS @ given(base, known) ** 2 - share**2)
                for base, share in zip(levels, shares, strict=True)
            )

        # The control and the model have the effect of the sample in common, and no other.
        common = float(_WEIGHTS @ (given(levels[0], effects.sample) * given(levels[1], effects.sample)))
        common -= shares[0] * shares[1]
        sample = both(hypot(effects.sample, effects.own)) - 2 * common
        one, two, three = both(effects.training), both(effects.seed), both(effects.cell)
        total = sum(share * (1 - share) for share in shares) - 2 * common
        return cls(sample, one, two, three, total - sample - one - two - three)


def power(world: World, advantage: float) -> float:
    """The probability of "better" for a data set; there is one control, and both sides have one configuration.

    The intervals of a study hold together (Bonferroni).
    """
    splits, seeds, n = world.splits, world.seeds, world.test
    at, samples = 1 - (1 - LEVEL) / world.data_sets, n * splits
    z = NormalDist().inv_cdf((1 + at) / 2)
    student = {count: exceeded((1 - at) / 2, count - 1) for count in (splits, seeds) if count > 1}
    # The quantiles of a mean square over its expectation.
    chi = {count: 2 * gammaincinv((count - 1) / 2, _QUANTILES) / (count - 1) for count in student}
    v, (variance, between) = Variances.of(world.effects, advantage), _variances(world, advantage)
    if splits == 1:
        squared = student[seeds] ** 2 * between * chi[seeds] + z**2 * v.sample / n
    else:
        of_splits = student[splits] ** 2 * (1 / splits + n / world.training) * between * chi[splits]
        inside = (v.cell + v.rest / n) / splits
        of_seeds = student[seeds] ** 2 * np.maximum(0, (v.seed + inside) * chi[seeds] - inside) / seeds
        alone = z**2 * (v.sample + v.rest) / samples
        squared = np.maximum((of_splits[:, None] + of_seeds).ravel(), alone)
    least = np.sqrt(squared + (z**2 / samples) ** 2)
    return float(np.mean([NormalDist().cdf((advantage - float(end)) / sqrt(variance)) for end in least]))


def power_for_all(world: World, advantage: float) -> float:
    """The probability of "better" for six data sets together: the signed-rank test decides at 5 % if all have one sign."""
    assert world.data_sets == 6
    deviation = sqrt(_variances(world, advantage)[0] + world.between**2)
    return NormalDist().cdf(advantage / deviation) ** 6


def _variances(world: World, advantage: float) -> tuple[float, float]:
    """The variance of a data set's mean difference; and the mean variance of the means of splits, or of seeds with one split."""
    v, splits, seeds, n = Variances.of(world.effects, advantage), world.splits, world.seeds, world.test
    run, pool = (v.cell + v.rest / n) / seeds, world.training + world.validation + n
    if splits == 1:
        # One training set is no random choice: the verdict is of it alone.
        by_seed = v.seed / seeds + run
        return by_seed + v.sample / n, by_seed
    variance, between = run / splits + v.seed / seeds, run
    for part, overlap in ((v.training, world.training / pool), (v.sample / n, n / pool)):
        variance += part * (overlap + (1 - overlap) / splits)
        between += part * (1 - overlap)
    return variance, between


# --- the tables ---

ONE = World(
    "one split, 8 seeds, 1,000 test samples", splits=1, seeds=8, training=2500, validation=500, test=1000
)
ONE = replace(ONE, effects=ONE.effects._replace(training=0.0))
FIVE = World("5 splits, 5 seeds")
# Training sets matter more than tests do; those of several splits have most of their samples in common.
MATTER = FIVE.effects._replace(training=0.3)
HARSH = replace(FIVE, name="5 splits, 5 seeds, training sets that matter", effects=MATTER)
SETS = World("6 data sets, 5 splits, 5 seeds", data_sets=6)
FORECAST = (ONE, FIVE, HARSH, SETS)
# Nothing is forecast of choices.
CHOICES = (
    World("5 splits, 5 seeds, 2 controls, 4 configurations each", controls=2, tried=(4, 4)),
    World("5 splits, 5 seeds, 8 configurations and 1 of the control", tried=(8, 1)),
)
FOR_ALL = (
    SETS,
    replace(SETS, name="6 data sets, training sets that matter", effects=MATTER),
    replace(SETS, name="6 data sets, advantages that differ by 3 points", between=0.03),
)


class Told(NamedTuple):
    """What was said in studies of a world: the share of "better", of data sets, of studies for some data set, and of studies for all."""

    each: float
    some: float
    whole: float


def told(world: World, advantage: float, studies: int = STUDIES) -> Told:
    """What was said in so many studies, each with a seed of its own."""
    found = []
    for number in range(studies):
        answer = answered(world, advantage, np.random.default_rng([number, round(1000 * advantage)]))
        words = [row.verdict == verdicts.BETTER for row in answer.rows if row.verdict]
        assert len(words) == world.data_sets
        found.append((float(np.mean(words)), any(words), answer.verdict == verdicts.BETTER))
    return Told(*(float(column) for column in np.mean(found, axis=0)))


def tables(studies: int) -> Iterator[str]:
    """Docs' tables: how often the verdict of a data set is "better", and how often that of all; the forecast alone without a study."""
    found = {
        (world, advantage): told(world, advantage, studies)
        for world in dict.fromkeys((*FORECAST, *CHOICES, *FOR_ALL))
        for advantage in ADVANTAGES
        if studies
    }
    parts = ((FORECAST, power, 0), *([(CHOICES, None, 0)] if studies else []), (FOR_ALL, power_for_all, 2))
    for worlds, forecast, at in parts:
        yield f"| study | {' | '.join(f'{100 * advantage:g} points' for advantage in ADVANTAGES)} |"
        yield "|---|---|---|---|"
        for world in worlds:
            cells = []
            for advantage in ADVANTAGES:
                told_ = f"{100 * found[world, advantage][at]:.1f} %" if studies else ""
                expected = f"({100 * forecast(world, advantage):.1f} %)" if forecast else ""
                cells.append(" ".join(filter(None, (told_, expected))))
            yield f"| {world.name} | {' | '.join(cells)} |"
        yield ""


if __name__ == "__main__":
    print(*tables(int(sys.argv[1]) if len(sys.argv) > 1 else STUDIES), sep="\n")
