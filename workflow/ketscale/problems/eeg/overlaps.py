"""Trials that have steps in common, as windows of one recording do that overlap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ketscale.problems.splits import Marks

# So many steps in a row, each other than the one before, are not alike by chance.
LENGTH = 12


def marks(signals: NDArray[np.float32]) -> Marks:
    """A mark for every run of `LENGTH` steps that several trials have, with each of these trials.

    A channel that is constant in each trial, as a trial's number is, or the same in all, as the time in a trial is, says
    nothing of the recording.

    signals: (n, channels, steps), before they are standardised, which would make equal steps differ.
    """
    count, _, steps = signals.shape
    changing = (signals != signals[..., :1]).any((0, 2)) & (signals != signals[:1]).any((0, 2))
    if steps < LENGTH or not changing.any():
        return np.empty((0, 2), np.int64)
    # Adding 0 makes -0.0 the 0.0 that it equals.
    contents = signals[:, changing].transpose(0, 2, 1).reshape(count * steps, -1) + np.float32(0)
    runs = np.lib.stride_tricks.sliding_window_view(_numbered(contents).reshape(count, steps), LENGTH, axis=1)
    moving = (np.diff(runs) != 0).all(2)
    found = np.unique(np.stack([_numbered(runs[moving]), np.nonzero(moving)[0]], 1), axis=0)
    return found[np.bincount(found[:, 0], minlength=1)[found[:, 0]] > 1]


def _numbered(rows: NDArray[np.generic]) -> NDArray[np.int64]:
    """A number for each of the rows (n, k), equal for equal rows."""
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * rows.itemsize)))[:, 0]
    return np.unique(whole, return_inverse=True)[1]
