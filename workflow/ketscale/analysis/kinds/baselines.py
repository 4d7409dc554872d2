"""The baselines of a data set beside the configurations of models: which is the best, and why one may be missing."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace

from ketscale.analysis import metrics
from ketscale.analysis.collected import Collected
from ketscale.analysis.kinds.selection import Candidate


def standard(each: Candidate, collected: Collected) -> Candidate | None:
    """The baseline that is best on validation data, with its test beside each seed of a configuration; None without one.

    Of equally good ones, and without validation data, it is the one that its family names last.
    """
    found = collected.baselines.get(each.task[0])
    if found is None or not _alike(each, found.features):
        return None
    folds, made = {int(row["seed"]): row["fold"] for row in each.group}, []
    for name in dict.fromkeys(one.name for one in found.results):
        fitted = {one.fold: one for one in found.results if one.name == name and one.test is not None}
        if fitted.keys() >= {*folds.values()}:
            known = [
                one.validation for fold in folds.values() if (one := fitted[fold]).validation is not None
            ]
            tests = {seed: metrics.of_baseline(fitted[fold]) for seed, fold in folds.items()}
            made.append(
                replace(
                    each, group=(), model=name, tests=tests, failed=(), tried=0,
                    validation=statistics.fmean(known) if known else None,
                )
            )  # fmt: skip
    sign = -1 if each.metric.better == "up" else 1
    return min(reversed(made), key=lambda one: sign * (one.validation or 0), default=None)


def lacking(each: Candidate, collected: Collected) -> Iterator[str]:
    """Why some baseline, or all, are not beside a configuration, in words."""
    (workload, _), found = each.task, collected.baselines.get(each.task[0])
    if collected.config.family(workload).baselines is None:
        return
    if found is None:
        yield f"no baseline has been fitted to it: run `ketscale baseline {workload}`"
    elif not _alike(each, found.features):
        yield f"its baselines are of other data: run `ketscale baseline {workload}`"
    else:
        yield from dict.fromkeys(f"there is no {one.name}: {one.why}" for one in found.results if one.why)


def _alike(each: Candidate, features: str) -> bool:
    """Whether the completed runs of a configuration had the data with this features hash."""
    return {row["features_hash"] for row in each.group if row["status"] == "completed"} == {features}
