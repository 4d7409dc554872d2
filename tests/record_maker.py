"""Small records that `measure.record` takes, made from the types of `measure.form`, for tests of what reads and keeps them."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect
from msgspec.inspect import Type

from ketscale.config import Config, Settings
from ketscale.grid import HISTORY, Run, config_hash
from ketscale.measure import form, record
from ketscale.measure.quiet import disturbances
from ketscale.problems.registry import FAMILIES, read_config
from tests import ROOT

FEATURES = "f" * 64
NO_EPOCHS = "epoch,step\n"
TIME = "2026-01-01T00:00:00+00:00"
_info = functools.cache(msgspec.inspect.type_info)


def settings(**studies: Any) -> dict[str, Any]:
    """The settings of tests/data/study.yaml without a limit of time, with other studies if any are named."""
    result = dict(read_config(ROOT / "tests" / "data" / "study.yaml").raw)
    timing = {name: value for name, value in result["protocols"]["timing"].items() if name != "limit_s"}
    result["protocols"] = {**result["protocols"], "timing": timing}
    return {**result, "studies": studies} if studies else result


def config(**studies: Any) -> Config:
    """Its config with other studies."""
    return Config.of(settings(**studies), FAMILIES)


def study(**axes: Any) -> dict[str, Any]:
    """A study at one usual point, with some of its axes replaced."""
    defaults = {
        "workload": "digits", "model": "vqc", "qubits": 4, "layers": 3, "batch": 64,
        "simulator": "default.qubit", "backend": "cpu-n1r1t1", "protocol": "timing", "seed": [0, 1, 2],
    }  # fmt: skip
    return {"kind": "simulator", "question": "?", "axes": {**defaults, **axes}}


def of(settings: Settings, **changes: Any) -> dict[str, Any]:
    """A record, without its digest, of a run with these settings that completed; `changes` replace its parts."""
    completed = changes.get("status", "completed") == "completed"
    least = _least(_info(form.Record))
    del least["digest"]
    least["machine"]["ranks"] *= settings.run.ranks
    values = {
        "schema": form.SCHEMA_VERSION,
        "family": settings.family.name,
        "run": asdict(settings.run),
        "sizes": settings.sizes,
        "config": settings.content,
        "config_hash": settings.hash,
        "features_hash": FEATURES,
        "reason": None if completed else "NaN at step 3",
        "weights_hash": "0" * 64 if completed else None,
        "parameters": 7 if completed else None,
        "started": TIME,
        "stopped": TIME,
        "files": {HISTORY: hashlib.sha256(NO_EPOCHS.encode()).hexdigest()},
    }
    if completed and settings.protocol.by_epochs:
        values["quality"] = {
            "epochs": 1,
            "best_epoch": 0,
            "chosen": {},
            "validation": {},
            "test": {},
            "right": None,
        }
    steps = changes.get("timing", least["timing"])["steps"]
    values["losses"] = [0.5] * min(form.FIRST_LOSSES, steps)
    result = {**least, **values, **changes}
    seconds = (
        datetime.fromisoformat(result["stopped"]) - datetime.fromisoformat(result["started"])
    ).total_seconds()
    return {**result, "node_hours": changes.get("node_hours", seconds / 3600 * settings.run.nodes)}


def quartiles(seconds: float | None = None, count: int = 0) -> dict[str, Any]:
    """The quartiles of so many equal times, or of none."""
    return {**dict.fromkeys(("median_s", "q25_s", "q75_s", "mean_s"), seconds), "count": count}


def timed(run: Run, train_s: float, steps: int = 40) -> dict[str, Any]:
    """The times of a run that took so many seconds for equal steps, and a second for everything else."""
    step_s = train_s / steps
    return {
        "startup_s": 0.5, "data_s": 0.5, "first_step_s": step_s, "step": quartiles(step_s, steps - 1), "spans": {}, "sampled_step": quartiles(),
        "validation_s": None, "epoch": quartiles(), "steps": steps, "steps_per_epoch": 20, "epoch_s": 20 * step_s,
        "samples_per_s": run.batch / step_s, "steps_s": train_s, "aside_s": 0.0, "train_s": train_s, "fit_s": None,
    }  # fmt: skip


def used(run: Run, bytes_per_rank: int = 3 * 10**8) -> dict[str, Any]:
    """The machine of a run, with the memory of each rank."""
    machine = _least(_info(form.Machine))
    ranks = [
        {"peak_rss_bytes": bytes_per_rank, "peak_device_bytes": None, "shared_cores": None}
        for _ in range(run.ranks)
    ]
    return {"machine": {**machine, "cpu": "A processor", "cores": 2, "ranks": ranks}}


def machine() -> form.Host:
    """The host of such a run."""
    return msgspec.convert({**_least(_info(form.Host)), "cpu": "A processor", "cores": 2}, form.Host)


def others(others_share: float = 0.0, cpus: list[int] | None = None, **shares: Any) -> dict[str, Any]:
    """What there was beside a run on some CPUs, by default CPU 0: so much work of others, and what else is named."""
    result = {
        "others_share": others_share,
        "steal_share": 0.0,
        "throttled_share": None,
        "oversubscribed": False,
        **shares,
    }
    why = "; ".join(disturbances(**result))
    return {"quiet": not why, "why": why, "cpus": cpus or [0], **result}


def typed(made: Mapping[str, Any]) -> form.Record:
    """The record that these values make, whatever its digest."""
    return msgspec.convert({"digest": "", **made}, form.Record)


def sealed(result: Mapping[str, Any]) -> str:
    """The text of a record with the digest of its content, whatever that is: an editor may know how it is computed."""
    result = {name: value for name, value in result.items() if name != "digest"}
    return json.dumps({**result, "digest": config_hash(result)})


def forge(results: Path, settings: Settings, **changes: Any) -> Path:
    """Such a record and its history below a results folder, though training would not write it; its path."""
    path = results / settings.run.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(sealed(of(settings, **changes)))
    (path.parent / HISTORY).write_text(NO_EPOCHS)
    return path


def write(results: Path, settings: Settings, **changes: Any) -> Path:
    """Such a record below a results folder with its history, as training writes them; its path."""
    path = results / settings.run.path
    record.write(path, settings, of(settings, **changes))
    (path.parent / HISTORY).write_text(NO_EPOCHS)
    return path


def _least(kind: Type) -> Any:
    """The smallest value of a type."""
    match kind:
        case msgspec.inspect.Metadata():
            return _least(kind.type)
        case msgspec.inspect.StructType():
            return {field.encode_name: _least(field.type) for field in kind.fields if field.required}
        case msgspec.inspect.LiteralType():
            return kind.values[0]
        case msgspec.inspect.UnionType():
            return None if kind.includes_none else _least(kind.types[0])
        case msgspec.inspect.ListType():
            return [_least(kind.item_type)] * (kind.min_length or 0)
        case msgspec.inspect.DictType():
            return {}
        case msgspec.inspect.FloatType():
            return float(kind.ge or 0)
        case msgspec.inspect.IntType():
            return kind.ge or 0
        case msgspec.inspect.DateTimeType():
            return TIME
        case msgspec.inspect.BoolType():
            return False
        case msgspec.inspect.StrType():
            return ""
    raise TypeError(f"no value of {kind}")
