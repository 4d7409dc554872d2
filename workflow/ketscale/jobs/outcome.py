"""How a training ended, and the parts of its record."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import torch

from ketscale import process
from ketscale.config import Data, Settings
from ketscale.engines.circuits.fused import routes_taken
from ketscale.engines.compiled.threads import usable
from ketscale.grid import Run
from ketscale.jobs import finished, provenance
from ketscale.layers.complex_weights import parameter_count
from ketscale.measure import host
from ketscale.measure.clock import Clock, quartiles
from ketscale.measure.form import SCHEMA_VERSION, epoch_s
from ketscale.measure.quiet import Quiet
from ketscale.parallel.world import World
from ketscale.problems.problem import Problem
from ketscale.training.loop import Diverged, TimedOut, Trainer


@dataclass(frozen=True)
class Outcome:
    """How a training ended, and how long it took in seconds.

    outputs: the model's outputs for the test samples with the best weights; None for a protocol with steps.
    """

    status: str
    train_s: float
    reason: str | None = None
    quality: dict[str, Any] | None = None
    outputs: torch.Tensor | None = None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out; torch's CPU allocator says so only in its message."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


class Memory:
    """A context in which running out of memory is no error; `ran_out` says then what happened, in a line."""

    def __init__(self) -> None:
        self.ran_out: str | None = None

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None or not is_out_of_memory(error):
            return False
        self.ran_out = (str(error) or "there is no memory left").splitlines()[0]
        return True


def run(trainer: Trainer) -> Outcome:
    """Train. Divergence, running out of time and running out of memory are outcomes too."""
    return ended(trainer, time.perf_counter(), trainer.run)


def ended(trainer: Trainer, start: float, train: Callable[[], None]) -> Outcome:
    """How a training ended that `train` finishes, or whose error it raises; it began at `start` (perf_counter)."""
    with Memory() as memory:
        return _ended(trainer, start, train)
    return Outcome("out_of_memory", time.perf_counter() - start, memory.ran_out)


def _ended(trainer: Trainer, start: float, train: Callable[[], None]) -> Outcome:
    try:
        train()
        train_s = time.perf_counter() - start
        if not trainer.by_epochs:
            return Outcome("completed", train_s)
        outputs = {split: trainer.outputs(split) for split in ("validation", "test")}
        quality = {
            "epochs": len(trainer.history),
            "best_epoch": trainer.best["epoch"],
            **{split: _finite(split, trainer.problem, rows) for split, rows in outputs.items()},
        }
        return Outcome("completed", train_s, quality=quality, outputs=outputs["test"])
    except Diverged as error:
        return Outcome("diverged", time.perf_counter() - start, str(error))
    except TimedOut as error:
        return Outcome("timed_out", time.perf_counter() - start, str(error))


def _finite(split: str, problem: Problem, outputs: torch.Tensor) -> dict[str, Any]:
    """All metrics of a split.

    Raises:
        Diverged: one of them is not finite; a record can hold none such.
    """
    metrics = problem.metrics(split, outputs, full=True)
    for name, value in metrics.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise Diverged(f"the {name} on the {split} samples is {value} with the best weights")
    return metrics


def record_of(
    settings: Settings,
    data: Data,
    trainer: Trainer | None,
    ended: Outcome,
    measured: Mapping[str, Any],
) -> dict[str, Any]:
    """The record: what was requested, how it ended, and what was measured.

    trainer: None if memory ran out before there was one.
    """
    return {
        "schema": SCHEMA_VERSION,
        "family": settings.family.name,
        "run": asdict(settings.run),
        "sizes": settings.sizes,
        "status": ended.status,
        "reason": ended.reason,
        "call": finished.call(),
        "parameters": parameter_count(trainer.problem.model) if trainer else None,
        "gradient_bytes": _gradient_bytes(trainer.problem.model) if trainer else None,
        "config": settings.content,
        "config_hash": settings.hash,
        "data_hash": data.data_hash,
        "features_hash": data.features_hash,
        "split": asdict(data.split),
        **provenance.taken(),
        "slurm_job_id": process.slurm_job(),
        "quality": ended.quality,
        "losses": trainer.losses if trainer else [],
        "weights_hash": trainer.weights_hash() if trainer and ended.status == "completed" else None,
        "routes": routes_taken(trainer.problem) if trainer else [],
        **measured,
    }


def _gradient_bytes(model: torch.nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)


def of_rank(
    world: World,
    cores: list[int],
    shared: bool | None,
    quiet: Quiet,
    trainer: Trainer | None,
    ended: Outcome,
) -> dict[str, Any]:
    """This rank's entry in the record.

    shared: whether threads of this host's ranks share physical cores; None if the topology is unknown.
    """
    stalled_s = trainer.clock.stalled_s() if trainer and ended.status in ("completed", "timed_out") else None
    gpu = world.device.type == "cuda"
    return {
        "rank": world.rank,
        "host": process.node_name(),
        "pid": os.getpid(),
        "threads": {"torch": torch.get_num_threads(), "compiled": usable(torch.get_num_threads())}
        | {name: os.environ[name] for name in process.THREAD_VARIABLES},
        "affinity": cores,
        "shared_cores": shared,
        "gpu_uuid": str(torch.cuda.get_device_properties(world.device).uuid) if gpu else None,
        "peak_rss_bytes": host.peak_rss_bytes(),
        "peak_device_bytes": torch.cuda.max_memory_allocated() if gpu else None,
        "cpu_s": quiet.own_s(),
        "seen": quiet.seen(),
        "stalled_share": None if stalled_s is None else stalled_s / ended.train_s,
        "samples": trainer.samples_seen if trainer else 0,
    }


def timing(clock: Clock, trainer: Trainer | None, ended: Outcome) -> dict[str, Any]:
    """What the clock has measured, in seconds."""
    steps = steps_per_epoch = samples = 0
    if trainer:
        steps, steps_per_epoch = trainer.step, trainer.steps_per_epoch
        # A batch larger than the data has no more samples than there are.
        samples = min(trainer.batch, trainer.problem.sampler.samples or trainer.batch)
    step = quartiles(clock.steady_s)
    epoch = quartiles(clock.epochs_s)
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
        "train_s": ended.train_s,
    }


def spent(
    started: datetime, seconds: float, run: Run, device: torch.device, share_s: float | None = None
) -> dict[str, Any]:
    """Start and stop times, and the node-hours and GPU-hours between them; `seconds` are by a clock that is never set.

    share_s: the run's share of these seconds, if other runs were trained in the same process; None: all.
    """
    stopped = started + timedelta(seconds=seconds)
    hours = (seconds if share_s is None else share_s) / 3600
    return {
        "started": started.isoformat(),
        "stopped": stopped.isoformat(),
        "node_hours": hours * run.nodes,
        "gpu_hours": hours * run.ranks if device.type == "cuda" else 0.0,
    }
