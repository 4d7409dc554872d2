"""Evidence for claims that was never measured: rows and records made so that estimates have given values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from dataclasses import replace as changed
from datetime import UTC, datetime
from functools import cache
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from benchmarks.claims import readings as claims_readings
from benchmarks.claims.ledger import Claim
from benchmarks.claims.readings import (
    LOSSES,
    SAME_LOSSES,
    TESTED,
    Filter,
    Quantity,
    Reader,
    Reading,
    Spans,
)
from benchmarks.claims.rules import rule
from ketscale import analysis
from ketscale.analysis.comparison import Collected
from ketscale.analysis.points import workers
from ketscale.config import Config
from ketscale.grid import Run
from ketscale.measure import form
from ketscale.measure.right import packed
from tests import records_factory as factory
from tests.ready_made import FOLDER
from tests.record_maker import quartiles, typed

ROOT = factory.ROOT
_CONFIG = factory.default_config()
_TIMED = next(run for run in _CONFIG.runs if not _CONFIG.protocols[run.protocol].by_epochs)
# Later than any rule.
_RECORD = replace(typed(factory.record(_CONFIG, _TIMED)), started=datetime(2100, 1, 1, tzinfo=UTC))
HOST = "Synthetic CPU, 128 cores"
# Two tenths of a percent between seeds, and a factor of nine.
CLOSE = {0: 0.999, 1: 1.0, 2: 1.001, 3: 0.999, 4: 1.001}
WIDE = {0: 1 / 3, 1: 1.0, 2: 3.0, 3: 1 / 3, 4: 3.0}
# What a run has of a quantity, by its point and the quantity.
Amounts = dict[tuple[str, Quantity], float]


@dataclass(frozen=True)
class Asked:
    """A reading that a rule asked for. name: without the group. sides: the planned runs of each of its sides."""

    kind: str
    name: str
    quantity: Quantity
    sides: list[list[Run]]


@dataclass(frozen=True)
class Tracer(Reader):
    """A reader that notes what it is asked for."""

    asked: list[Asked] = field(default_factory=list)

    def ratio(self, name: str, quantity: Quantity, of: Filter, over: Filter) -> Reading:
        self._note("ratio", name, quantity, of, over)
        return super().ratio(name, quantity, of, over)

    def efficiency(self, name: str, quantity: Quantity, of: Filter, over: Filter) -> Reading:
        result = super().efficiency(name, quantity, of, over)
        self.asked.append(changed(self.asked.pop(), kind="efficiency"))
        return result

    def difference(self, name: str, of: Filter, over: Filter) -> Reading:
        self._note("difference", name, TESTED, of, over)
        return super().difference(name, of, over)

    def value(self, name: str, quantity: Quantity) -> Reading:
        self._note("value", name, quantity, {})
        return super().value(name, quantity)

    def losses(self, name: str, of: Filter, over: Filter) -> Reading:
        self._note("losses", name, LOSSES, of, over)
        return super().losses(name, of, over)

    def _note(self, kind: str, name: str, quantity: Quantity, *sides: Filter) -> None:
        planned = [
            claims_readings.planned(self.collected.config, names_of(self.claim), {**self.wanted, **side})
            for side in sides
        ]
        self.asked.append(Asked(kind, name, quantity, planned))


def asked(claim: Claim) -> list[Asked]:
    """What a claim's rule asks for, with nothing measured."""
    tracer = Tracer(claim, evidence(config_of(claim), []))
    rule(claim.id)(tracer)
    return tracer.asked


def bounds(claim: Claim) -> dict[str, list[float]]:
    """The thresholds that each reading is compared with; of one that is compared with others alone, all of the claim."""
    result = defaultdict(set)

    def note(self: Reading, bound: str | Reading, holds: Any) -> Any:
        if isinstance(bound, str):
            result[self.name.partition(" (")[0]].update(claim.limits(bound))
        return compare(self, bound, holds)

    compare = Reading._compared
    with patch.object(Reading, "_compared", note):
        every = asked(claim)
    arguments = {end for name in claim.thresholds if name != SAME_LOSSES for end in claim.limits(name)}
    return {each.name: sorted(result.get(each.name, arguments)) for each in every}


@cache
def ready_made(file: str) -> Config:
    """The config of a ready-made file; an empty name is that of config.yaml."""
    return analysis.read(FOLDER / file) if file else factory.default_config()


def config_of(claim: Claim) -> Config:
    """The config that has a claim's studies."""
    (file,) = {study.rpartition("#")[0] for study in claim.studies}
    return ready_made(file)


def names_of(claim: Claim) -> list[str]:
    """The names of a claim's studies."""
    return [study.rpartition("#")[2] for study in claim.studies]


