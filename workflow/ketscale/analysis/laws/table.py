"""The rows of laws.csv: a row for each parameter of each law that was fitted, or one that says why it was refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ketscale.analysis.collected import Collected
from ketscale.analysis.laws import communication, cost, workers
from ketscale.analysis.laws.law import Fit

OF_FIT = ("verdict", "reason", "n", "points", "p_value", "residual", "spread", "regimes")


def rows(collected: Collected, swept: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The laws of the config's studies, then those of its machines' communication.

    swept: the kinds of studies that sweep an axis, with the name of that axis.
    """
    for study in collected.config.studies:
        found = []
        if study.kind in workers.LAWS:
            found = list(workers.fits(study, collected))
        elif study.kind in swept:
            found = list(cost.fits(study, swept[study.kind], collected))
        for fit in found:
            yield from _rows({"study": study.name, "kind": study.kind}, fit)
    for fit in communication.fits(collected):
        yield from _rows({}, fit)


def _rows(of: dict[str, Any], fit: Fit) -> Iterator[dict[str, Any]]:
    shared = {**of, **fit.identity, "law": fit.law.name, **{name: getattr(fit, name) for name in OF_FIT}}
    if held := fit.held_out:
        shared |= {"held_out": held.point, "predicted_s": held.predicted_s, "measured_s": held.measured_s}
        shared |= {"error": held.error.value, "error_low": held.error.low, "error_high": held.error.high}
    if not fit.estimates:
        yield shared
    for parameter, found in zip(fit.law.parameters, fit.estimates, strict=False):
        own = {"parameter": parameter.name, "unit": parameter.unit, "estimate": found.value}
        yield {**shared, **own, "low": found.low, "high": found.high}
