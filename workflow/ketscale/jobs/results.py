"""What a run leaves: its record, its history, and the trained model with its predictions."""

from __future__ import annotations

import hashlib
import io
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from ketscale import process
from ketscale.config import Data, FileModel, Settings
from ketscale.files import write_atomic
from ketscale.grid import CODE, HISTORY, PREDICTIONS, RECORD, Run
from ketscale.jobs import finished, provenance, supervise
from ketscale.jobs.context import Context
from ketscale.jobs.outcome import Outcome
from ketscale.jobs.started import ActiveRun
from ketscale.layers.complex_weights import parameter_count
from ketscale.measure import record
from ketscale.measure.clock import Clock, quartiles
from ketscale.measure.form import SCHEMA_VERSION, epoch_s
from ketscale.measure.quiet import quietness
from ketscale.problems import importer, models
from ketscale.problems.problem import Problem
from ketscale.training import checkpoint
from ketscale.training.history import History
from ketscale.training.training import Training


def write(
    run: ActiveRun, result: Outcome, context: Context, ranks: list[dict[str, Any]], passes: int = 1
) -> None:
    """Write what a run leaves, the record last, and delete what it needed to resume.

    Args:
        ranks: their entries in the record.
        passes: how often the steps were taken.
    """
    settings, folder, trainer = run.settings, run.folder, run.trainer
    # What is an output of a job for Snakemake is written by that job only.
    place = folder / finished.KEPT if run.guest else folder
    history_hash = (trainer.history if trainer else History(None)).finish(place / HISTORY)
    model = trainer.problem if trainer and result.status == "completed" else None
    evolution = trainer.problem.evolution() if trainer else None
    seconds = time.monotonic() - context.clock_s
    measured = {
        "resumed": run.resumed,
        "cohort": sorted(run.cohort),
        "replayed": trainer.replayed if trainer else 0,
        "evolution": None if evolution is None else msgspec.structs.asdict(evolution),
        "mpi_library": context.world.library,
        "machine": {**context.machine, "ranks": ranks},
        "quiet": {**quietness(ranks), "passes": passes},
        "files": {HISTORY: history_hash, **_keep(settings, model, result.outputs, folder)},
        "timing": {"startup_s": context.startup_s, "data_s": run.data_s, **timing(trainer, result)},
        **costs(context.started, seconds, settings.run, context.world.device, run.share_s),
    }
    made = record_of(settings, run.data, trainer, result, measured)
    record.write(place / RECORD, settings, made)
    if not run.guest:  # what an earlier call has left there must not follow this record
        shutil.rmtree(folder / finished.KEPT, ignore_errors=True)
    elif process.call():
        write_atomic(place / finished.OF_CALL.format(process.call()), b"")
    (folder / supervise.NOTE).unlink(missing_ok=True)
    checkpoint.clear(folder)
    run.lock.finished = True


def _keep(
    settings: Settings, problem: Problem | None, outputs: torch.Tensor | None, folder: Path
) -> dict[str, str]:
    """Write the trained model, its test predictions and, of a model in a user's own file, the code as it was imported.

    With keep_model: false, and if the run was not completed (problem: None), the code alone. Files of an earlier training of the
    run are deleted.

    Returns:
        SHA-256 by file name.
    """
    files = dict[str, bytes]()
    if isinstance(settings.model, FileModel) and (code := importer.in_use(settings.model.code)):
        files[CODE] = code.packed()
    if problem is not None and settings.protocol.keep_model:
        files[models.WEIGHTS] = models.saved(settings, problem)
        if outputs is not None:
            buffer, arrays = io.BytesIO(), problem.predictions("test", outputs)
            rows = {name: array.cpu().numpy() for name, array in arrays.items()}
            np.savez(buffer, allow_pickle=False, **rows)
            files[PREDICTIONS] = buffer.getvalue()
    for name in (CODE, models.WEIGHTS, PREDICTIONS):
        (folder / name).unlink(missing_ok=True)
        if name in files:
            write_atomic(folder / name, files[name])
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def record_of(
    settings: Settings, data: Data, trainer: Training | None, result: Outcome, measured: Mapping[str, Any]
) -> dict[str, Any]:
    """The record: what was requested, how it ended, and what was measured.

    trainer: None if memory ran out before there was one.
    """
    parameters = trainer.problem.model.parameters() if trainer else ()
    gradients = [parameter for parameter in parameters if parameter.requires_grad]
    return {
        "schema": SCHEMA_VERSION,
        "family": settings.family.name,
        "run": asdict(settings.run),
        "sizes": settings.sizes,
        "status": result.status,
        "reason": result.reason,
        "call": process.call(),
        "parameters": parameter_count(trainer.problem.model) if trainer else None,
        "gradient_bytes": sum(p.nbytes for p in gradients) if trainer and trainer.stepped else None,
        "config": settings.content,
        "config_hash": settings.hash,
        "data_hash": data.data_hash,
        "features_hash": data.features_hash,
        "split": msgspec.structs.asdict(data.split),
        "samples": dict(trainer.problem.splits) if trainer else {},
        **provenance.of_record(),
        "slurm_job_id": process.slurm_job(),
        "quality": result.quality,
        "losses": trainer.losses if trainer else [],
        "weights_hash": trainer.weights_hash() if trainer and result.status == "completed" else None,
        **measured,
    }


def timing(trainer: Training | None, result: Outcome) -> dict[str, Any]:
    """What the clock has measured, in seconds; zeros and None if memory ran out before there was a trainer."""
    clock = trainer.clock if trainer else Clock(torch.device("cpu"), 0, frozenset())
    steps = steps_per_epoch = samples = 0
    if trainer and trainer.stepped:
        steps, steps_per_epoch = trainer.step, trainer.steps_per_epoch
        # A batch larger than the data has no more samples than there are.
        samples = min(trainer.batch, trainer.problem.sampler.samples or trainer.batch)
    step, epoch = clock.step(), quartiles(clock.epochs_s)
    median = step["median_s"]
    return {
        "first_step_s": clock.first_s,
        "step": step,
        "spans": {name: quartiles(seconds) for name, seconds in sorted(clock.spans_s.items())},
        "sampled_step": quartiles(clock.sampled_s),
        "validation_s": quartiles(clock.validations_s)["median_s"],
        "epoch": epoch,
        "steps": steps,
        "steps_per_epoch": steps_per_epoch,
        "epoch_s": epoch_s(epoch["median_s"], step["mean_s"], steps_per_epoch),
        "samples_per_s": median and samples / median,
        "steps_s": clock.steps_s,
        "aside_s": clock.aside_s,
        "train_s": result.train_s,
        "fit_s": trainer.fit_s if trainer else None,
        "preempted": clock.excluded if clock.device.type == "cpu" else None,
    }


def costs(
    start: datetime, seconds: float, run: Run, device: torch.device, share_s: float | None = None
) -> dict[str, Any]:
    """Start and stop times, and the node-hours and GPU-hours between them; `seconds` are by a clock that is never set.

    share_s: the run's share of these seconds, if other runs were trained in the same process; None: all.
    """
    stopped = start + timedelta(seconds=seconds)
    hours = (seconds if share_s is None else share_s) / 3600
    return {
        "started": start.isoformat(),
        "stopped": stopped.isoformat(),
        "node_hours": hours * run.nodes,
        "gpu_hours": hours * run.ranks if device.type == "cuda" else 0.0,
    }
