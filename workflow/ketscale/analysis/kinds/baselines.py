"""The baselines of a data set beside the configurations of models: which is the best, and why one may be missing."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace

from ketscale.analysis import metrics
from ketscale.analysis.collected import Collected
from ketscale.analysis.kinds.selection import Candidate, seed_of
from ketscale.jobs.baselines import Baselines


def standard(each: Candidate, collected: Collected) -> Candidate | None:
    """The baseline that is best on validation data, with its test beside each seed of a configuration; None without one.

    It is the one that its family names last, if several are equally good or there are no validation data.
    """
    known = _known(each, collected)
    if None in known.values():
        return None
    fitted = {
        (one.name, workload, one.fold): one
        for workload, found in known.items()
        for one in (found.results if found else ())
        if one.test is not None
    }
    made, ratios = [], {split: test.ratio for (split, _), test in each.tests.items()}
    for name in dict.fromkeys(name for name, _, _ in fitted):
        parts = {seed_of(row): (name, row["workload"], row["fold"]) for row in each.group}
        if not fitted.keys() >= {*parts.values()}:
            continue
        found = {seed: fitted[part] for seed, part in parts.items()}
        validated = [one.validation for one in found.values() if one.validation is not None]
        made.append(
            replace(
                each, group=(), model=name, failed=(), budget=None,
                tests={seed: metrics.of_baseline(one, ratios.get(seed[0], 0.0)) for seed, one in found.items()},
                validation=statistics.fmean(validated) if validated else None,
            )
        )  # fmt: skip
    sign = -1 if each.metric.better == "up" else 1
    return min(reversed(made), key=lambda one: sign * (one.validation or 0), default=None)


def lacking(each: Candidate, collected: Collected) -> Iterator[str]:
    """Why some baseline, or all, are not beside a configuration, in words."""
    for workload, found in _known(each, collected).items():
        if collected.config.family(workload).baselines is None:
            return
        if found is not None:
            yield from dict.fromkeys(f"there is no {one.name}: {one.why}" for one in found.results if one.why)
        elif workload in collected.baselines:
            yield f"its baselines are of other data: run `ketscale baseline {workload}`"
        else:
            yield f"no baseline has been fitted to it: run `ketscale baseline {workload}`"


def _known(each: Candidate, collected: Collected) -> dict[str, Baselines | None]:
    """The baselines of a configuration's data, or of each of its splits; None if there are none of the data of its runs."""
    known: dict[str, Baselines | None] = {}
    for workload in dict.fromkeys(row["workload"] for row in each.group):
        found = collected.baselines.get(workload)
        completed = (row for row in each.group if row["status"] == "completed")
        features = {row["features_hash"] for row in completed if row["workload"] == workload}
        known[workload] = found if found is not None and features <= {found.features} else None
    return known
