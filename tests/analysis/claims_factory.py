"""Evidence for claims that was never measured: rows and records made so that estimates have given values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

import yaml
from msgspec.structs import replace

from ketscale import analysis
from ketscale.analysis.claims import estimates
from ketscale.analysis.claims.estimates import Estimates
from ketscale.analysis.claims.evidence import Evidence
from ketscale.analysis.claims.verdicts import studies
from ketscale.analysis.points import workers
from ketscale.config import Config
from ketscale.grid import Run
from ketscale.measure import form
from tests import records_factory as factory
from tests.ready_made import FOLDER, OVER
from tests.record_maker import typed

ROOT = factory.ROOT
_CONFIG = factory.default_config()
_RECORD = typed(factory.record(_CONFIG, _CONFIG.runs[0]))
HOST = "Synthetic CPU, 128 cores"
# Two tenths of a percent between seeds, and a factor of nine.
CLOSE = {0: 0.999, 1: 1.0, 2: 1.001, 3: 0.999, 4: 1.001}
WIDE = {0: 1 / 3, 1: 1.0, 2: 3.0, 3: 1 / 3, 4: 3.0}
# A quantity of a run, such as step_s or 'share transfer', or 'losses', by its name without the seed.
Amounts = Mapping[tuple[str, str], float]


@cache
def ready_made(file: str) -> Config:
    """The config of a ready-made file, which may be laid over another; an empty name is that of config.yaml."""
    if not file:
        return factory.default_config()
    below, given = OVER.get(FOLDER / file), yaml.safe_load((FOLDER / file).read_text())
    if below:
        base = yaml.safe_load(below.read_text())
        given = {**base, **given, "studies": {**base["studies"], **given["studies"]}}
    return analysis.of(given)


def config_of(claim: Mapping[str, Any]) -> Config:
    """The config that has a claim's studies."""
    (file,) = {study.rpartition("#")[0] for study in studies(claim)}
    return ready_made(file)


def names_of(claim: Mapping[str, Any]) -> list[str]:
    """The names of a claim's studies."""
    return [study.rpartition("#")[2] for study in studies(claim)]


def planned(claim: Mapping[str, Any]) -> Estimates:
    """A claim's estimates, with nothing measured."""
    return Estimates(claim["test"], names_of(claim), Evidence(config_of(claim), {}, {}, {}))


def row(config: Config, run: Run, **values: Any) -> dict[str, Any]:
    """A row of runs.csv as far as claims read it."""
    usual = {
        "status": "completed", "resumed": 0, "quiet": True, "timed": True, "hardware": HOST, "shared_cores": False,
        "step_s": 1.0, "epoch_s": 1.0, "samples_per_s": 1.0, "test_accuracy": 0.5,
    }  # fmt: skip
    return {**asdict(run), **config.sizes(run), "layout": run.layout, **usual, **values}


def record(losses: Iterable[float] = (1.0, 0.5), step_s: float = 1.0, **spans: float) -> form.Record:
    """A usual record with these losses, and the times of a sampled step and its spans in seconds."""
    named = {name: _quartiles(seconds) for name, seconds in spans.items()}
    timing = replace(_RECORD.timing, spans=named, sampled_step=_quartiles(step_s))
    return replace(_RECORD, losses=list(losses), timing=timing)


def _quartiles(seconds: float) -> form.Quartiles:
    return form.Quartiles(median_s=seconds, q25_s=seconds, q75_s=seconds, mean_s=seconds, count=1)


def evidence(
    config: Config,
    rows: Iterable[Mapping[str, Any]],
    records: Mapping[Run, form.Record] | None = None,
    why: Mapping[Run, str] | None = None,
) -> Evidence:
    """Evidence of these rows, with a usual record for each that is not given."""
    known = {Run.of(each): each for each in rows}
    return Evidence(config, known, {**{run: record() for run in known}, **(records or {})}, why or {})


def doctored(
    claim: Mapping[str, Any],
    targets: Mapping[str, float],
    spread: Mapping[int, float] = CLOSE,
    seeds: int = 5,
) -> Evidence:
    """Evidence of a claim's studies in which each estimate is its target in all groups, as far as they allow that."""
    test, empty = claim["test"], planned(claim)
    amounts: dict[tuple[str, str], float] = {}
    for name, target in targets.items():
        spec = test["estimates"][name]
        quantity = "losses" if "losses" in spec else str(spec[estimates.kind(spec)])
        for runs in points_of(empty, name):
            _assign(amounts, quantity, estimates.kind(spec), runs, target)
    numerators = {
        run
        for name in test["estimates"]
        if empty.sides(name)
        for sides in points_of(empty, name)
        for run in sides[0]
    }
    rows, records = [], {}
    for run in empty.evidence.planned(names_of(claim), {}):
        if run.seed >= seeds:
            continue
        own = {quantity: value for (point, quantity), value in amounts.items() if point == _point(run)}
        # The denominator stays as it is, so that a ratio has the whole spread.
        sides = spread[run.seed] if run in numerators else 1.0
        losses = own.pop("losses", 0.0) * spread[run.seed]
        spans = {name: own.pop(name) for name in list(own) if " " in name}
        rows.append(row(empty.evidence.config, run, **{name: value * sides for name, value in own.items()}))
        records[run] = _record(losses, spans, sides)
    return evidence(empty.evidence.config, rows, records)


def points_of(empty: Estimates, name: str) -> Iterator[list[list[Run]]]:
    """For each group of an estimate, the planned runs of each of its sides."""
    for group in empty.groups(name):
        yield [
            empty.evidence.planned(
                empty.studies, {**side, **{c: v for c, v in group.items() if estimates._open(side, c)}}
            )
            for side in empty.sides(name)
        ]


def _point(run: Run) -> str:
    return run.name.rpartition("/")[0]


def _assign(
    amounts: dict[tuple[str, str], float], quantity: str, kind: str, sides: list[list[Run]], target: float
) -> None:
    """Set the quantity of the runs `of`, or if that is set already, of those `over`."""
    if not all(sides):
        return
    of = (_point(sides[0][0]), quantity)
    if kind == "value":
        amounts[of] = target
        return
    over = (_point(sides[1][0]), quantity)
    counts = [workers(runs[0].backend, runs[0].ranks, runs[0].threads) for runs in sides]
    add = {"difference": target, "losses": target}.get(kind, 0.0)
    times: Callable[[], float] = {
        "ratio": lambda: target,
        "efficiency": lambda: target * counts[1] / counts[0],
        "reduction": lambda: 1 / (1 - target),
    }.get(kind, lambda: 1.0)
    if over not in amounts and of in amounts:
        amounts[over] = (amounts[of] - add) / times()
        return
    start = {"test_accuracy": 0.5, "losses": 0.0}.get(quantity, 1.0)
    amounts[of] = amounts.setdefault(over, start) * times() + add


def _record(losses: float, spans: Mapping[str, float], times: float) -> form.Record:
    """A record with first losses that are so much larger than 1, and with spans that come to the given quantities."""
    found = {word: value for name, value in spans.items() for word in [name.split()[0]]}
    names = {part for name in spans for part in name.partition(" ")[2].split(" + ")}
    seconds = found.get("span", found.get("share", 0.1))
    step = seconds / found["share"] if "share" in found else 10 * seconds
    made = dict.fromkeys(names, seconds * times / len(names)) if names else {}
    made["optimiser"] = seconds / found.get("lead", 1e3)
    return record([1 + losses, 0.5 * (1 + losses)], step, **made)
