"""The rows of the tables, from the records: the only way from runs to numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from ketscale.analysis import claims, completeness, parity
from ketscale.analysis.claims.evidence import Evidence
from ketscale.analysis.collected import Collected
from ketscale.analysis.comparability import host_class
from ketscale.analysis.completeness import Finding
from ketscale.analysis.drawing.inputs import Rows, number
from ketscale.analysis.kinds import kinds, quality, speed
from ketscale.analysis.kinds.sweep import Sweep
from ketscale.analysis.laws import table as laws
from ketscale.analysis.points import Point, metrics, point_of, size_axes, sizes_of
from ketscale.config import Config, Metric
from ketscale.files import read_csv
from ketscale.grid import AXES, CURVES, HISTORY, Run
from ketscale.jobs.records import Records
from ketscale.measure.form import Host, Machine, Quality, Quartiles, Rank, Record, Timing

SPLITS = ("test", "validation")
# Columns about what there was beside a run.
QUIET = ("quiet", "others_share", "steal_share", "throttled_share", "stalled_share", "oversubscribed")


def of(config: Config, results: Path, found: Records) -> dict[str, Rows]:
    """The rows of every table but the answers, by name.

    Args:
        config: the config of the studies; with `partial` the existing records are enough.
        results: the folder of all results.
        found: the records below it.

    Raises:
        UserError: a run is missing, stale or refused, and `partial` does not allow it.
    """
    findings, comparisons = completeness.of(config, results, found), found.comparisons
    if not config.partial:
        completeness.demand_all(findings, config.results)
    known = {finding.run: finding.record for finding in findings if finding.record}
    rows = [_run(config, finding, finding.record) for finding in findings if finding.record]
    by_epochs = _with_history(config)
    trained = [finding for finding in findings if finding.run in by_epochs]
    history = [row for finding in trained for row in _history(config, results, finding)]
    curves = [row for finding in _best(config, trained) for row in _curves(config, results, finding)]
    spans = [row for finding in findings for row in _spans(config, finding)]
    collected = Collected.of(config, rows, parity.held(comparisons), known)
    why = {finding.run: f"{finding.state} ({finding.why})" for finding in findings if not finding.record}
    return {
        "runs": Rows(rows, _runs_columns(config)),
        "completeness": Rows(completeness.table(findings, config.results), completeness.COLUMNS),
        "scaling": Rows(_of_studies("scaling", collected), speed.columns(config), {"value"}),
        "laws": Rows(list(laws.rows(collected, _swept(config))), laws.COLUMNS),
        "quality": Rows(_of_studies("quality", collected), quality.columns(config)),
        "parity": Rows(parity.table(comparisons, config.results), parity.COLUMNS),
        "spans": Rows(spans, _spans_columns(config)),
        "history": Rows(history, _history_columns(config, history)),
        "curves": Rows(curves, (*_identity_columns(config), "curve", "panel", "time", "value")),
        "claims": Rows(claims.table(Evidence.of(collected, why)), claims.COLUMNS),
    }


def _of_studies(table: str, collected: Collected) -> list[Mapping[str, Any]]:
    """The rows of one table, study by study, made by the studies' kinds."""
    known = kinds(collected.config.families)
    return [
        row
        for study in collected.config.studies
        if known[study.kind].table == table
        for row in known[study.kind].rows(study, collected)
    ]


def _swept(config: Config) -> dict[str, str]:
    """The kinds of studies that sweep an axis, with the axis."""
    return {kind.name: kind.varies for kind in kinds(config.families).values() if isinstance(kind, Sweep)}


def _identity_columns(config: Config) -> tuple[str, ...]:
    return (*AXES, "family", *size_axes(config), "layout")


def _identity(config: Config, finding: Finding) -> dict[str, Any]:
    """The columns that identify a run; a size is empty if its family has no such axis."""
    run = finding.run
    sizes = dict.fromkeys(size_axes(config)) | sizes_of(config, run)
    return {**vars(run), "family": config.family(run.workload).name, **sizes, "layout": run.layout}


