"""What the parts of a record say about each other, and about the settings of its run.

Each relation holds by construction, whatever was measured: a record that breaks one was edited.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ketscale.config import Metric, Protocol, Settings, fold_of
from ketscale.grid import Run
from ketscale.measure.form import LOSSES_KEPT, Quality, Quartiles, Record, Timing, Trainability, epoch_s
from ketscale.measure.quiet import STALLED_SHARE, disturbances
from ketscale.measure.right import unpacked, unpacked_numbers

# The rounding of products of floats, and of metrics that were averaged in single precision.
_ROUNDING = 1e-9
_SINGLE = 1e-6
# Start and stop are in microseconds.
_TICK_S = 1e-5
# Two clocks may differ by this.
_SLACK_S = 0.05


def contradictions(record: Record, settings: Settings) -> Iterator[str]:
    """What in a record of the run with these settings does not go together."""
    run, completed = settings.run, record.status == "completed"
    if (record.family, record.sizes) != (settings.family.name, settings.sizes):
        yield "its family or its sizes are not those of its settings"
    if completed != (record.reason is None) or completed != (record.weights_hash is not None):
        yield f"it is {record.status}; a completed run has weights, and any other a reason instead"
    if completed and record.parameters is None:
        yield "it is completed, and has no number of parameters"
    if (record.quality is not None) != (completed and settings.protocol.tested):
        yield "completed epochs and fits have a quality, and nothing else has"
    probe = settings.protocol.probe
    if (record.trainability is not None) != (completed and probe is not None):
        yield "completed probes have a trainability, and nothing else has"
    if record.trainability is not None and probe is not None:
        yield from _probed(record.trainability, probe.draws)
    if not settings.protocol.stepped:
        yield from _at_once(record)
    if settings.protocol.fitted:
        yield from _fit(record, completed)
    elif record.timing.fit_s is not None:
        yield "it is trained by steps, and has the time of a fit"
    timed_out = record.status == "timed_out"
    if timed_out and not _over(record, settings.protocol):
        yield "it is timed_out, but its time was not over, or its training was"
    if (completed or timed_out) and len(record.losses) != min(LOSSES_KEPT, record.timing.steps):
        yield f"{len(record.losses)} losses of {record.timing.steps} steps are kept"
    # A rank that is out of memory reports for itself alone.
    if record.status != "out_of_memory" and len(record.machine.ranks) != run.ranks:
        yield f"{len(record.machine.ranks)} of {run.ranks} ranks are described"
    yield from _quiet(record, settings.protocol)
    yield from _fold(record, settings)
    yield from _hours(record, run)
    yield from _timing(record.timing, run.batch)
    if record.cohort and not record.resumed and (record.timing.step.count or record.timing.epoch.count):
        yield "its steps are those of a cohort, and it has times of its own"
    if record.quality is not None:
        if {record.quality.epochs is None, record.quality.best_epoch is None} != {settings.protocol.fitted}:
            yield "a fit has no epochs, and every other test has some"
        yield from _quality(record.quality, settings.family.metrics)
        yield from _right(record.quality, settings.family.headline)


def _at_once(record: Record) -> Iterator[str]:
    """A fit or a probe is one phase, without steps."""
    timing = record.timing
    if timing.steps or record.losses or record.cohort or record.resumed or timing.epoch.count:
        yield "its model is not trained by steps, and it has steps, losses or checkpoints"


def _probed(found: Trainability, draws: int) -> Iterator[str]:
    """No mean square is less than the variance, and no more pairs depend on each other than there are."""
    if found.variance > found.square * draws / (draws - 1) * (1 + _ROUNDING):
        yield f"the variance of its gradient, {found.variance:g}, is more than the mean square, {found.square:g}"
    if found.pairs > found.observables * found.weights:
        yield f"{found.pairs} pairs of {found.observables} observables and {found.weights} weights"


def _fit(record: Record, completed: bool) -> Iterator[str]:
    """A fit has its time."""
    timing = record.timing
    if completed and not 0 <= (-1 if timing.fit_s is None else timing.fit_s) <= timing.train_s + _SLACK_S:
        yield f"its fit took {timing.fit_s} s of the {timing.train_s:g} s of training"


def _fold(record: Record, settings: Settings) -> Iterator[str]:
    """The seed chooses the fold, of a workload that has several."""
    fold, folds = record.split.fold, record.split.folds
    if (fold is None) != (folds is None) or (fold is not None and folds is not None and fold >= folds):
        yield f"fold {fold} is not one of {folds} folds, counted from 0"
    elif folds is not None and fold != fold_of(settings.run.seed, folds):
        yield f"its fold is {fold}, but seed {settings.run.seed} has number {fold_of(settings.run.seed, folds)} of {folds}"
    # A run whose data did not fit in memory knows of no split.
    elif settings.workload.folded != (folds is not None) and record.status != "out_of_memory":
        yield f"it has {'no ' * (folds is None)}folds, but its workload has {'no ' * (folds is not None)}such"


def _over(record: Record, protocol: Protocol) -> bool:
    """Whether a run's time was over before it was finished. A resumed one has the time since it resumed only."""
    spent_s = math.inf if record.resumed else record.timing.train_s
    most = protocol.steps or (protocol.epochs or 0) * record.timing.steps_per_epoch
    return protocol.limit_s is not None and spent_s >= protocol.limit_s and 0 < record.timing.steps < most


