"""Studies of parity: the first losses of runs that must train alike. `measure.parity` compares all studies' runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ketscale.analysis import verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.points import size_axes
from ketscale.analysis.wording import where
from ketscale.grid import POINT, Run, Study

UNIT = "relative difference"


def rows(study: Study, collected: Collected) -> Iterator[dict[str, Any]]:
    """Every comparison of two runs of the study, the farthest from its limit first; ties break by name."""
    mine = {*study.runs}
    pairs = [each for each in collected.comparisons if each.run in mine and each.reference in mine]
    pairs.sort(key=lambda each: (-each.difference / each.limit, each.run.path, each.reference.path))
    for each in pairs:
        sizes = {name: collected.config.sizes(each.run).get(name) for name in size_axes(collected.config)}
        why = f"limit {each.limit:.3g}, {each.precision}, {each.steps} steps"
        yield {
            **{name: getattr(each.run, name) for name in POINT}, **sizes,
            "point": _named(each.run), "reference": _named(each.reference),
            "effect": each.difference, "unit": UNIT, "pairs": 1, "why": why,
            "verdict": verdicts.SAME if each.held else verdicts.DIFFERS,
        }  # fmt: skip


def _named(run: Run) -> str:
    simulated = run.model if run.simulator == "none" else run.simulator
    return f"{simulated} on {where(run.layout)}, seed {run.seed}"