def _runs_columns(config: Config) -> tuple[str, ...]:
    return (
        *_identity_columns(config), "studies", "status", "reason", "resumed", "cohort", "timed", "precision", "features",
        "mistake", *(f"{split}_{metric}" for split in SPLITS for metric in metrics(config)), "test_chance", "test_samples",
        "epochs", "best_epoch", "planned_epochs", "split", "fold", "folds", "shared",
        "step_s", "step_q25_s", "step_q75_s", "step_count", "circuit_s", "first_step_s", "startup_s", "data_s", "validation_s",
        "steps", "steps_per_epoch", "epoch_s", "epoch_estimated", "samples_per_s", "sample_work", "train_s",
        "step_with_first_s", "step_with_start_s", "epoch_by_planned_s",
        "peak_rss_bytes", "peak_device_bytes", *QUIET, "busy_why",
        "host", "cpu", "cores", "memory_bytes", "cache_bytes", "shared_cores", "gpus", "hardware", "code", "packages",
        "mpi_library", "slurm_job_id", "started", "stopped", "parameters", "gradient_bytes",
        "config_hash", "data_hash", "features_hash", "weights_hash",
        "node_hours", "gpu_hours", "imported",
    )  # fmt: skip


def _run(config: Config, finding: Finding, record: Record) -> dict[str, Any]:
    """A run's row of runs.csv: times in seconds, memory in bytes (host: sum over ranks; device: largest rank)."""
    protocol, timing, machine = record.config["protocol"], record.timing, record.machine
    return {
        **_identity(config, finding),
        "studies": " ".join(finding.studies),
        **{
            name: getattr(record, name)
            for name in ("status", "reason", "resumed", "parameters", "gradient_bytes", "mpi_library")
        },
        "cohort": 1 + len(record.cohort),
        **{name: getattr(record, name) for name in ("slurm_job_id", "node_hours", "gpu_hours")},
        "started": record.started.isoformat(),
        "stopped": record.stopped.isoformat(),
        **{
            name: getattr(record, name)
            for name in ("config_hash", "data_hash", "features_hash", "weights_hash")
        },
        **{name: protocol[name] for name in ("timed", "precision", "features")},
        "mistake": protocol["mistake"] or "",
        **_quality(config, config.family(finding.run.workload).headline, record.quality),
        "planned_epochs": protocol["epochs"],
        **_wrong_divisors(protocol, timing, record.resumed),
        "split": record.split.by,
        **{name: getattr(record.split, name) for name in ("fold", "folds", "shared")},
        "step_s": timing.step.median_s,
        "step_q25_s": timing.step.q25_s,
        "step_q75_s": timing.step.q75_s,
        "step_count": timing.step.count,
        "circuit_s": _circuit_s(timing.spans),
        **{
            name: getattr(timing, name)
            for name in ("first_step_s", "startup_s", "data_s", "validation_s", "train_s")
        },
        **{name: getattr(timing, name) for name in ("steps", "steps_per_epoch", "epoch_s", "samples_per_s")},
        "epoch_estimated": timing.epoch_s is not None and not timing.epoch.count,
        "sample_work": _sample_work(config, finding.run),
        **peak_memory(machine),
        **{name: getattr(record.quiet, name) for name in QUIET},
        "busy_why": record.quiet.why,
        **{name: getattr(machine, name) for name in ("host", "cpu", "cores", "memory_bytes", "cache_bytes")},
        "shared_cores": _shared_cores(machine.ranks),
        "gpus": gpus(machine),
        "hardware": host_class(machine),
        "imported": record.code.imported,
        "code": completeness.code(record),
        "packages": " ".join(f"{name}={version}" for name, version in sorted(record.packages.items())),
    }


def _circuit_s(spans: Mapping[str, Quartiles]) -> float | None:
    """The time of the circuits alone in a sampled step, forward and backward; None if it was not measured."""
    parts = [
        span.median_s or 0.0 for name, span in spans.items() if name.startswith("circuit.") and span.count
    ]
    return sum(parts) if parts else None


def _sample_work(config: Config, run: Run) -> float | None:
    """The arithmetic of a sample, relative to other sizes; None in families whose batch is free."""
    work = config.family(run.workload).work
    return work(sizes_of(config, run)) if work else None


def _quality(config: Config, headline: Metric, found: Quality | None) -> dict[str, Any]:
    """Metrics of the best weights on both splits; empty for a protocol with steps."""
    splits = {split: getattr(found, split) if found else {} for split in SPLITS}
    guessed = splits["test"].get("chance") if headline.chance == "data" else headline.chance
    return {
        **{f"{split}_{name}": splits[split].get(name) for split in SPLITS for name in metrics(config)},
        "test_chance": guessed if splits["test"] else None,
        "test_samples": splits["test"].get("count"),
        **{name: getattr(found, name, None) for name in ("epochs", "best_epoch")},
    }


