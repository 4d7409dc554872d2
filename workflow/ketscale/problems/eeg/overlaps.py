"""Trials that have steps in common, as windows of one recording do that overlap.

Such a run of steps is the same in all channels. Trials can also be alike by chance or by a stimulus. These cases are told
apart by reading trials backwards: steps that are common by chance are as common there, while no recording runs backwards.
So a trial's run counts only if it is twice as long as the longest run that the trial has in common with another one read
backwards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ketscale.problems.splits import NO_MARKS, Marks

# Half of the shortest run that counts.
_SHORTEST = 2
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that nothing is lost when it multiplies


class _Steps(NamedTuple):
    """The steps of all trials, one after the other, and the trial of each; a value that is held is one step."""

    values: NDArray[np.uint64]
    trials: NDArray[np.int64]


def marks(signals: NDArray[np.float32]) -> Marks:
    """A mark for every run of steps that several trials have, with each of these trials.

    signals: (n, channels, steps), before they are standardised, which would make equal steps differ.
    """
    steps = _steps(_contents(signals))
    longest = int(np.bincount(steps.trials, minlength=1).max())
    groups, covered = [NO_MARKS], np.zeros(len(signals), bool)
    length = _SHORTEST
    while 2 * length <= longest and not covered.all():
        clear = ~_like_another_backwards(steps, length, len(signals))
        if (clear & ~covered).any():
            runs, of = _windows(steps, 2 * length)
            among = clear[of]
            common = _common(runs[among], of[among])
            common[:, 0] += 1 + groups[-1][:, 0].max(initial=-1)
            groups.append(common)
        covered, length = clear, 2 * length
    return np.concatenate(groups)


def _contents(signals: NDArray[np.float32]) -> NDArray[np.uint64]:
    """A number (n, steps) for what all channels have at each step, equal for equal steps and for others by no chance.

    A channel without information on the recording is ignored: one that is constant in each trial, as a trial's number is,
    or the same in all trials, as the time in a trial is.
    """
    factors = np.random.default_rng(0).integers(0, 2**63, signals.shape[1], np.uint64) * np.uint64(
        2
    ) + np.uint64(1)
    total = np.zeros((signals.shape[0], signals.shape[2]), np.uint64)
    for number, factor in enumerate(factors):
        channel = signals[:, number]
        if (channel == channel[:, :1]).all() or (channel == channel[:1]).all():
            continue
        # Adding 0 makes -0.0 the 0.0 that it equals.
        bits = (channel + np.float32(0)).view(np.uint32)
        total += bits.astype(np.uint64) * factor
    # Neighbouring values must not stay neighbours, since windows are sums.
    return _mixed(total)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(29))) * _FACTOR
    return values ^ (values >> np.uint64(32))


def _steps(contents: NDArray[np.uint64]) -> _Steps:
    """Each stretch that stays as it is becomes one step, which says how long it was; so zeros and padding are short."""
    new = np.ones(contents.shape, bool)
    new[:, 1:] = contents[:, 1:] != contents[:, :-1]
    lengths = np.diff(np.append(np.flatnonzero(new), new.size)).astype(np.uint64)
    return _Steps(_mixed(contents[new] + lengths * _FACTOR), np.nonzero(new)[0])


def _windows(
    steps: _Steps, length: int, backwards: bool = False
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """A number for each run of so many steps of a trial, and its trial."""
    count = max(0, len(steps.values) - length + 1)
    total = np.zeros(count, np.uint64)
    for step in reversed(range(length)) if backwards else range(length):
        total *= _FACTOR
        total += steps.values[step : step + count]
    complete = steps.trials[:count] == steps.trials[length - 1 :]
    return total[complete], steps.trials[:count][complete]


def _like_another_backwards(steps: _Steps, length: int, trials: int) -> NDArray[np.bool_]:
    """Whether each trial has a run of so many steps that another trial has read backwards."""
    (runs, of), (others, of_others) = _windows(steps, length), _windows(steps, length, backwards=True)
    both = np.intersect1d(runs, others)
    alike = np.zeros(trials, bool)
    if not len(both):
        return alike
    # The first and the last trial that has each of these runs backwards: if both are one's own, no other has it.
    place = np.minimum(np.searchsorted(both, others), len(both) - 1)
    there = both[place] == others
    low, high = np.full(len(both), np.iinfo(np.int64).max), np.full(len(both), -1)
    np.minimum.at(low, place[there], of_others[there])
    np.maximum.at(high, place[there], of_others[there])
    place = np.minimum(np.searchsorted(both, runs), len(both) - 1)
    here = (both[place] == runs) & ((low[place] != of) | (high[place] != of))
    alike[of[here]] = True
    return alike


def _common(runs: NDArray[np.uint64], of: NDArray[np.int64]) -> Marks:
    """The marks of the runs that several trials have."""
    order = np.lexsort((of, runs))
    runs, of = runs[order], of[order]
    new_run = np.append(True, runs[1:] != runs[:-1])[: len(runs)]
    new = new_run | np.append(True, of[1:] != of[:-1])[: len(runs)]
    number = np.cumsum(new_run)[new] - 1
    several = np.bincount(number)[number] > 1 if len(number) else np.zeros(0, bool)
    return np.stack([number[several], of[new][several]], axis=1).astype(np.int64)
