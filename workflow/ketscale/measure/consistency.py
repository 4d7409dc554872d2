"""What the parts of a record say about each other, and about the settings of its run.

A test on another fold than the seed's, a metric out of its range, or a result of fewer ranks would be silent mistakes of ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ketscale.config import Metric, Settings, fold_of
from ketscale.measure.form import LOSSES_KEPT, Quality, Record

# The rounding of metrics that were averaged in single precision.
_SINGLE = 1e-6


def contradictions(record: Record, settings: Settings) -> Iterator[str]:
    """What in a record of the run with these settings does not go together."""
    run, completed = settings.run, record.status == "completed"
    if (record.family, record.sizes) != (settings.family.name, settings.sizes):
        yield "its family or its sizes are not those of its settings"
    if completed != (record.reason is None) or completed != (record.weights_hash is not None):
        yield f"it is {record.status}; a completed run has weights, and any other a reason instead"
    if (record.quality is not None) != (completed and settings.protocol.tested):
        yield "completed epochs and fits have a quality, and nothing else has"
    if (record.trainability is not None) != (completed and settings.protocol.probe is not None):
        yield "completed probes have a trainability, and nothing else has"
    if (completed or record.status == "timed_out") and len(record.losses) != min(
        LOSSES_KEPT, record.timing.steps
    ):
        yield f"{len(record.losses)} losses of {record.timing.steps} steps are kept"
    # A rank that is out of memory reports for itself alone.
    if record.status != "out_of_memory" and len(record.machine.ranks) != run.ranks:
        yield f"{len(record.machine.ranks)} of {run.ranks} ranks are described"
    yield from _fold(record, settings)
    if record.quality is not None:
        yield from _quality(record.quality, settings.family.metrics)


def _fold(record: Record, settings: Settings) -> Iterator[str]:
    """The seed chooses the fold, of a workload that has several."""
    fold, folds = record.split.fold, record.split.folds
    if folds is not None and fold != fold_of(settings.run.seed, folds):
        yield f"its fold is {fold}, but seed {settings.run.seed} has number {fold_of(settings.run.seed, folds)} of {folds}"


def _quality(quality: Quality, metrics: tuple[Metric, ...]) -> Iterator[str]:
    for split, values in (("validation", quality.validation), ("test", quality.test)):
        for name, metric in [("chance", metrics[0]), *((metric.name, metric) for metric in metrics)]:
            if not _within(values.get(name), *metric.range):
                yield f"{name} on the {split} samples is {values[name]}"
        if not _within(values.get("loss"), -math.inf, math.inf):
            yield f"loss on the {split} samples is {values['loss']}"


def _within(value: Any, least: float, most: float) -> bool:
    """Whether a metric is undefined or in its range."""
    return value is None or (isinstance(value, (int, float)) and least - _SINGLE <= value <= most + _SINGLE)
