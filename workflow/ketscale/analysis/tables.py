"""Every record read, checked and written out as tidy tables: the one way from runs to numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ketscale import grid
from ketscale.analysis import claims, completeness, parity, quality, scaling
from ketscale.analysis.completeness import Finding
from ketscale.files import write_atomic

METRICS = ("accuracy", "auc", "f1", "loss")
AXES = tuple(field.name for field in fields(grid.Run))
RUNS_COLUMNS = (
    *AXES, "place", "studies", "status", "reason", "resumed", "timed", "precision", "features", "mistake",
    *(f"{split}_{metric}" for split in ("test", "validation") for metric in METRICS), "epochs", "best_epoch", "planned_epochs",
    "split", "fold", "folds", "test_samples", "test_chance",
    "step_s", "step_q25_s", "step_q75_s", "step_count", "first_step_s", "startup_s", "data_s", "validation_s",
    "steps", "steps_per_epoch", "epoch_s", "epoch_wall_s", "samples_per_s", "train_s",
    "step_with_first_s", "step_with_start_s", "epoch_by_planned_s",
    "peak_rss_bytes", "peak_device_bytes", "quiet", "others_share", "steal_share",
    "host", "cpu", "cores", "shared_cores", "gpus", "hardware", "code", "packages", "mpi_library", "slurm_job_id",
    "started", "stopped", "parameters", "config_hash", "data_hash", "features_hash", "weights_hash",
    "node_hours", "gpu_hours",
)  # fmt: skip
SPANS_COLUMNS = (
    *AXES, "place", "studies", "status", "quiet", "timed", "span",
    "median_s", "q25_s", "q75_s", "count", "sampled_step_s",
)  # fmt: skip


def collect(config: Mapping[str, Any], root: Path, out: Path, partial: bool) -> None:
    """Write every table of the catalogue into `out` from the records of the config's runs below `root`.

    Raises:
        UserError: a run is missing, stale or refused, and `partial` does not allow it.
    """
    findings = completeness.inspect(config, root)
    comparisons = parity.compare(findings)
    findings = parity.refuse(findings, comparisons)
    if not partial:
        completeness.demand_all(findings)
    rows = [_run(finding, finding.record) for finding in findings if finding.record]
    write_table(out / "runs.csv", rows, RUNS_COLUMNS)
    write_table(out / "completeness.csv", completeness.table(findings), completeness.COLUMNS)
    write_table(out / "scaling.csv", scaling.table(config, rows, parity.held(comparisons)), scaling.COLUMNS)
    write_table(out / "accuracy.csv", quality.table(config, rows), quality.COLUMNS)
    write_table(out / "parity.csv", parity.table(comparisons), parity.COLUMNS)
    write_table(out / "spans.csv", [row for finding in findings for row in _spans(finding)], SPANS_COLUMNS)
    history = [row for finding in findings for row in _history(config, root, finding)]
    measured = sorted({name for row in history for name in row} - {*AXES, "place", "epoch", "step"})
    write_table(out / "history.csv", history, (*AXES, "place", "epoch", "step", *measured))
    write_table(out / "claims.csv", claims.table(claims.load()), claims.COLUMNS)


def write_table(path: Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Write the rows as CSV, atomically; None becomes an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(path, text.getvalue().encode())


def _axes(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding.run), "place": finding.run.place}


def _run(finding: Finding, record: Mapping[str, Any]) -> dict[str, Any]:
    """The row of runs.csv: times in seconds, memory in bytes (host: sum over ranks; device: largest rank)."""
    protocol, timing, machine = record["config"]["protocol"], record["timing"], record["machine"]
    gpus = "; ".join(sorted(_gpu(gpu) for gpu in machine["gpus"] or []))
    return {
        **_axes(finding),
        "studies": " ".join(finding.studies),
        **{name: record[name] for name in ("status", "reason", "resumed", "parameters", "mpi_library")},
        **{name: record[name] for name in ("slurm_job_id", "started", "stopped", "node_hours", "gpu_hours")},
        **{name: record[name] for name in ("config_hash", "data_hash", "features_hash", "weights_hash")},
        **{name: protocol[name] for name in ("timed", "precision", "features")},
        "mistake": protocol.get("mistake", ""),
        **_quality(record["quality"]),
        "planned_epochs": protocol.get("epochs"),
        **_wrong_divisors(protocol, timing),
        "split": record["split"]["by"],
        **{name: record["split"][name] for name in ("fold", "folds")},
        "step_s": timing["step"]["median_s"],
        "step_q25_s": timing["step"]["q25_s"],
        "step_q75_s": timing["step"]["q75_s"],
        "step_count": timing["step"]["count"],
        **{name: timing[name] for name in ("first_step_s", "startup_s", "data_s", "validation_s", "train_s")},
        **{name: timing[name] for name in ("steps", "steps_per_epoch", "epoch_s", "samples_per_s")},
        "epoch_wall_s": timing["epoch"]["median_s"],
        "peak_rss_bytes": sum(rank["peak_rss_bytes"] or 0 for rank in machine["ranks"]) or None,
        "peak_device_bytes": max(rank["peak_device_bytes"] or 0 for rank in machine["ranks"]) or None,
        **{name: record["quiet"][name] for name in ("quiet", "others_share", "steal_share")},
        **{name: machine[name] for name in ("host", "cpu", "cores")},
        "shared_cores": _shared_cores(machine["ranks"]),
        "gpus": gpus,
        "hardware": ", ".join(filter(None, (f"{machine['cpu']}, {machine['cores']} cores", gpus))),
        "code": completeness.code(record),
        "packages": " ".join(f"{name}={version}" for name, version in sorted(record["packages"].items())),
    }


def _quality(found: Mapping[str, Any] | None) -> dict[str, Any]:
    """Metrics of the best weights on both splits; empty for a protocol that only times."""
    splits = {split: (found or {}).get(split) or {} for split in ("test", "validation")}
    metrics = {f"{split}_{name}": splits[split].get(name) for split in splits for name in METRICS}
    classes = [sum(row) for row in splits["test"].get("confusion", [])]
    tested = sum(classes) or splits["test"].get("transitions")
    # Naming the commonest class each time, where a workload does not say itself what guessing gives.
    chance = splits["test"].get("chance") or (max(classes) / tested if tested else None)
    return {
        **metrics,
        **{name: (found or {}).get(name) for name in ("epochs", "best_epoch")},
        "test_samples": tested,
        "test_chance": chance,
    }


def _wrong_divisors(protocol: Mapping[str, Any], timing: Mapping[str, Any]) -> dict[str, float | None]:
    """Times as published figures have them: the first step included, the start as well, planned epochs as divisor."""
    steps, train_s = timing["steps"], timing["train_s"]
    return {
        "step_with_first_s": train_s / steps if steps else None,
        "step_with_start_s": (timing["startup_s"] + timing["data_s"] + train_s) / steps if steps else None,
        "epoch_by_planned_s": train_s / protocol["epochs"] if "epochs" in protocol else None,
    }


def _shared_cores(ranks: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether some threads of a run shared a physical core; None where that is not known of every rank."""
    found = {rank.get("shared_cores") for rank in ranks}
    return True if True in found else None if None in found else False


