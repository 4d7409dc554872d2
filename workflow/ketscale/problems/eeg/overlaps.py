"""Trials that have steps in common, as windows of one recording do that overlap.

Such a run of steps is the same in all channels. Trials can also be alike by chance or by a stimulus. These cases are told
apart by reading trials backwards: steps that are common by chance are as common there, while no recording runs backwards.
So a trial's run counts only if it is twice as long as the longest run that the trial has in common with another one read
backwards.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from pandas.util import hash_pandas_object

from ketscale.problems.splits import NO_MARKS, Marks

# Half of the shortest run that counts.
_SHORTEST = 2


def marks(signals: NDArray[np.float32]) -> Marks:
    """A mark for every run of steps that several trials have, with each of these trials.

    signals: (n, channels, steps), before they are standardised, which would make equal steps differ.
    """
    steps = _steps(signals)
    longest = steps.trial.value_counts().max()
    found, known, length = [NO_MARKS], np.zeros(len(signals), bool), _SHORTEST
    while 2 * length <= longest and not known.all():
        clear = ~_like_another_backwards(steps, length, len(signals))
        if (clear & ~known).any():
            runs = _runs(steps, 2 * length)
            runs = runs[clear[runs.trial]].drop_duplicates()
            common = runs[runs.content.duplicated(keep=False)]
            number = pd.factorize(common.content)[0] + 1 + found[-1][:, 0].max(initial=-1)
            found.append(np.stack([number, common.trial], axis=1).astype(np.int64))
        known, length = clear, 2 * length
    return np.concatenate(found)


def _steps(signals: NDArray[np.float32]) -> pd.DataFrame:
    """The steps of all trials, one after the other: the trial, and a hash of what all channels have and how long they stay so.

    A channel that says nothing of the recording is left out: one that is constant in each trial, as a trial's number is,
    or the same in all trials, as the time in a trial is. So zeros and padding are one step.
    """
    trials, _, count = signals.shape
    channels = signals.transpose(1, 0, 2)
    telling = [each for each in channels if (each != each[:, :1]).any() and (each != each[:1]).any()]
    steps = pd.DataFrame({"content": 0, "trial": np.repeat(np.arange(trials), count)})
    if telling:
        # Adding 0 makes -0.0 the 0.0 that it equals.
        steps["content"] = _hashes(np.stack(telling, axis=-1).reshape(len(steps), -1) + np.float32(0))
    new = (steps != steps.shift()).any(axis=1)
    held = np.diff(np.append(np.flatnonzero(new), len(steps)))
    steps = steps[new]
    return steps.assign(content=hash_pandas_object(steps[["content"]].assign(held=held), index=False))


def _runs(steps: pd.DataFrame, length: int, backwards: bool = False) -> pd.DataFrame:
    """Each run of so many steps of a trial: the trial, and a hash of its steps."""
    trial, runs = steps.trial.to_numpy(), sliding_window_view(steps.content.to_numpy(), length)
    whole = trial[: len(runs)] == trial[length - 1 :]
    content = _hashes(runs[whole, ::-1] if backwards else runs[whole])
    return pd.DataFrame({"content": content, "trial": trial[: len(runs)][whole]})


def _like_another_backwards(steps: pd.DataFrame, length: int, trials: int) -> NDArray[np.bool_]:
    """Whether each trial has a run of so many steps that another trial has read backwards."""
    # If the first and the last trial that has a run backwards are one's own, no other has it.
    others = _runs(steps, length, backwards=True).groupby("content").trial.agg(["min", "max"])
    both = _runs(steps, length).join(others, on="content", how="inner")
    like = both.trial[(both["min"] != both.trial) | (both["max"] != both.trial)]
    return np.isin(np.arange(trials), like)


def _hashes(rows: NDArray[np.generic]) -> NDArray[np.uint64]:
    """A hash of each row, (n,), equal for equal rows and for others by no chance."""
    return np.asarray(hash_pandas_object(pd.DataFrame(rows), index=False), np.uint64)