def _wrong_divisors(protocol: Mapping[str, Any], timing: Timing, resumed: int) -> dict[str, float | None]:
    """Times as some publications report them: with the first step, with the start, or divided by planned epochs.

    None for a run that resumed: its training time is that of the rest, and its steps are all.
    """
    train_s = timing.train_s
    steps, epochs = (None, None) if resumed else (timing.steps, protocol["epochs"])
    return {
        "step_with_first_s": train_s / steps if steps else None,
        "step_with_start_s": (timing.startup_s + timing.data_s + train_s) / steps if steps else None,
        "epoch_by_planned_s": train_s / epochs if epochs else None,
    }


def _shared_cores(ranks: Sequence[Rank]) -> bool | None:
    """Whether some threads of a run shared a physical core; None if no rank says so and not every rank knows."""
    found = {rank.shared_cores for rank in ranks}
    return True if True in found else None if None in found else False


def gpus(machine: Host) -> str:
    """The models of a run's GPUs; empty without any."""
    return "; ".join(sorted(gpu.name for gpu in machine.gpus))


def peak_memory(machine: Machine) -> dict[str, int | None]:
    """Bytes: of the host, the sum over ranks; of the device, those of the largest rank. None if not measured."""
    return {
        "peak_rss_bytes": sum(rank.peak_rss_bytes or 0 for rank in machine.ranks) or None,
        "peak_device_bytes": max(rank.peak_device_bytes or 0 for rank in machine.ranks) or None,
    }


def _spans_columns(config: Config) -> tuple[str, ...]:
    return (
        *_identity_columns(config), "studies", "status", "quiet", "timed", "span",
        "median_s", "q25_s", "q75_s", "mean_s", "count", "sampled_step_s",
    )  # fmt: skip


def _spans(config: Config, finding: Finding) -> list[dict[str, Any]]:
    """Rows of spans.csv: the exclusive time of each part of a sampled step, in seconds."""
    record = finding.record
    if record is None:
        return []
    shared = {**_identity(config, finding), "studies": " ".join(finding.studies), "status": record.status}
    shared |= {"quiet": record.quiet.quiet, "timed": record.config["protocol"]["timed"]}
    shared["sampled_step_s"] = record.timing.sampled_step.median_s
    return [{**shared, "span": name, **asdict(span)} for name, span in sorted(record.timing.spans.items())]


def _history_columns(config: Config, rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The columns of the run, epoch and step, then all measured ones."""
    first = (*_identity_columns(config), "epoch", "step")
    return (*first, *sorted({name for row in rows for name in row} - set(first)))


def _with_history(config: Config) -> set[Run]:
    """The runs of studies whose kind tabulates epochs."""
    known = kinds(config.families)
    return {run for study in config.studies if known[study.kind].history for run in study.runs}


def _history(config: Config, results: Path, finding: Finding) -> list[dict[str, Any]]:
    """Rows of history.csv: the epochs of a run, with the columns of its history file."""
    if finding.record is None:
        return []
    rows = read_csv(results / finding.run.folder / HISTORY)
    identity = _identity(config, finding)
    return [{**{name: number(text) for name, text in row.items()}, **identity} for row in rows]


def _best(config: Config, findings: Iterable[Finding]) -> list[Finding]:
    """Of each point's runs with curves, the one with the best headline metric on validation data."""
    best: dict[Point, tuple[float, Finding]] = {}
    for finding in findings:
        if finding.record is None or CURVES not in finding.record.files or finding.record.quality is None:
            continue
        metric, key = config.family(finding.run.workload).headline, point_of(finding.run)
        value: Any = finding.record.quality.validation[metric.name]
        # Undefined: worse than any.
        value = math.inf if value is None else -value if metric.better == "up" else value
        if key not in best or value < best[key][0]:
            best[key] = value, finding
    return [finding for _, finding in best.values()]


def _curves(config: Config, results: Path, finding: Finding) -> list[dict[str, Any]]:
    """Rows of curves.csv: the curves of a run that its family draws, in the order of their file."""
    drawn = config.family(finding.run.workload).curves
    panels = drawn.panels if drawn else {}
    rows = read_csv(results / finding.run.folder / CURVES)
    time, *names = rows[0] if rows else [""]
    identity = _identity(config, finding)
    return [
        {**identity, "curve": name, "panel": panel, "time": number(row[time]), "value": number(row[name])}
        for name in names
        if (panel := name.split("_")[0]) in panels
        for row in rows
    ]
