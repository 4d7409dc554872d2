"""The splits of labelled trials by their subjects or runs."""

from __future__ import annotations

import numpy as np

from ketscale.errors import UserError
from ketscale.problems.samples import Samples
from ketscale.problems.splits import Parts, by_group, check_trained, stratified

TRAIN_SHARE, VALIDATION_SHARE = 0.70, 0.15
# The share of the other runs' trials that early stopping looks at when one run is held out.
WITHIN_RUNS_VALIDATION = 0.2


def folds(trials: Samples, split: str, seed: int) -> list[Parts]:
    """One split by subjects, or one split for each held-out run.

    split: 'subjects' or 'runs'.
    """
    return [by_subject(trials, seed)] if split == "subjects" else leaving_one_run_out(trials, seed)


def by_subject(trials: Samples, seed: int) -> Parts:
    """70/15/15 % of the subjects, drawn with `seed`, for train, validation and test: no subject is in two parts.

    Raises:
        UserError: there are fewer than three subjects, or a class has no training sample.
    """
    held_out = 1 - TRAIN_SHARE - VALIDATION_SHARE
    parts = by_group(trials.groups["subjects"], held_out, held_out, seed, "subjects")
    check_trained(parts, trials.targets, trials.names, "choose another split_seed, or add subjects")
    return parts


def leaving_one_run_out(trials: Samples, seed: int) -> list[Parts]:
    """A split for each run, in which that run is the test; validation is drawn from the other runs' trials.

    Raises:
        UserError: there is more than one subject or only one run, or the other runs have too few trials.
    """
    of_run = trials.groups["runs"]
    runs, subjects = np.unique(of_run), np.unique(trials.groups["subjects"])
    if len(subjects) > 1 or len(runs) < 2:
        raise UserError(
            f"a split by runs needs one subject and at least 2 runs, not {len(subjects)} and {len(runs)}"
        )
    folds = []
    for run in runs:
        others = np.flatnonzero(of_run != run)
        if np.bincount(trials.targets[others], minlength=len(trials.names)).min() < 2:
            raise UserError(f"without run {run} there are fewer than 2 trials of a class: add runs")
        count = max(2, round(WITHIN_RUNS_VALIDATION * len(others)))
        train, validation = stratified(trials.targets, others, count, seed, "eeg")
        folds.append({"train": train, "validation": validation, "test": np.flatnonzero(of_run == run)})
    return folds