def _gpu(gpu: Any) -> str:
    """A GPU's model, whether the record holds its name or a mapping that has one."""
    return str(gpu.get("model") or gpu.get("name") or "GPU") if isinstance(gpu, Mapping) else str(gpu)


def _spans(finding: Finding) -> list[dict[str, Any]]:
    """Rows of spans.csv: the exclusive time of each part of a sampled step, in seconds."""
    record = finding.record
    if record is None:
        return []
    shared = {**_axes(finding), "studies": " ".join(finding.studies), "status": record["status"]}
    shared |= {"quiet": record["quiet"]["quiet"], "timed": record["config"]["protocol"]["timed"]}
    shared["sampled_step_s"] = record["timing"]["sampled_step"]["median_s"]
    return [{**shared, "span": name, **span} for name, span in sorted(record["timing"]["spans"].items())]


def _history(config: Mapping[str, Any], root: Path, finding: Finding) -> list[dict[str, Any]]:
    """Rows of history.csv: the epochs of a run of an accuracy study, with whatever columns its file has."""
    asked = any(config["studies"][study]["kind"] == "accuracy" for study in finding.studies)
    path = root / finding.run.folder / "history.csv"
    if finding.record is None or not asked or not path.exists():
        return []
    with path.open(newline="") as file:
        return [{**row, **_axes(finding)} for row in csv.DictReader(file)]
