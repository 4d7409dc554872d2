"""Evidence for claims that was never measured: rows and records with given values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from typing import Any

from msgspec.structs import replace

from benchmarks.claims.ledger import Claim
from benchmarks.claims.readings import groups
from ketscale import analysis
from ketscale.analysis.comparison import Collected
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


@cache
def ready_made(file: str) -> Config:
    """The config of a ready-made file; an empty name is that of config.yaml."""
    return analysis.read(FOLDER / file) if file else factory.default_config()


def config_of(claim: Claim) -> Config:
    """The config that has a claim's studies."""
    (file,) = {study.rpartition("#")[0] for study in claim.studies}
    return ready_made(file)


def names(claim: Claim) -> list[str]:
    """The names of a claim's readings."""
    nothing = evidence(config_of(claim), [])
    return [name for asked in claim.readings for name, _ in groups(claim, asked, nothing)]


def row(config: Config, run: Run, **values: Any) -> dict[str, Any]:
    """A row of runs.csv as far as claims read it."""
    usual = {
        "status": "completed", "resumed": 0, "quiet": True, "least_step_s": None, "timed": True, "hardware": HOST, "shared_cores": False,
        "imported": "", "packages": "", "mpi_library": "",
        "precision": "fp64", "data_hash": "", "features_hash": "", "split": "", "folds": None, "fold": None, "test_samples": None,
        "step_s": 1.0, "epoch_s": 1.0, "samples_per_s": 1.0,
    }  # fmt: skip
    return {**asdict(run), **config.sizes(run), "layout": run.layout, **usual, **values}


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
    known = list(rows)
    given = {**{Run.of(each): record() for each in known}, **(records or {})}
    named = {run: replace(each, run={**each.run, "seed": run.seed}) for run, each in given.items()}
    return Collected.of(config, known, {}, named, why)
