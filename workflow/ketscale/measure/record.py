"""The record of a run, and the validator that says whether it can be trusted.

Training, status, tables and the report all use `check`. A record has a digest of its own content, which damage
changes. Someone who edits numbers may compute it again, so numbers must also be in their ranges and agree with each
other. Imports nothing heavy, so that thousands of records take about a second.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ketscale.config import Settings
from ketscale.files import sha256, write_atomic
from ketscale.grid import HISTORY, config_hash
from ketscale.measure.consistency import contradictions

SCHEMA_VERSION = 4

# No process runs for a century.
Seconds = Annotated[float, Meta(ge=0, le=3.2e9)]
# What files and messages can count.
Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Share = Annotated[float, Meta(ge=0)]
Time = Annotated[datetime, Meta(tz=True)]
# A metric, a table such as a confusion matrix, or None if it is not defined.
Figure = float | list[Any] | None


class _Part(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A part of a record."""


class Quartiles(_Part):
    """Median and quartiles of measured times; None if nothing was measured."""

    median_s: Seconds | None
    q25_s: Seconds | None
    q75_s: Seconds | None
    count: Natural


class Timing(_Part):
    """What the clock measured.

    startup_s: from the start of the process until data are read. data_s: opening and verifying the data.
    step: steady steps, that is without warm-up and sampled steps. spans: exclusive time of each part of a sampled
    step.
    sampled_step: whole sampled steps. validation_s: median of a validation pass. epoch: wall time of whole epochs.
    steps: their total number. epoch_s: steps_per_epoch times the median steady step. train_s: wall time of the
    training loop.
    """

    startup_s: Seconds
    data_s: Seconds
    first_step_s: Seconds | None
    step: Quartiles
    spans: dict[str, Quartiles]
    sampled_step: Quartiles
    validation_s: Seconds | None
    epoch: Quartiles
    steps: Natural
    steps_per_epoch: Natural
    epoch_s: Seconds | None
    samples_per_s: Seconds | None
    train_s: Seconds


class Quality(_Part):
    """Metrics of the best weights; each split has the loss and the metrics of the family."""

    epochs: Natural
    best_epoch: Natural
    validation: dict[str, Figure]
    test: dict[str, Figure]


class Code(_Part):
    """The code that trained. hash: SHA-256 of the sources that affect numbers and timing."""

    version: str
    hash: str
    commit: str | None
    dirty: bool | None


class Topology(_Part):
    """The host's processors.

    core_of: the physical core of each logical CPU that rank 0 may use; a core has the number of its lowest CPU.
    """

    sockets: Annotated[int, Meta(ge=1)]
    physical_cores: Annotated[int, Meta(ge=1)]
    threads_per_core: Annotated[int, Meta(ge=1)]
    core_of: dict[str, int | None]


class Quiet(_Part):
    """Whether the run was timed alone on rank 0's host: others used at most 5 % of its cores, and it had enough of them.

    cpus: the watched logical CPUs, which are all those of the run's cores; None for the whole host. oversubscribed:
    whether the run's threads are more than the CPUs that it may use, so that they disturbed each other.
    """

    quiet: bool
    others_share: Share
    steal_share: Share
    cpus: list[int] | None
    oversubscribed: bool


class Rank(msgspec.Struct, kw_only=True):
    """What one rank used; more is kept, but nothing else is tabulated."""

    peak_rss_bytes: Natural | None
    peak_device_bytes: Natural | None
    shared_cores: bool | None = None


class Machine(msgspec.Struct, kw_only=True):
    """The host of rank 0, and one entry per rank in rank order."""

    host: str
    cpu: str
    cores: Natural
    memory_bytes: Natural
    gpus: list[Any] | None
    topology: Topology | None
    ranks: Annotated[list[Rank], Meta(min_length=1)]


class Route(_Part):
    """How fused evaluated the circuits of batches above 2^qubits, and the modelled seconds that decided it."""

    qubits: Natural
    gates: Natural
    batch: Natural
    route: Literal["sweep", "matrix"]
    sweep_s: Seconds | None
    matrix_s: Seconds | None


class Split(_Part):
    """How the data were split.

    by: the unit that is never in two of training, validation and test. fold, folds, held_out: with folds, which one
    is the test set, how many there are and what is held out. shared: how many samples of validation and test equal one
    of a part before theirs (train, validation, test); None without a split.
    """

    by: str | None
    fold: Natural | None
    folds: Natural | None
    held_out: int | None
    shared: Natural | None


class Record(_Part):
    """A run's metrics.json: everything that was measured, and everything needed to trust it.

    run: the axes. sizes: the model's sizes by name. reason: why the run did not complete, with the step. resumed: how
    often it resumed from a checkpoint. lost_s: the cost of interruptions in seconds, for repeated work and restarts.
    call: the call of Snakemake that trained the run; None by hand. parameters: the number of trainable ones; a
    complex number counts once; None if memory ran out before there was a model. config: the resolved settings. started, stopped: UTC, ISO 8601. losses: of the first
    20 steps.
    files: SHA-256 of each file of the run beside the record: its history, and the trained model where it is kept.
    digest: SHA-256 of all the rest as canonical JSON.
    """

    schema: Literal[4]
    family: str
    run: dict[str, int | str]
    sizes: dict[str, Natural]
    status: Literal["completed", "diverged", "out_of_memory"]
    reason: str | None
    resumed: Natural
    lost_s: Seconds
    call: str | None
    parameters: Natural | None
    config: dict[str, Any]
    config_hash: str
    data_hash: str | None
    features_hash: str | None
    split: Split
    code: Code
    packages: dict[str, str]
    mpi_library: str | None
    machine: Machine
    slurm_job_id: str | None
    started: Time
    stopped: Time
    quiet: Quiet
    quality: Quality | None
    losses: Annotated[list[float], Meta(max_length=20)]
    weights_hash: str | None
    files: dict[str, str]
    routes: list[Route]
    timing: Timing
    node_hours: Annotated[float, Meta(ge=0)]
    gpu_hours: Annotated[float, Meta(ge=0)]
    digest: str