def row(config: Config, run: Run, **values: Any) -> dict[str, Any]:
    """A row of runs.csv as far as claims read it."""
    defaults = {
        "status": "completed", "resumed": 0, "quiet": True, "least_step_s": None, "timed": True, "hardware": HOST, "shared_cores": False,
        "imported": "", "packages": "", "mpi_library": "",
        "precision": "fp64", "data_hash": "", "features_hash": "", "split": "", "folds": None, "fold": None, "test_samples": None,
        "step_s": 1.0, "epoch_s": 1.0, "samples_per_s": 1.0,
    }  # fmt: skip
    return {**asdict(run), **config.sizes(run), "layout": run.layout, **defaults, **values}


def record(losses: Iterable[float] = (1.0, 0.5), step_s: float = 1.0, **spans: float) -> form.Record:
    """A usual record with these losses, and the times of a sampled step and its spans in seconds."""
    named = {name: _quartiles(seconds) for name, seconds in spans.items()}
    timing = replace(_RECORD.timing, spans=named, sampled_step=_quartiles(step_s))
    return replace(_RECORD, losses=list(losses), timing=timing)


def _quartiles(seconds: float) -> form.Quartiles:
    return form.Quartiles(**quartiles(seconds, 1))


def tested(record: form.Record, share: float) -> form.Record:
    """The record with this share of the test's cases right."""
    count = 1_000
    right = packed([[int(case < round(share * count))] for case in range(count)])
    metrics = {"accuracy": round(share * count) / count}
    quality = form.Quality(epochs=1, best_epoch=1, chosen={}, validation=metrics, test=metrics, right=right)
    return replace(record, quality=quality)


def evidence(
    config: Config,
    rows: Iterable[Mapping[str, Any]],
    records: Mapping[Run, form.Record] | None = None,
    why: Mapping[Run, str] | None = None,
) -> Collected:
    """Evidence of these rows, with a usual record for each that is not given."""
    cases = list(rows)
    arguments = {**{Run.of(each): record() for each in cases}, **(records or {})}
    named = {run: replace(each, run={**each.run, "seed": run.seed}) for run, each in arguments.items()}
    return Collected.of(config, cases, {}, named, why)


def doctored(
    claim: Claim, targets: Mapping[str, float], spread: Mapping[int, float] = CLOSE, seeds: int = 5
) -> Collected:
    """Evidence of a claim's studies in which each reading is its target in all groups, as far as they allow that."""
    config, readings = config_of(claim), asked(claim)
    amounts: Amounts = {}
    for name, target in targets.items():
        for reading in readings:
            if reading.name == name and all(reading.sides):
                _assign(amounts, reading, target)
    numerators = {run for reading in readings for run in reading.sides[0]}
    rows, records = [], {}
    for run in planned(claim):
        if run.seed >= seeds:
            continue
        own = {quantity: value for (point, quantity), value in amounts.items() if point == _point(run)}
        # The denominator stays as it is, so that a ratio has the whole spread.
        sides = spread[run.seed] if run in numerators else 1.0
        losses = own.pop(LOSSES, 0.0) * spread[run.seed]
        spans = {quantity: own.pop(quantity) for quantity in list(own) if isinstance(quantity, Spans)}
        rows.append(row(config, run, **{str(name): value * sides for name, value in own.items()}))
        result = _record(losses, spans, sides)
        records[run] = tested(result, sides * own[TESTED]) if TESTED in own else result
    return evidence(config, rows, records)


def planned(claim: Claim) -> list[Run]:
    """All runs of a claim's studies."""
    return claims_readings.planned(config_of(claim), names_of(claim), {})


def _point(run: Run) -> str:
    return run.name.rpartition("/")[0]


def _assign(amounts: Amounts, reading: Asked, target: float) -> None:
    """Set the quantity of the runs `of`, or if that is set already, of those `over`."""
    kind, sides = reading.kind, reading.sides
    of = (_point(sides[0][0]), reading.quantity)
    if kind == "value":
        amounts[of] = target
        return
    over = (_point(sides[1][0]), reading.quantity)
    counts = [workers(runs[0].layout) for runs in sides]
    add = target if kind in ("difference", "losses") else 0.0
    times = {"ratio": target, "efficiency": target * counts[1] / counts[0]}.get(kind, 1.0)
    if over not in amounts and of in amounts:
        amounts[over] = (amounts[of] - add) / times
        return
    start = 0.5 if reading.quantity == TESTED else 0.0 if kind == "losses" else 1.0
    amounts[of] = amounts.setdefault(over, start) * times + add


def _record(losses: float, spans: Mapping[Quantity, float], times: float) -> form.Record:
    """A record with first losses that are so much larger than 1, and with spans that come to the given quantities."""
    result = {each.over: value for each, value in spans.items() if isinstance(each, Spans)}
    names = {name for each in spans if isinstance(each, Spans) for name in each.names}
    seconds = result.get("", result.get("the step", 0.1))
    step = seconds / result["the step"] if "the step" in result else 10 * seconds
    built = dict.fromkeys(names, seconds * times / len(names)) if names else {}
    built["optimiser"] = seconds / result.get("the largest other", 1e3)
    return record([1 + losses, 0.5 * (1 + losses)], step, **built)