def _quiet(record: Record, protocol: Protocol) -> Iterator[str]:
    quiet, timing = record.quiet, record.timing
    if not quiet.quiet:
        return
    for why in disturbances(
        quiet.others_share,
        quiet.steal_share,
        quiet.throttled_share,
        quiet.stalled_share,
        quiet.oversubscribed,
    ):
        yield f"it is quiet, though {why}"
    # Steps of l-bfgs are not all of its time, and a cohort's are no run's.
    whole = timing.step.count and record.status in ("completed", "timed_out")
    gap_s = timing.train_s - timing.steps_s - timing.aside_s
    if whole and protocol.optimiser != "l-bfgs" and gap_s > STALLED_SHARE * timing.train_s + _SLACK_S:
        yield f"it is quiet, though its steps leave {gap_s:g} of {timing.train_s:g} s of training unexplained"


def _hours(record: Record, run: Run) -> Iterator[str]:
    seconds = (record.stopped - record.started).total_seconds()
    spent = {"node_hours": (record.node_hours, run.nodes)}
    if record.gpu_hours:
        spent["gpu_hours"] = (record.gpu_hours, run.ranks)
    for name, (hours, number) in spent.items():
        counted_s = 3600 * hours / number
        whole = math.isclose(counted_s, seconds, rel_tol=_ROUNDING, abs_tol=_TICK_S)
        # A run of a cohort has a share of them.
        if not whole and not (record.cohort and counted_s < seconds):
            yield f"{name} are not {number} times the {seconds:g} s from started to stopped"
    if record.timing.data_s + record.timing.train_s > seconds + _SLACK_S:
        yield f"train_s is more than the {seconds:g} s from started to stopped"


