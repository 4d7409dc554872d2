"""Records as samples of what runs cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ketscale.grid import BACKENDS, RECORD, RUNS, Run
from ketscale.jobs.costs import messages
from ketscale.jobs.costs.features import Case, case, hardware
from ketscale.measure.form import Machine, Record
from ketscale.measure.record import read

# step_s: the median steady step. pace_s: the mean of all steps but the first, which the length of a run depends on.
# validation_s: a pass over the validation samples. start_s: all the rest: starting, reading data, the first step,
# testing, saving. memory_bytes: host memory of the largest rank.
COSTS = ("step_s", "pace_s", "validation_s", "start_s", "memory_bytes")


@dataclass(frozen=True)
class Gradient:
    """The gradient that ranks sum in every step.

    size: its bytes. messages: all-reduces a step; a loss that is not linear in its sums needs them first, which are few
    numbers. all_reduce_s: of the gradient, where it was timed, on a quiet machine, by ranks with cores or GPUs of their
    own.
    """

    size: int
    messages: int
    all_reduce_s: float | None


@dataclass(frozen=True)
class Sample:
    """What a run cost.

    costs: by the names of `COSTS`; one that the run did not have is missing. steps: how many it took.
    steps_per_epoch, batch, nodes, ranks: of the run. epochs, planned: as many as it took and as there were at most; None in a protocol with steps.
    stops_early: whether its protocol allows fewer. wall_s: all of its time. quiet: whether it had the machine to itself.
    gradient: None if memory ran out before there was a model.
    """

    case: Case
    costs: Mapping[str, float]
    steps: int
    steps_per_epoch: int
    batch: int
    nodes: int
    ranks: int
    epochs: int | None
    planned: int | None
    stops_early: bool
    wall_s: float
    quiet: bool
    gradient: Gradient | None = None


def of(record: Record) -> Sample | None:
    """The sample that a record is; None if the run failed or was resumed, or has no steady step.

    A run whose time was over has one too, though it may be its only step.
    """
    timing, protocol = record.timing, record.settings.protocol
    late = record.status == "timed_out"
    step_s = timing.step.median_s or (timing.first_step_s if late else None)
    memory = max(rank.peak_rss_bytes or 0 for rank in record.machine.ranks)
    if not (late or record.status == "completed") or record.resumed or not step_s or not memory:
        return None
    wall_s = (record.stopped - record.started).total_seconds() + timing.startup_s
    steps = timing.steps
    epochs = record.quality.epochs if record.quality else None
    validation_s = timing.validation_s if epochs else None
    first_s = timing.first_step_s or step_s
    validated_s = (epochs or 0) * (validation_s or 0.0)
    pace_s = max((timing.train_s - first_s - validated_s) / (steps - 1), step_s / 2) if steps > 1 else step_s
    # What rounding leaves of a very short start is not below what was measured of it.
    start_s = max(wall_s - steps * pace_s - validated_s, timing.startup_s + timing.data_s, 1e-3)
    run, costs = (
        Run.of(record.run),
        {"step_s": step_s, "pace_s": pace_s, "start_s": start_s, "memory_bytes": float(memory)},
    )
    return Sample(
        case(record.config, record.sizes, hardware(record.machine)),
        costs | ({"validation_s": validation_s} if validation_s else {}),
        steps,
        timing.steps_per_epoch,
        run.batch,
        run.nodes,
        run.ranks,
        epochs,
        protocol.epochs,
        protocol.early_stopping is not None,
        wall_s,
        record.quiet.quiet,
        _gradient(record),
    )


def _gradient(record: Record) -> Gradient | None:
    size, spans, run = record.gradient_bytes, record.timing.spans, Run.of(record.run)
    if not size:
        return None
    protocol = record.settings.protocol
    # A run on more ranks than cores is not quiet.
    sound = run.ranks > 1 and protocol.timed and not protocol.mistake and record.quiet.quiet
    return Gradient(
        size,
        2 if "communication.sums" in spans else 1,
        messages.seconds(spans, run.backend, size) if sound and _apart(run, record.machine) else None,
    )


def _apart(run: Run, machine: Machine) -> bool:
    """Whether every rank is known to have cores, or a GPU, of its own."""
    if BACKENDS[run.backend].device == "gpu":
        return run.ranks <= run.nodes * len(machine.gpus)
    return all(rank.shared_cores is False for rank in machine.ranks)


def below(folders: Iterable[Path]) -> list[Sample]:
    """The samples of all whole records in results folders, whatever config they are of.

    Where a point has quiet runs, its busy ones are left out.
    """
    found = []
    for folder in folders:
        for path in sorted((folder / RUNS).glob(f"**/{RECORD}")):
            record = read(path).record
            sample = of(record) if record else None
            if sample:
                found.append(sample)
    quiet = {sample.case.point for sample in found if sample.quiet}
    return [sample for sample in found if sample.quiet or sample.case.point not in quiet]
