"""Trials that have steps in common, as windows of one recording do that overlap.

Such a run of steps is the same in all channels and changes with time. What chance or a stimulus makes alike is told
apart by reading trials backwards: steps that are common by chance are found there as often, while a recording that runs
backwards is nobody's. So a run counts only if it is twice as long as the longest that some trial has backwards.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ketscale.problems.splits import NO_MARKS, Marks

# Half of the shortest run that counts.
_SHORTEST = 2
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that nothing is lost when it multiplies


def marks(signals: NDArray[np.float32]) -> Marks:
    """A mark for every run of steps that several trials have, with each of these trials.

    signals: (n, channels, steps), before they are standardised, which would make equal steps differ.
    """
    content, steps = _contents(signals), signals.shape[2]
    length = _SHORTEST
    while 2 * length <= steps:
        forwards, of_forwards = _windows(content, length)
        backwards, of_backwards = _windows(content[:, ::-1], length)
        if not _have_common(forwards, of_forwards, backwards, of_backwards):
            return _common(*_windows(content, 2 * length))
        length *= 2
    return NO_MARKS


def _contents(signals: NDArray[np.float32]) -> NDArray[np.uint64]:
    """A number (n, steps) for what all channels have at each step, equal for equal steps and for others by no chance."""
    factors = np.random.default_rng(0).integers(0, 2**63, signals.shape[1], np.uint64) * np.uint64(
        2
    ) + np.uint64(1)
    total = np.zeros((signals.shape[0], signals.shape[2]), np.uint64)
    for channel, factor in enumerate(factors):
        # Adding 0 makes -0.0 the 0.0 that it equals.
        bits = (signals[:, channel] + np.float32(0)).view(np.uint32)
        total += bits.astype(np.uint64) * factor
    # Neighbouring values must not stay neighbours, since windows are sums.
    total ^= total >> np.uint64(29)
    total *= _FACTOR
    return total ^ (total >> np.uint64(32))


def _windows(content: NDArray[np.uint64], length: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """A number for each run of so many steps, and its trial; without those that mostly stay as they are.

    Zeros, clipped signals and padding are such runs.
    """
    count = content.shape[1] - length + 1
    total = np.zeros((len(content), count), np.uint64)
    for step in range(length):
        total *= _FACTOR
        total += content[:, step : step + count]
    changes = np.zeros((len(content), content.shape[1]), np.int64)
    np.cumsum(content[:, 1:] != content[:, :-1], axis=1, out=changes[:, 1:])
    lively = 2 * (changes[:, length - 1 :] - changes[:, :count]) >= length
    return total[lively], np.nonzero(lively)[0]


def _have_common(
    one: NDArray[np.uint64], of_one: NDArray[np.int64], two: NDArray[np.uint64], of_two: NDArray[np.int64]
) -> bool:
    """Whether two trials that differ have a run in common, one among the first runs and one among the second."""
    both = np.intersect1d(one, two)
    if not len(both):
        return False
    places, others = np.searchsorted(both, one), np.searchsorted(both, two)
    trials = []
    for runs, place, of in ((one, places, of_one), (two, others, of_two)):
        place = np.minimum(place, len(both) - 1)
        found = both[place] == runs
        low, high = np.full(len(both), np.iinfo(np.int64).max), np.full(len(both), -1)
        np.minimum.at(low, place[found], of[found])
        np.maximum.at(high, place[found], of[found])
        trials.append((low, high))
    (low, high), (other_low, other_high) = trials
    return bool(((low != other_high) | (high != other_low)).any())


def _common(runs: NDArray[np.uint64], of: NDArray[np.int64]) -> Marks:
    """The marks of the runs that several trials have."""
    order = np.lexsort((of, runs))
    runs, of = runs[order], of[order]
    new_run = np.append(True, runs[1:] != runs[:-1])[: len(runs)]
    new = new_run | np.append(True, of[1:] != of[:-1])[: len(runs)]
    number = np.cumsum(new_run)[new] - 1
    several = np.bincount(number)[number] > 1 if len(number) else np.zeros(0, bool)
    return np.stack([number[several], of[new][several]], axis=1).astype(np.int64)