def _timing(timing: Timing, batch: int) -> Iterator[str]:
    measured = {"step": timing.step, "sampled_step": timing.sampled_step, "epoch": timing.epoch}
    for name, times in (measured | timing.spans).items():
        if not _ordered(times):
            yield f"the quartiles of {name} are out of order, or their count is wrong"
    # Parts of the loop.
    most_s = timing.train_s + _SLACK_S
    for name, times in measured.items():
        if (times.q75_s or 0) > most_s or (times.mean_s or 0) * times.count > most_s:
            yield f"the times of {name} are more than the {timing.train_s:g} s of training"
        # Half of all times are at least the median, of which a sample may be kept.
        if times.mean_s is not None and times.mean_s < 0.4 * (times.median_s or 0):
            yield f"the mean of {name}, {times.mean_s:g} s, is less than half of its median, {times.median_s:g} s"
    if timing.steps_s + timing.aside_s > most_s:
        yield f"steps_s and aside_s are more than the {timing.train_s:g} s of training"
    if timing.epoch.count * timing.steps_per_epoch > timing.steps:
        yield f"{timing.epoch.count} epochs of {timing.steps_per_epoch} steps are timed, of {timing.steps} steps"
    if max(timing.first_step_s or 0, timing.validation_s or 0) > most_s:
        yield f"first_step_s or validation_s is more than the {timing.train_s:g} s of training"
    steps = (timing.step, timing.sampled_step)
    timed_s = (timing.first_step_s or 0) + sum((times.mean_s or 0) * times.count for times in steps)
    if timed_s > timing.steps_s + _SLACK_S:
        yield f"steps_s, {timing.steps_s:g} s, is less than the {timed_s:g} s of the steps that are timed"
    if timing.step.count + timing.sampled_step.count > timing.steps:
        yield f"{timing.step.count} steps and {timing.sampled_step.count} sampled ones are timed, of {timing.steps}"
    expected_s = epoch_s(timing.epoch.median_s, timing.step.mean_s, timing.steps_per_epoch)
    if timing.epoch_s != expected_s and not _same(timing.epoch_s, expected_s):
        yield f"epoch_s is neither the median epoch nor, without one, {timing.steps_per_epoch} times the mean step"
    step_s = timing.step.median_s
    if not step_s:
        if timing.samples_per_s != step_s:
            yield "samples_per_s needs a median step"
        return
    samples = round((timing.samples_per_s or 0) * step_s)
    if not (1 <= samples <= batch and _same(timing.samples_per_s, samples / step_s)):
        yield f"samples_per_s is not a number of samples up to {batch} in the median step"


def _ordered(times: Quartiles) -> bool:
    """Whether the quartiles rise; there are none, and no mean, where nothing was counted."""
    known = [value for value in (times.q25_s, times.median_s, times.q75_s) if value is not None]
    rising = all(low <= high * (1 + _ROUNDING) for low, high in pairwise(known))
    return (
        len(known) == (3 if times.count else 0) and (times.mean_s is not None) == bool(times.count) and rising
    )


def _same(value: float | None, expected: float | None) -> bool:
    return value is not None and expected is not None and math.isclose(value, expected, rel_tol=_ROUNDING)


def _quality(quality: Quality, metrics: tuple[Metric, ...]) -> Iterator[str]:
    if quality.epochs is not None and (quality.best_epoch or 0) >= quality.epochs:
        yield f"the best epoch, {quality.best_epoch}, is not among its {quality.epochs}, counted from 0"
    for split, values in (("validation", quality.validation), ("test", quality.test)):
        for name, metric in [("chance", metrics[0]), *((metric.name, metric) for metric in metrics)]:
            if not _within(values.get(name), *metric.range):
                yield f"{name} on the {split} samples is {values[name]}"
        if not _counted(values.get("count")):
            yield f"count on the {split} samples is {values['count']}"
        if not _within(values.get("loss"), -math.inf, math.inf):
            yield f"loss on the {split} samples is {values['loss']}"


def _right(quality: Quality, headline: Metric) -> Iterator[str]:
    """A share is that of the cases which are right."""
    share, count = quality.test.get(headline.name), quality.test.get("count")
    if quality.influence is not None:
        try:
            moved = unpacked_numbers(quality.influence)
        except ValueError as error:
            yield f"of what each test sample moves {error}"
            return
        if len(moved) != count or abs(math.fsum(moved)) > _SINGLE * math.fsum(map(abs, moved)):
            yield f"the influence of {len(moved)} of {count} test samples is kept, or its mean is not 0"
    if (quality.right is not None) != (headline.is_share and share is not None):
        yield f"{headline.name} on the test samples has {'no ' * (quality.right is None)}single cases"
    if quality.right is None or not isinstance(share, (int, float)):
        return
    try:
        cases = unpacked(quality.right)
    except ValueError as error:
        yield f"of {headline.name} on the test samples {error}"
        return
    right, found = (sum(column) for column in zip(*cases, strict=True)) if cases else (0, 0)
    if found != count or abs(right - share * found) > _SINGLE * found:
        yield f"{headline.name} on the {count} test samples is {share}, but {right} of {found} cases are right"


def _within(value: Any, least: float, most: float) -> bool:
    """Whether a metric is undefined or in its range."""
    if value is None:
        return True
    return isinstance(value, (int, float)) and least - _SINGLE <= value <= most + _SINGLE


def _counted(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and value >= 1 and value == int(value))