State = Literal["missing", "refused", "stale", "completed", "diverged", "out_of_memory"]


@dataclass(frozen=True)
class Checked:
    """The result of checking a record.

    state: missing; refused (damaged, or of another run); stale (of other settings or data, or another version); else
    the status in a record that can be trusted. why: the reason in words, also for a run that did not complete.
    """

    state: State
    why: str = ""
    record: dict[str, Any] | None = None


def check(path: Path, settings: Settings, features_hash: str | None) -> Checked:
    """Check that the record at `path` is complete, belongs to the run with these settings and features, and has its
    history beside it.

    features_hash: of the prepared data in use; None if they are unknown, or the family has none.
    """
    found = read(path)
    if found.record is not None:
        found = _compared(found.record, settings)
    if found.record is None:
        return found
    fault = damaged(path.parent, found.record, HISTORY)
    if fault:
        return Checked("refused", fault)
    if features_hash is not None and found.record["features_hash"] != features_hash:
        return Checked("stale", "trained on other features: its features hash is not the manifest's")
    return found


def read(path: Path) -> Checked:
    """Check the record at `path` by itself: its form and its digest."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Checked("missing")
    except OSError as error:
        return Checked("refused", f"its record cannot be read ({error.strerror})")
    try:
        record = _parsed(data)
    except (ValueError, RecursionError) as error:
        return Checked("refused", f"its record cannot be read (not JSON: {error})")
    version = record.get("schema") if isinstance(record, dict) else None
    if version != SCHEMA_VERSION:
        return Checked("stale", f"its record has schema {version!r}, but this version reads {SCHEMA_VERSION}")
    return _formed(record)


def damaged(folder: Path, record: Mapping[str, Any], name: str) -> str:
    """What is wrong with a file in the run's folder that its record vouches for; '' if nothing is."""
    expected = record["files"].get(name)
    if expected is None:
        return f"its record has no {name}"
    try:
        found = sha256(folder / name)
    except FileNotFoundError:
        return f"its {name} is missing"
    except OSError as error:
        return f"its {name} cannot be read ({error.strerror})"
    return "" if found == expected else f"its {name} is not the one that the run wrote: edited or damaged"


def _parsed(data: bytes) -> Any:
    """The value of JSON text.

    Raises:
        ValueError: it is not JSON, has a number that JSON has not, or a key twice.
        RecursionError: it is nested too deeply.
    """
    return json.loads(data, parse_constant=_refuse, object_pairs_hook=_distinct)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is given twice")
    return found


def _formed(record: dict[str, Any]) -> Checked:
    """Check the digest and the form of a record."""
    try:
        # Python reads a number such as 1e999 as infinity, which has no canonical JSON.
        if _digest(record) != record.get("digest"):
            return Checked(
                "refused", "its record was edited or damaged: its digest is not that of its content"
            )
        msgspec.convert(record, Record)
    except (ValueError, RecursionError) as error:  # msgspec.ValidationError is a ValueError
        return Checked("refused", f"its record does not have the form that this version writes: {error}")
    return Checked(record["status"], record["reason"] or "", record)


def _compared(record: dict[str, Any], settings: Settings) -> Checked:
    """Check a record of the right form against the settings of its run, and its parts against each other."""
    if record["run"] != settings.content["run"]:
        return Checked("refused", "the axes in the record differ from those in its path")
    if record["config_hash"] != settings.hash:
        return Checked("stale", "trained with other settings: its config hash is not the config's")
    if record["config"] != settings.content:
        return Checked("refused", "the settings in the record do not match its config hash")
    why = next(contradictions(msgspec.convert(record, Record), settings), None)
    if why:
        return Checked("refused", f"its record contradicts itself: {why}")
    return Checked(record["status"], record["reason"] or "", record)


def _digest(record: Mapping[str, Any]) -> str:
    return config_hash({name: value for name, value in record.items() if name != "digest"})


def write(path: Path, settings: Settings, record: Mapping[str, Any]) -> None:
    """Add the digest to the record of the run with these settings, check it as a reader will, and write it atomically.

    Raises:
        ValueError: the record does not fit `Record` or the settings, contradicts itself, or a number in it is not
            finite.
    """
    # As a reader will have it, so that the digest is that of the text.
    plain = json.loads(json.dumps(record, allow_nan=False))
    whole = {**plain, "digest": _digest(plain)}
    found = _formed(whole)
    if found.record is not None:
        found = _compared(whole, settings)
    if found.record is None:
        raise ValueError(f"{path}: not a record: {found.why}")
    write_atomic(path, (json.dumps(whole, indent=1, sort_keys=True) + "\n").encode())
